//! Tests of ports that go down and up and change their addresses while a device is open.

use std::time::{Duration, Instant};

use dunlin_verbs::{Access, AsyncEvent, ConnectAttributes, Device, QueuePair};

use crate::fake::{modified, raise, script};
use crate::fake_tests::{connect, open, open_with, pair, refused, says};
use crate::sys::constants as c;
use crate::IbvDevice;

fn gid(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
    gid
}

/// A device that can look up the kinds of its GIDs for as long as the test runs.
fn device() -> IbvDevice {
    // Without sysfs the kinds are unknown, which is sufficient here.
    open_with(&[], |_| {}).expect("a device")
}

#[test]
fn goes_down_and_comes_back() {
    let device = device();
    let (mut first, _queue) = pair(&device).expect("a queue pair");
    let peer = first.address();
    script(|s| s.port_state = 1);
    device.look_again();
    first.to_init(Access::all()).expect("Init");
    let text = refused(first.to_ready_to_receive(Some(&peer), ConnectAttributes::default()));
    says(&text, &["port 1 of fake0 is down", "ip link set"]);
    assert!(device.choices()[0].1.contains("not usable now"));
    // Active again without an event: found by the next connection.
    script(|s| s.port_state = 4);
    first
        .to_ready_to_receive(Some(&peer), ConnectAttributes::default())
        .expect("connects");
    first.to_ready_to_send().expect("sends");
}

#[test]
fn follows_its_address_to_another_index() {
    let device = device();
    assert_eq!(device.port().gid.index, 0);
    script(|s| s.gids = vec![gid(9), gid(1)]);
    device.look_again();
    assert_eq!(device.port().gid.index, 1);
    let (mut one, _queue) = pair(&device).expect("a queue pair");
    let peer = one.address();
    assert_eq!(peer.gid, gid(1));
    one.to_init(Access::all()).expect("Init");
    one.to_ready_to_receive(Some(&peer), ConnectAttributes::default())
        .expect("connects");
    assert_eq!(modified().address.route.source_index, 1);
}

#[test]
fn takes_another_address_when_its_own_is_gone() {
    let device = device();
    script(|s| s.gids = vec![gid(9)]);
    device.look_again();
    assert_eq!(device.port().gid.gid, gid(9));
    // All gone: that is reported, and no GID is made up.
    script(|s| s.gids = Vec::new());
    device.look_again();
    let (mut one, _queue) = pair(&device).expect("a queue pair");
    let peer = one.address();
    let text = refused(connect(&mut one, &peer));
    says(&text, &["no GID", "ip addr add"]);
}

#[test]
fn events_of_ports_are_told() {
    let device = open();
    let told = |event| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match device.poll_async_event() {
                Some(found) => return assert_eq!(found, event),
                None => assert!(Instant::now() < end, "no event"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    raise(device.context(), 1, c::EVENT_PORT_ERROR);
    told(AsyncEvent::PortDown(1));
    raise(device.context(), 1, c::EVENT_PORT_ACTIVE);
    told(AsyncEvent::PortActive(1));
    raise(device.context(), 1, c::EVENT_GID_CHANGE);
    told(AsyncEvent::AddressesChanged(1));
    raise(device.context(), 0, c::EVENT_DEVICE_FATAL);
    told(AsyncEvent::DeviceFatal);
}

/// A peer that claims to answer no READ at all: one is sent, otherwise none ever would be.
#[test]
fn nonsense_about_reads_means_one() {
    let device = open();
    let (mut one, _queue) = pair(&device).expect("a queue pair");
    for (token, reads) in [(0, 1), (1, 1), (7, 7), (200, 16), (1 << 40, 1)] {
        let mut peer = one.address();
        peer.token = token;
        connect(&mut one, &peer).expect("connects");
        assert_eq!(modified().max_reads_initiated, reads, "token {token}");
        one.to_reset();
    }
}
