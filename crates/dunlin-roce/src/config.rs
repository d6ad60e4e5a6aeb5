//! The settings of a device, each with a default.

use std::net::IpAddr;

/// UDP port of RoCEv2, where kernels and NICs listen.
pub const ROCE_PORT: u16 = 4791;

/// How a [`crate::RoceDevice`] is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoceConfig {
    /// The device's name for people.
    pub name: String,
    /// The address of this host that peers send to. `None`: that of the connection that introduces them
    /// ([`crate::RoceDevice::at`]); before one is known, this host's loopback address.
    pub local_address: Option<IpAddr>,
    /// UDP port; zero for one of the system's choice, which travels in the addresses of queue pairs. [`ROCE_PORT`] to
    /// be reached by a kernel or a NIC, which know no other.
    pub port: u16,
    /// Path MTU at most, in bytes: 256, 512, 1024, 2048 or 4096. Less where an interface or a route carries less.
    pub mtu_bytes: usize,
    /// Bytes of the socket's receive buffer. The system gives less when `net.core.rmem_max` is less and the process may
    /// not go beyond it.
    pub receive_buffer_bytes: usize,
    /// Bytes of the socket's send buffer, under `net.core.wmem_max` likewise.
    pub send_buffer_bytes: usize,
    /// Whether packets between two devices of Dunlin go without the invariant CRC: UDP's own checksum guards them.
    pub omit_icrc: bool,
    /// Regions registered at once, at most 65536.
    pub max_regions: usize,
    /// Bytes registered at once.
    pub max_registered_bytes: usize,
    /// Queue pairs at once, at most 32768.
    pub max_queue_pairs: usize,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self {
            name: "roce".to_owned(),
            local_address: None,
            port: 0,
            mtu_bytes: 4096,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            omit_icrc: true,
            max_regions: 65536,
            max_registered_bytes: 64 << 30,
            max_queue_pairs: 32768,
        }
    }
}
