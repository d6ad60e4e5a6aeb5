//! Tests of the effect of a silent peer on others.

use std::time::{Duration, Instant};

use dunlin_verbs::{QueuePair, Transport};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::control::message::{Message, MESSAGE_BYTES};
use crate::control::socket::address;
use crate::fuzzing::{connect, Side};
use crate::turn_tests::send_datagram;
use crate::{ShmConfig, ShmDevice};

const UD: Transport = Transport::UnreliableDatagram;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// With a stopped process, the first datagrams to it wait for its answer as long as they may; from then on the executor
/// stays with its owner, whatever is sent to it.
#[test]
fn who_was_silent_once_keeps_nobody_at_what_is_sent_there() {
    let device = ShmDevice::open(ShmConfig {
        control_timeout: Duration::from_secs(2),
        ..ShmConfig::default()
    });
    let mut side = Side::on(device.unwrap(), UD, None);
    let mut other = Side::new(UD);
    connect(&mut side, &mut other);
    let mut to = other.pair.address();
    to.gid[0] ^= 1;
    let (family, kind, flags) = (
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
    );
    let listener = rustix::net::socket_with(family, kind, flags, None).unwrap();
    rustix::net::bind(&listener, &address(to.gid).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let shared = side.device.core().queue_pair(side.pair.number()).unwrap();
    send_datagram(&mut side, &to, 20);
    assert!(shared.send.is_shared(), "it waits for the answer");
    until("it was silent for too long", || !shared.send.is_shared());
    let session = rustix::net::accept_with(&listener, flags).unwrap();
    let mut asked = 0;
    until("it is asked again", || {
        send_datagram(&mut side, &to, 20);
        let mut bytes = [0; MESSAGE_BYTES];
        while let Ok(length) = rustix::io::read(&session, &mut bytes) {
            let message = Message::decode(&bytes[..length]).unwrap();
            asked += usize::from(matches!(message, Message::AttachDatagram { .. }));
        }
        asked >= 2
    });
    assert!(!shared.send.is_shared(), "nothing waits");
}
