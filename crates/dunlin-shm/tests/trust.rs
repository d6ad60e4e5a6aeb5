//! Who gets what: keys that were taken back, addresses that were not meant for one, memory of another domain.
#![allow(missing_docs)]

mod common;

use common::{pair_of, Side};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Access, CompletionStatus, ConnectAttributes, Device, Operation, QueuePair, QueuePairState,
    Region, RemoteAddress, Transport,
};

fn write(remote: RemoteAddress) -> Operation {
    Operation::Write {
        remote,
        immediate: None,
    }
}

fn quick() -> ConnectAttributes {
    ConnectAttributes {
        timeout_ns: 1_000_000,
        retry_count: 1,
        ..ConnectAttributes::default()
    }
}

#[test]
fn a_revoked_region_is_refused_at_once() {
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let region = b
        .device
        .allocate_region(&b.domain, 8192, Access::all())
        .unwrap();
    let remote = region.remote();
    a.post_inline(1, write(remote), b"granted");
    assert!(a.sent().is_success());
    drop(region);
    a.post_inline(2, write(remote), b"revoked");
    assert_eq!(a.sent().status, CompletionStatus::RemoteAccess);
}

#[test]
fn access_is_what_region_and_queue_pair_grant_and_only_in_one_domain() {
    for (access, own_domain, good) in [
        (Access::LOCAL_WRITE | Access::REMOTE_READ, true, false),
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE, true, true),
        (Access::all(), false, false),
        (Access::LOCAL_WRITE, true, false),
    ] {
        let (mut a, b) = pair_of(Transport::ReliableConnection);
        let domain = if own_domain {
            b.domain.clone()
        } else {
            b.device.create_protection_domain().unwrap()
        };
        let region = b.device.allocate_region(&domain, 8192, access).unwrap();
        a.post_inline(1, write(region.remote()), b"x");
        let status = a.sent().status;
        assert_eq!(status == CompletionStatus::Success, good, "{access:?}");
        assert!(good || status == CompletionStatus::RemoteAccess);
    }
}

#[test]
fn reading_a_read_only_region_works() {
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let region = b.device.allocate_region(&b.domain, 8192, access).unwrap();
    region.memory().write(0, b"look");
    a.post(
        1,
        Operation::Read {
            remote: region.remote(),
        },
        0,
        4,
    );
    assert!(a.sent().is_success());
    let mut bytes = [0; 4];
    a.region.memory().read(0, &mut bytes);
    assert_eq!(&bytes, b"look");
}

#[test]
fn a_stranger_does_not_get_in() {
    let (mut a, mut b) = (
        Side::new(Transport::ReliableConnection),
        Side::new(Transport::ReliableConnection),
    );
    let mut expected = a.pair.address();
    expected.token ^= 1;
    b.connect(&expected);
    a.connect_with(&b.pair.address(), quick());
    a.post_inline(1, write(b.remote(0)), b"let me in");
    assert_eq!(a.sent().status, CompletionStatus::RetryExceeded);
    assert_eq!(a.pair.state(), QueuePairState::Error);
    assert_eq!(b.pair.state(), QueuePairState::ReadyToSend);
}

#[test]
fn a_peer_that_is_not_there_or_has_left_is_an_error() {
    let mut a = Side::new(Transport::ReliableConnection);
    let mut nobody = a.pair.address();
    nobody.gid[0] ^= 1;
    a.pair.to_init(Access::REMOTE_WRITE).unwrap();
    a.pair.to_ready_to_receive(Some(&nobody), quick()).unwrap();
    // The device finds out by itself: before the next step, before the request, or by the request.
    if a.pair.to_ready_to_send().is_ok() {
        a.post_inline(1, write(a.remote(0)), b"x");
        let status = a.sent().status;
        let noticed = [CompletionStatus::RetryExceeded, CompletionStatus::Flushed];
        assert!(noticed.contains(&status), "{status}");
    }
    assert_eq!(a.pair.state(), QueuePairState::Error);

    let (mut a, b) = pair_of(Transport::ReliableConnection);
    a.post_inline(1, write(b.remote(0)), b"x");
    assert!(a.sent().is_success());
    let device = b.device.clone();
    drop(b);
    // Idle, and yet it learns of it.
    common::wait(|| a.pair.state() == QueuePairState::Error);
    a.post_inline(2, write(a.remote(0)), b"x");
    assert_eq!(a.sent().status, CompletionStatus::Flushed);
    drop(device);
}

#[test]
fn a_queue_pair_can_be_reset_and_connected_again() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    for round in 0..5 {
        b.receive(round, 0, 64);
        b.receive(100 + round, 64, 64);
        a.post_inline(round, Operation::Send { immediate: None }, b"again");
        assert!(a.sent().is_success());
        assert_eq!(b.received().id, round);
        a.pair.to_reset();
        b.pair.to_reset();
        let (at_a, at_b) = (a.pair.address(), b.pair.address());
        a.connect(&at_b);
        b.connect(&at_a);
    }
    common::quiet(&mut b.receives);
}

#[test]
fn memory_that_is_registered_again_counts_once() {
    let mut config = dunlin_shm::ShmConfig::default();
    config.max_registered_bytes = 1 << 20;
    let device = dunlin_shm::ShmDevice::open(config).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let allocate = || device.allocate_region(&domain, 1 << 20, Access::all());
    let region = allocate().unwrap();
    let others = [(); 3].map(|()| {
        device
            .register_again(&domain, &region, Access::all())
            .unwrap()
    });
    drop(region);
    allocate().unwrap_err();
    // Until the last registration has ended.
    drop(others);
    allocate().unwrap();
}

#[test]
fn limits_have_names() {
    let mut config = dunlin_shm::ShmConfig::default();
    config.max_regions = 2;
    config.max_registered_bytes = 1 << 20;
    config.max_queue_pairs = 1;
    let device = dunlin_shm::ShmDevice::open(config).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let one = device
        .allocate_region(&domain, 1 << 19, Access::all())
        .unwrap();
    let error = device
        .allocate_region(&domain, 1 << 20, Access::all())
        .unwrap_err();
    assert!(
        error.to_string().starts_with("max_registered_bytes: "),
        "{error}"
    );
    let two = device.allocate_region(&domain, 8, Access::all()).unwrap();
    let error = device
        .allocate_region(&domain, 8, Access::all())
        .unwrap_err();
    assert!(error.to_string().starts_with("max_regions: "), "{error}");
    drop((one, two));
    device
        .allocate_region(&domain, 1 << 20, Access::all())
        .unwrap();
    assert!(device.allocate_region(&domain, 0, Access::all()).is_err());
}

#[test]
fn a_peer_has_no_more_mapped_than_the_limit() {
    let mut config = ShmConfig::default();
    // The port of `b` and its other pages, and three regions of that size.
    config.port_bytes = 4096;
    config.max_mapped_bytes = 3 * common::SIZE + config.port_bytes + 2 * 4096;
    let device = ShmDevice::open(config.clone()).unwrap();
    let (mut a, mut b) = (
        Side::on(&device, Transport::ReliableConnection),
        Side::on(
            &ShmDevice::open(config).unwrap(),
            Transport::ReliableConnection,
        ),
    );
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    let region = |length| {
        let made = b.device.allocate_region(&b.domain, length, Access::all());
        made.unwrap()
    };
    let (first, second) = (region(2 * common::SIZE), region(2 * common::SIZE));
    a.post_inline(1, write(first.remote()), b"within");
    assert!(a.sent().is_success());
    a.post_inline(2, write(second.remote()), b"beyond");
    assert_eq!(a.sent().status, CompletionStatus::RemoteAccess);
}

#[test]
fn the_ports_of_a_peer_count_among_what_it_has_mapped() {
    let port_bytes = ShmConfig::default().port_bytes;
    // Room for one port, and not for two.
    let mut config = ShmConfig::default();
    config.max_mapped_bytes = 2 * port_bytes;
    let device = ShmDevice::open(config).unwrap();
    let other = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut sides = [(); 2].map(|()| {
        let sides = [&device, &other].map(|of| Side::on(of, Transport::ReliableConnection));
        let [mut a, mut b] = sides;
        let (at_a, at_b) = (a.pair.address(), b.pair.address());
        a.connect(&at_b);
        b.connect(&at_a);
        b.receive(1, 0, 100);
        a.post_inline(1, Operation::Send { immediate: None }, b"through a port");
        (a.sent().status, a, b)
    });
    let statuses = sides.each_ref().map(|(status, ..)| *status);
    let expected = [CompletionStatus::Success, CompletionStatus::RetryExceeded];
    assert_eq!(statuses, expected);
    assert!(sides[0].2.received().is_success());
}
