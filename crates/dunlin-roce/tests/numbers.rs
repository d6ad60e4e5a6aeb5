//! Numbers of queue pairs: packets to one that is gone find none that has come since.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_verbs::conformance::{Endpoint, Options};
use dunlin_verbs::{Device, QueuePair, Transport};

/// A queue pair had the number of the one before it once in 511 times: over UC it then took the goodbye to that one.
#[test]
fn a_number_is_not_used_again_soon() {
    let mut config = RoceConfig::from_environment().expect("the environment");
    config.local_address = config.local_address.or(Some(Ipv4Addr::LOCALHOST.into()));
    let device = RoceDevice::open(config).expect("a device");
    let domain = device.create_protection_domain().expect("a domain");
    let options = Options::new(Transport::UnreliableConnection);
    let mut recent = VecDeque::new();
    for _ in 0..2_000 {
        let one = Endpoint::new(&device, &domain, &options, None).expect("an endpoint");
        let number = one.queue_pair.number();
        assert!(!recent.contains(&number), "{number}");
        recent.push_back(number);
        if recent.len() == 256 {
            recent.pop_front();
        }
    }
}
