//! Tests of the fairness between sessions, and of what ends one.

use std::time::Duration;

use rustix::net::{socketpair, AddressFamily, SocketType};

use super::*;
use crate::control::message::MESSAGE_BYTES;
use crate::{ShmConfig, ShmDevice};

/// Number of answers available.
fn answers(peer: &OwnedFd) -> usize {
    let mut bytes = [0; MESSAGE_BYTES];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    std::iter::from_fn(|| rustix::net::recv(peer, &mut bytes, flags).ok()).count()
}

fn ask(peer: &OwnedFd, message: &Message) {
    let flags = rustix::net::SendFlags::DONTWAIT;
    rustix::net::send(peer, &message.encode(), flags).unwrap();
}

fn question(request: u32) -> Message {
    Message::MapRegion {
        request,
        requester: 1,
        token: 0,
        target: 0,
        key: 0,
    }
}

/// A session, and the peer's end of it, whose requests are all queued before the first is answered.
fn session(server: &mut Server, questions: u32) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    server.sessions.push(Session {
        socket: Socket::new(ours.into()),
        uid: Some([1; 16]),
        opened: Instant::now(),
        parked: Vec::new(),
        attached: Vec::new(),
        datagrams: Vec::new(),
        admitted: Admitted::default(),
    });
    (0..questions).for_each(|request| ask(&theirs, &question(request)));
    theirs
}

#[test]
fn who_asks_without_end_has_turns_like_others() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut server = Server::new(Arc::clone(device.core()));
    let others = session(&mut server, 1);
    let flood = session(&mut server, 100);
    let others_too = session(&mut server, 1);
    server.handle(&[true; 3]);
    assert_eq!((answers(&others), answers(&others_too)), (1, 1));
    assert_eq!(answers(&flood), MESSAGES_PER_ROUND);
    // Nothing is lost: the rest is handled in the next rounds.
    (0..100 / MESSAGES_PER_ROUND).for_each(|_| server.handle(&[true; 3]));
    assert_eq!(answers(&flood), 100 - MESSAGES_PER_ROUND);
}

#[test]
fn who_connects_without_end_has_turns_like_others() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut server = Server::new(Arc::clone(device.core()));
    let mut uid = [0; 16];
    dunlin_verbs::random::fill(&mut uid).unwrap();
    let address = crate::control::socket::address(uid).unwrap();
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
    };
    let listener = socket();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 128).unwrap();
    let listener = Foreign::from(listener);
    let crowd: Vec<_> = (0..100).map(|_| socket()).collect();
    for one in &crowd {
        rustix::net::connect(one, &address).unwrap();
    }
    server.accept(&listener, false).unwrap();
    assert_eq!(server.sessions.len(), SESSIONS_PER_ROUND);
    (0..100 / SESSIONS_PER_ROUND).for_each(|_| server.accept(&listener, false).unwrap());
    assert_eq!(server.sessions.len(), 100);
}

#[test]
fn a_session_that_sends_descriptors_ends_and_they_are_not_received() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut server = Server::new(Arc::clone(device.core()));
    let peer = session(&mut server, 0);
    let flags = SocketFlags::CLOEXEC;
    let (reader, writer) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let mut socket = Socket::new(peer.into());
    socket.send(&question(1), vec![writer]).unwrap();
    server.handle(&[true]);
    assert!(server.sessions.is_empty());
    // It is closed with the socket, by another thread.
    let mut one = [rustix::event::PollFd::new(
        &reader,
        rustix::event::PollFlags::IN,
    )];
    let patience = Duration::from_secs(60).try_into().unwrap();
    assert_eq!(rustix::event::poll(&mut one, Some(&patience)), Ok(1));
}

#[test]
fn who_does_not_read_answers_is_asked_for_no_more_questions() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut server = Server::new(Arc::clone(device.core()));
    let peer = session(&mut server, 0);
    let mut asked = 0;
    // Until both directions are full.
    loop {
        let flags = rustix::net::SendFlags::DONTWAIT;
        match rustix::net::send(&peer, &question(asked).encode(), flags) {
            Ok(_) => asked += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                break;
            }
        }
        assert!(asked < 1 << 20, "it reads on");
        server.handle(&[true]);
        assert_eq!(server.sessions.len(), 1);
    }
    let mut answered = 0;
    while answered < asked as usize {
        answered += answers(&peer);
        server.handle(&[true]);
    }
    assert_eq!(answered, asked as usize);
}
