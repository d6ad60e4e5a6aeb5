//! The conformance suite on the RoCE device, by IPv4 and by IPv6: over loopback, or where `DUNLIN_ROCE_ADDRESS` names
//! an address of that family, from there (`netns/run` has both ends in network namespaces of their own, and `vm/run`
//! the kernel's soft-RoCE at the other end).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_verbs::conformance::Harness;

/// What the packets of two such devices are.
#[derive(Clone, Copy, PartialEq)]
enum Packets {
    /// As long as the way carries.
    Long,
    /// No longer than the standard's MTU, so that many go in a train.
    Standard,
    /// Those, each with the invariant CRC.
    WithCrc,
}

/// Where, and by what packets.
struct Loopback(IpAddr, Packets);

impl Harness for Loopback {
    type Device = RoceDevice;

    fn name(&self) -> String {
        format!("roce at {}", self.0)
    }

    fn open(&self) -> Result<RoceDevice, String> {
        let chosen = RoceConfig::from_environment().map_err(|error| error.to_string())?;
        let local = chosen.local_address;
        let local = local.filter(|address| address.is_ipv4() == self.0.is_ipv4());
        let mut config = RoceConfig::default();
        config.local_address = local.or(Some(self.0));
        config.port = chosen.port;
        (config.max_regions, config.max_queue_pairs) = (256, 256);
        config.omit_icrc = self.1 != Packets::WithCrc;
        if self.1 != Packets::Long {
            config.payload_bytes = config.mtu_bytes;
        }
        RoceDevice::open(config).map_err(|error| error.to_string())
    }
}

mod v4 {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv4Addr::LOCALHOST.into(), Packets::Long));
}

mod v4_standard {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv4Addr::LOCALHOST.into(), Packets::Standard));
}

mod v6 {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv6Addr::LOCALHOST.into(), Packets::Long));
}

mod with_crc {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv4Addr::LOCALHOST.into(), Packets::WithCrc));
}
