//! Peers that say nothing: `control_timeout` ends the wait for them.
#![allow(missing_docs)]

mod common;

use std::os::fd::OwnedFd;
use std::time::Duration;

use common::addresses::{read_address, write_address};
use common::process::{listen, role, say, Other};
use common::{wait, Side};
use dunlin_shm::{Message, ShmConfig, ShmDevice, MESSAGE_BYTES};
use dunlin_verbs::{
    CompletionStatus, ConnectAttributes, Destination, Device, EndpointAddress, Operation, Payload,
    QueuePair, QueuePairState, RemoteAddress, SendFlags, SendRequest, Transport,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{kill_process, Pid, Signal};

const UD: Transport = Transport::UnreliableDatagram;

/// A device that does not wait long.
fn impatient(change: impl FnOnce(&mut ShmConfig)) -> ShmDevice {
    let mut config = ShmConfig::default();
    config.control_timeout = Duration::from_millis(400);
    change(&mut config);
    ShmDevice::open(config).unwrap()
}

/// A peer that can wait for ever.
fn patient() -> ConnectAttributes {
    ConnectAttributes {
        timeout_ns: 0,
        ..ConnectAttributes::default()
    }
}

fn write(remote: RemoteAddress) -> Operation {
    Operation::Write {
        remote,
        immediate: None,
    }
}

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn name(gid: [u8; 16]) -> SocketAddrUnix {
    let name = format!("dunlin-shm-{:032x}", u128::from_be_bytes(gid));
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

/// The next message, if one is there; the inner one is none when the other side has closed.
fn hear(socket: &OwnedFd) -> Option<Option<Message>> {
    let mut bytes = [0; MESSAGE_BYTES];
    match rustix::io::read(socket, &mut bytes) {
        Ok(0) => Some(None),
        Ok(length) => Some(Some(Message::decode(&bytes[..length]).unwrap())),
        Err(_) => None,
    }
}

#[test]
fn a_region_that_a_stopped_peer_does_not_grant_is_an_error() {
    if role().is_some() {
        let mut side = Side::new(Transport::ReliableConnection);
        say(&write_address(&side.pair.address(), side.remote(0)));
        let (address, _) = read_address(&listen().unwrap());
        side.connect(&address);
        say("connected");
        listen().unwrap();
        return;
    }
    let this = "a_region_that_a_stopped_peer_does_not_grant_is_an_error";
    let mut other = Other::start(this, "other", "");
    let mut side = Side::on(&impatient(|_| ()), Transport::ReliableConnection);
    let (address, remote) = read_address(&other.hear());
    other.say(&write_address(&side.pair.address(), side.remote(0)));
    side.connect_with(&address, patient());
    assert_eq!(other.hear(), "connected");
    // Without bytes there is no region to ask for: now the port is here.
    side.post_inline(1, write(remote), b"");
    assert!(side.sent().is_success());
    let id = other.child.id();
    kill_process(Pid::from_child(&other.child), Signal::STOP).unwrap();
    wait(|| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" T"))
    });
    side.post_inline(2, write(remote), b"anyone?");
    assert_eq!(side.sent().status, CompletionStatus::RetryExceeded);
    assert_eq!(side.pair.state(), QueuePairState::Error);
    // Its late answer hurts nobody: what is closed by our side is heard by a peer that goes on.
    kill_process(Pid::from_child(&other.child), Signal::CONT).unwrap();
    other.say("bye");
    assert!(other.child.wait().unwrap().success());
}

fn datagram(side: &mut Side, to: &EndpointAddress) {
    let handle = side.device.create_address_handle(&side.domain, to).unwrap();
    let mut request = SendRequest::new(
        1,
        Operation::Send { immediate: None },
        Payload::Inline(b"hello"),
        SendFlags::SIGNALED,
    );
    request.destination = Some(Destination {
        handle: &handle,
        queue_pair: to.queue_pair,
        queue_key: to.queue_key,
    });
    side.pair.post_send(&[request]).unwrap();
    // Lost, and that is success.
    assert!(side.sent().is_success());
}

#[test]
fn a_datagrams_destination_that_does_not_answer_is_asked_again() {
    let mut side = Side::on(&impatient(|_| ()), Transport::UnreliableDatagram);
    let mut to = side.pair.address();
    side.connect(&to);
    to.gid[0] ^= 1;
    let listener = socket();
    rustix::net::bind(&listener, &name(to.gid)).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    datagram(&mut side, &to);
    let mut session = None;
    wait(|| {
        session = rustix::net::accept_with(&listener, SocketFlags::NONBLOCK).ok();
        session.is_some()
    });
    let session = session.unwrap();
    let mut asked = 0;
    wait(|| {
        match hear(&session) {
            Some(Some(Message::AttachDatagram { target, .. })) => {
                assert_eq!(target, to.queue_pair);
                asked += 1;
            }
            Some(Some(Message::Hello { .. })) => {}
            Some(other) => panic!("{other:?}"),
            None => datagram(&mut side, &to),
        }
        asked == 2
    });
}

#[test]
fn who_does_not_answer_holds_up_no_datagrams_to_others() {
    // Longer than the test may take: nothing goes on because a time is over.
    let long = Duration::from_secs(600);
    let mut side = Side::on(&impatient(|config| config.control_timeout = long), UD);
    let mut other = Side::new(UD);
    let to = other.pair.address();
    let long = ConnectAttributes {
        timeout_ns: long.as_nanos() as u64,
        ..ConnectAttributes::default()
    };
    side.connect_with(&to, long);
    other.connect(&to);
    let mut silent = to;
    silent.gid[0] ^= 1;
    let listener = socket();
    rustix::net::bind(&listener, &name(silent.gid)).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    for id in 0..20 {
        other.receive(id, id as usize * 100, 100);
    }
    datagram(&mut side, &silent);
    // The first of them wait as well, for an answer that comes.
    for _ in 0..20 {
        datagram(&mut side, &silent);
        datagram(&mut side, &to);
    }
    for id in 0..20 {
        let received = other.received();
        assert!(received.is_success() && received.id == id);
    }
}

#[test]
fn a_session_that_does_not_say_who_it_is_gives_its_place_back() {
    let device = impatient(|config| config.max_sessions = 1);
    let side = Side::on(&device, Transport::ReliableConnection);
    let stranger = socket();
    rustix::net::connect(&stranger, &name(side.pair.address().gid)).unwrap();
    wait(|| matches!(hear(&stranger), Some(None)));
    let (mut a, mut b) = (Side::new(Transport::ReliableConnection), side);
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    a.post_inline(1, write(b.remote(0)), b"there is room");
    assert!(a.sent().is_success());
}
