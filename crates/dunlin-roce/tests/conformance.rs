//! The conformance suite on the RoCE device, over loopback by IPv4 and by IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_verbs::conformance::Harness;

/// Where, and whether packets go without the invariant CRC.
struct Loopback(IpAddr, bool);

impl Harness for Loopback {
    type Device = RoceDevice;

    fn name(&self) -> String {
        format!("roce at {}", self.0)
    }

    fn open(&self) -> Result<RoceDevice, String> {
        let mut config = RoceConfig::default();
        config.local_address = Some(self.0);
        config.omit_icrc = self.1;
        RoceDevice::open(config).map_err(|error| error.to_string())
    }
}

mod v4 {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv4Addr::LOCALHOST.into(), true));
}

mod v6 {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv6Addr::LOCALHOST.into(), true));
}

mod with_crc {
    use super::*;
    dunlin_verbs::conformance_suite!(Loopback(Ipv4Addr::LOCALHOST.into(), false));
}
