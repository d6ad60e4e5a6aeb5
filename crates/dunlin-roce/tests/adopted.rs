//! Memory of another device's region: how long it is, and how long its rights last.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use dunlin_roce::{RoceConfig, RoceDevice, RoceProtectionDomain, RoceRegion};
use dunlin_verbs::conformance::{piece, Endpoint, Options};
use dunlin_verbs::{
    Access, AnyRegion, Device, LocalKey, Memory, PageKind, Region, RemoteAddress, Transport,
    VerbsError,
};

const BYTES: usize = 8192;

fn open(max_registered_bytes: usize) -> (RoceDevice, RoceProtectionDomain) {
    let mut config = RoceConfig::from_environment().expect("the environment");
    config.local_address = Some(Ipv4Addr::LOCALHOST.into());
    config.max_registered_bytes = max_registered_bytes;
    let device = RoceDevice::open(config).expect("a device");
    let domain = device.create_protection_domain().expect("a domain");
    (device, domain)
}

/// A region that says something else each time that it is asked.
#[derive(Clone, Debug)]
struct Two {
    regions: [RoceRegion; 2],
    asked: Arc<AtomicUsize>,
}

// SAFETY: both windows are valid as long as the value. That it names the one and the other is against the contract, and
// the device under test is not to rely on that.
#[allow(unsafe_code)]
unsafe impl Region for Two {
    fn memory(&self) -> &Memory {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Region::memory(&self.regions[asked % 2])
    }

    fn access(&self) -> Access {
        Region::access(&self.regions[0])
    }

    fn local_key(&self) -> LocalKey {
        Region::local_key(&self.regions[0])
    }

    fn remote(&self) -> RemoteAddress {
        Region::remote(&self.regions[0])
    }

    fn page_kind(&self) -> PageKind {
        Region::page_kind(&self.regions[0])
    }
}

#[test]
fn one_window_is_as_long_as_it_says_itself() {
    let (device, domain) = open(64 << 30);
    let region = |bytes| {
        device
            .allocate_region(&domain, bytes, Access::all())
            .unwrap()
    };
    let regions = [region(BYTES), region(1 << 20)];
    let (other, other_domain) = open(64 << 30);
    for first in 0..2 {
        let two = Two {
            regions: regions.clone(),
            asked: Arc::new(AtomicUsize::new(first)),
        };
        let two: Arc<dyn AnyRegion> = Arc::new(two);
        let adopted = other.adopt_region(&other_domain, &two, Access::all());
        let adopted = adopted.unwrap().expect("it takes memory of others");
        let window = regions
            .iter()
            .map(Region::memory)
            .find(|memory| memory.start() == Region::memory(&adopted).start());
        assert_eq!(Region::memory(&adopted).len(), window.unwrap().len());
    }
}

#[test]
fn its_rights_end_with_the_last_handle_though_a_receive_names_it() {
    // There is room for one region alone, so that the next shows that the one before has ended.
    let (theirs, their_domain) = open(BYTES);
    let allocate = || theirs.allocate_region(&their_domain, BYTES, Access::all());
    let first: Arc<dyn AnyRegion> = Arc::new(allocate().unwrap());
    let (device, domain) = open(64 << 30);
    let adopted = device.adopt_region(&domain, &first, Access::all());
    let adopted = adopted.unwrap().expect("it takes memory of others");
    let options = Options::new(Transport::ReliableConnection);
    let mut endpoint = Endpoint::new(&device, &domain, &options, None).expect("an endpoint");
    endpoint.receive(1, &[piece(&adopted, 0, BYTES)]);
    drop(first);
    let refused = allocate();
    assert!(
        matches!(refused, Err(VerbsError::Limit { .. })),
        "{refused:?}"
    );
    drop(adopted);
    allocate().expect("the first has ended");
}

#[test]
fn no_region_is_longer_than_an_address_space() {
    let (device, domain) = open(usize::MAX);
    for length in [
        usize::MAX,
        usize::MAX - 4096,
        usize::MAX - (1 << 20),
        1 << 63,
    ] {
        let region = device.allocate_region(&domain, length, Access::LOCAL_WRITE);
        assert!(
            matches!(region, Err(VerbsError::Invalid { .. })),
            "{region:?}"
        );
    }
}
