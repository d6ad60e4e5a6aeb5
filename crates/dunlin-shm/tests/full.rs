//! A process without a descriptor left makes no new connection, and keeps those that it has. A file of its own with one
//! test, because it takes all descriptors of the process.
#![allow(missing_docs)]

mod common;

use std::os::fd::OwnedFd;
use std::time::Duration;

use common::addresses::{read_address, write_address};
use common::process::{listen, role, say, Other};
use common::{all, Side};
use dunlin_shm::{Message, MESSAGE_BYTES};
use dunlin_verbs::{
    ConnectAttributes, Device, EndpointAddress, Operation, PeerConfirmation, QueuePair, Transport,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

const RC: Transport = Transport::ReliableConnection;

fn line(side: &Side) -> String {
    write_address(&side.pair.address(), side.remote(0))
}

/// A WRITE of nothing, which needs the peer's port alone.
fn probe(side: &mut Side, remote: dunlin_verbs::RemoteAddress) {
    let write = Operation::Write {
        remote,
        immediate: None,
    };
    side.post_inline(1, write, b"");
}

#[test]
fn who_has_no_descriptor_left_keeps_its_connections() {
    if role().is_some() {
        let mut first = Side::new(RC);
        let mut second = Side::on(&first.device, RC);
        for side in [&mut first, &mut second] {
            say(&line(side));
            let (address, _) = read_address(&listen().unwrap());
            side.connect(&address);
        }
        say("connected");
        listen();
        return;
    }
    let this = "who_has_no_descriptor_left_keeps_its_connections";
    let mut other = Other::start(this, "other", "");
    let mut first = Side::new(RC);
    let mut second = Side::on(&first.device, RC);
    let mut meet = |side: &Side| {
        let theirs = read_address(&other.hear());
        other.say(&line(side));
        theirs
    };
    let (to_first, remote) = meet(&first);
    let (to_second, _) = meet(&second);
    assert_eq!(other.hear(), "connected");
    first.connect(&to_first);
    probe(&mut first, remote);
    assert!(first.sent().is_success());

    second.pair.to_init(all()).unwrap();
    let stranger = socket();
    let taken = take_all_descriptors();
    // It waits until there is a descriptor for it.
    rustix::net::connect(&stranger, &name(first.pair.address().gid)).unwrap();
    let patient = ConnectAttributes {
        timeout_ns: 0,
        ..ConnectAttributes::default()
    };
    second
        .pair
        .to_ready_to_receive(Some(&to_second), patient)
        .unwrap();
    second.pair.to_ready_to_send().unwrap();
    // Answered by the same session, behind the port for which there is no place.
    assert!(is_there(&first, &to_second));
    probe(&mut first, remote);
    assert!(first.sent().is_success());
    drop(taken);
    probe(&mut second, remote);
    assert!(second.sent().is_success());
    let hello = Message::Hello {
        version: 2,
        uid: [1; 16],
    };
    let question = Message::Confirm {
        request: 1,
        target: 0,
        token: 0,
    };
    for message in [hello, question] {
        rustix::io::write(&stranger, &message.encode()).unwrap();
    }
    let mut answer = [0; MESSAGE_BYTES];
    assert_eq!(rustix::io::read(&stranger, &mut answer), Ok(MESSAGE_BYTES));
    let answer = Message::decode(&answer).unwrap();
    assert_eq!(answer, Message::Refused { request: 1 });
}

fn socket() -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn name(gid: [u8; 16]) -> SocketAddrUnix {
    let name = format!("dunlin-shm-{:032x}", u128::from_be_bytes(gid));
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

fn is_there(side: &Side, address: &EndpointAddress) -> bool {
    let confirmed = side.device.confirm_peer(address, Duration::from_secs(60));
    matches!(confirmed.unwrap(), PeerConfirmation::Confirmed { .. })
}

fn take_all_descriptors() -> Vec<std::fs::File> {
    // Not many more than are open.
    let limit = Rlimit {
        current: Some(256),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    loop {
        match std::fs::File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
                return taken;
            }
        }
    }
}
