//! The system's limits for UDP sockets, which the device for hosts without RNICs uses.

use dunlin_roce::{RoceConfig, RoceDevice};

use super::Finding;

const NAME: &str = "UDP buffers";

/// The device's receive buffer, compared with what it requests.
pub(super) fn examine() -> Vec<Finding> {
    let config = match RoceConfig::from_environment() {
        Ok(config) => config,
        Err(error) => {
            let advice = "unset the variable, or give it a valid value";
            return vec![Finding::missing(NAME, error.to_string(), advice)];
        }
    };
    let wanted = config.receive_buffer_bytes;
    // At a port of the system's choice: the one that is configured may be a server's.
    let mut config = config;
    config.port = 0;
    vec![match RoceDevice::open(config) {
        Ok(device) if device.receive_buffer_bytes() >= wanted => {
            Finding::ok(NAME, format!("{} KiB to receive", wanted >> 10))
        }
        Ok(device) => Finding::warn(
            NAME,
            format!(
                "{} KiB to receive, {} KiB requested",
                device.receive_buffer_bytes() >> 10,
                wanted >> 10
            ),
            format!("to lose fewer packets with many peers: sysctl net.core.rmem_max={wanted}"),
        ),
        Err(error) => Finding::missing(
            NAME,
            error.to_string(),
            "a UDP socket is required to reach hosts without RDMA NICs",
        ),
    }]
}
