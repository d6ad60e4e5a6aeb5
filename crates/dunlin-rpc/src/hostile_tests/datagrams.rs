//! Senders of datagrams: strangers who know a queue pair and no cookie, and clients who keep to the handshake and to
//! nothing else.

use dunlin_verbs::Device;

use super::*;
use crate::channel::datagram::packet::{Head, Packet, HEAD_BYTES};
use crate::channel::message::HEADER_BYTES;

type Sender = crate::hostile::datagram::Sender<ShmDevice>;

impl Sender {
    /// Makes the handshake of a client.
    fn dial(device: &ShmDevice, server: &RunningServer) -> Self {
        Self::dial_as(Preset::Fasst, device, server)
    }

    fn dial_as(preset: Preset, device: &ShmDevice, server: &RunningServer) -> Self {
        Self::open(device, &Door::port(server, None), preset)
    }
}

/// Runs `bad` beside a client whose calls end well, but for those whose packets found no RECEIVE; says how many those
/// were.
fn beside_a_good_client(server: &RunningServer, bad: impl FnOnce()) -> (u64, u64) {
    let builder = Client::builder().preset(Preset::Fasst);
    let client = builder.connect(&server.address().to_string()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut random = Random::new(5);
            let (mut right, mut lost) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let length = random.of(&[0, 8, 40, 100, 4000, 9000]);
                let payload = random.bytes(length);
                let handler = random.of(&[ECHO, ECHO, ECHO, ON_WORKERS]);
                match client.call(handler, &payload) {
                    Ok(answer) => {
                        assert!(*answer == *payload);
                        right += 1;
                    }
                    Err(CallError::PacketLost { .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            (right, lost)
        });
        let stopper = Stopper(&stop);
        bad();
        drop(stopper);
        good.join().unwrap()
    })
}

#[test]
fn datagrams_of_strangers_and_bad_clients_harm_nobody() {
    let server = serve();
    let device = hostile_device();
    let seeds = 40;
    let (right, lost) = beside_a_good_client(&server, || {
        for seed in 1..=seeds {
            let mut random = Random::new(seed);
            let mut sender = Sender::dial(&device, &server);
            for _ in 0..60 {
                sender.misbehave(&mut random);
            }
        }
    });
    println!(
        "{seeds} seeds: {} violations; good calls: {right} right, {lost} lost",
        server.statistics().violations
    );
    assert!(server.statistics().violations > 0);
    assert!(right > 0);
    let builder = Client::builder().preset(Preset::Fasst);
    let client = builder.connect(&server.address().to_string()).unwrap();
    assert_eq!(&*client.call(ECHO, b"fine").unwrap(), b"fine");
}

#[test]
fn senders_who_go_on_for_ever_keep_nobody_from_his_answers() {
    let server = serve();
    let address = server.address().to_string();
    let stop = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let stopper = Stopper(&stop);
        for kind in [None, Some(Kind::Cancel)] {
            let (stop, sent, server) = (&stop, &sent, &server);
            scope.spawn(move || {
                let device = hostile_device();
                let mut sender = Sender::dial(&device, server);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..100 {
                        let sent = match kind {
                            // Nothing at all, and as much as fits that means nothing.
                            None => sender.send(&[]),
                            Some(kind) => sender.many(kind, 200),
                        };
                        assert!(sent);
                    }
                    sent.fetch_add(100, Ordering::Relaxed);
                }
            });
        }
        for preset in [Preset::Fasst, Preset::Erpc, Preset::Herd, Preset::Plain] {
            let builder = Client::builder().preset(preset);
            let client = builder.connect(&address).unwrap();
            let (mut right, mut lost) = (0, 0);
            let began = sent.load(Ordering::Relaxed);
            while right < 300 || sent.load(Ordering::Relaxed) < began + 3000 {
                match client.call(ECHO, b"beside") {
                    Ok(answer) => {
                        assert_eq!(&*answer, b"beside");
                        right += 1;
                    }
                    // There was no RECEIVE for it: that is said, and no time-out.
                    Err(CallError::PacketLost { .. }) => lost += 1,
                    Err(error) => panic!("{preset}: {error}"),
                }
            }
            println!("{preset}: {right} right, {lost} lost");
        }
        drop(stopper);
    });
    println!("{} datagrams in vain", sent.load(Ordering::Relaxed));
    assert!(server.shutdown());
}

#[test]
fn a_poll_ends_however_much_has_come() {
    use crate::channel::datagram::connect::route_in;
    use crate::channel::datagram::Endpoint;
    const SENT: usize = 400;
    let device = hostile_device();
    let endpoint = |blocks| {
        let wake = device.create_completion_channel().unwrap();
        let mut endpoint = Endpoint::new(&device, &wake, &Default::default()).unwrap();
        for _ in 0..blocks {
            let block = endpoint.take_block().unwrap();
            endpoint.add(block).unwrap();
        }
        endpoint
    };
    let (mut sender, mut receiver) = (endpoint(1), endpoint(2 * SENT / 64));
    let session = sender.enter(1).unwrap();
    let way = route_in(&device, sender.domain(), &receiver.address()).unwrap();
    sender.join(session, way);
    for number in 0..SENT {
        if number + 1 == SENT {
            sender.signal_next();
        }
        eventually("there is room in the send queue", || {
            let datagram = std::iter::once((session, &[0; 16][..]));
            sender.send(datagram).unwrap() == 1
        });
    }
    sender.finish();
    assert_eq!(receiver.strange(), 0);
    let mut polls = 0;
    eventually("all are seen", || {
        let before = receiver.strange();
        let taken = receiver.poll(|_| panic!("nobody's")).unwrap();
        let strange = receiver.strange() - before;
        assert!(strange <= 128, "{strange} at once");
        assert!(taken <= 1, "{taken}");
        polls += usize::from(strange > 0);
        receiver.strange() == SENT as u64
    });
    assert!(polls > 2, "{polls}");
}

#[test]
fn each_breach_of_a_session_ends_it() {
    let server = serve();
    let device = hostile_device();
    let segment = |total: u32, offset: u32, bytes: usize| {
        let mut payload = Vec::new();
        for word in [total, offset, 0] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        payload.resize(12 + bytes, 1);
        payload
    };
    let breaches: Vec<(&str, Kind, u64, Vec<u8>)> = vec![
        ("a response", Kind::Response, 0, vec![]),
        ("a message of rings", Kind::LongRequest, 0, vec![0; 24]),
        ("a call beyond the credits", Kind::Request, 16, vec![]),
        (
            "a segment without a head",
            Kind::RequestSegment,
            0,
            vec![1; 5],
        ),
        (
            "a request beyond the limit",
            Kind::RequestSegment,
            0,
            segment((16 << 20) + 1, 0, 10),
        ),
        (
            "a segment beyond its message",
            Kind::RequestSegment,
            0,
            segment(5000, 4052 * 2, 10),
        ),
        (
            "an empty segment",
            Kind::RequestSegment,
            0,
            segment(0, 0, 0),
        ),
        ("half a count", Kind::Segments, 0, vec![1, 2]),
        (
            "a question about a call beyond the credits",
            Kind::Question,
            0,
            99u64.to_le_bytes().to_vec(),
        ),
    ];
    for (index, (name, kind, call, payload)) in breaches.iter().enumerate() {
        let mut sender = Sender::dial(&device, &server);
        sender.message(*kind, *call, payload);
        eventually(name, || server.statistics().violations == index as u64 + 1);
    }
    eventually("all sessions have ended", || server.connections() == 0);
    // A request that comes twice is executed once, and one that was asked about before it came not at all.
    let mut sender = Sender::dial(&device, &server);
    sender.message(Kind::Request, 3, b"once");
    sender.message(Kind::Request, 3, b"once");
    sender.message(Kind::Question, 0, &4u64.to_le_bytes());
    sender.message(Kind::Request, 4, b"never");
    sender.message(Kind::Request, 5, b"last");
    eventually("the last is taken", || server.statistics().requests >= 2);
    sender.message(Kind::Goodbye, 0, &[]);
    eventually("it has left", || server.connections() == 0);
    assert_eq!(server.statistics().requests, 2);
    assert_eq!(server.statistics().violations, breaches.len() as u64);
    assert!(server.shutdown());
}

/// A part of a request of `total` bytes, as an honest client would send it.
fn part(total: u32, number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for word in [total, number, 0] {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    payload.resize(12 + bytes, 1);
    payload
}

#[test]
fn each_breach_of_a_driven_session_ends_it() {
    let server = serve();
    let device = hostile_device();
    // What fits into a datagram of 4096 bytes with its heads.
    let piece = 4096 - 16 - 16 - 12;
    let breaches: Vec<(&str, Kind, u64, Vec<u8>)> = vec![
        ("a response", Kind::ResponsePart, 0, part(4, 0, 4)),
        ("a credit", Kind::CreditReturn, 0, vec![0; 4]),
        ("a request of the other protocol", Kind::Request, 0, vec![]),
        ("its segment", Kind::RequestSegment, 0, part(5000, 0, 10)),
        ("its question", Kind::Question, 0, vec![0; 8]),
        (
            "a call beyond the limit",
            Kind::RequestPart,
            16,
            part(4, 0, 4),
        ),
        ("a part without a head", Kind::RequestPart, 0, vec![1; 5]),
        (
            "a request beyond the limit",
            Kind::RequestPart,
            0,
            part((16 << 20) + 1, 0, piece),
        ),
        (
            "a part beyond its message",
            Kind::RequestPart,
            0,
            part(5000, 2, 10),
        ),
        (
            "a part that is too short",
            Kind::RequestPart,
            0,
            part(5000, 0, 10),
        ),
        ("half a number", Kind::ResponseRequest, 0, vec![1, 2]),
    ];
    for (index, (name, kind, call, payload)) in breaches.iter().enumerate() {
        let mut sender = Sender::dial_as(Preset::Erpc, &device, &server);
        sender.message(*kind, *call, payload);
        eventually(name, || server.statistics().violations == index as u64 + 1);
    }
    let mut sender = Sender::dial_as(Preset::Erpc, &device, &server);
    sender.message(Kind::RequestPart, 1, &part(5000, 0, piece));
    sender.message(Kind::RequestPart, 1, &part(4900, 1, 4900 - piece));
    let known = breaches.len() as u64 + 1;
    eventually("a request that changes its length", || {
        server.statistics().violations == known
    });
    eventually("all sessions have ended", || server.connections() == 0);
    // Parts that come twice or before others are executed once, in their order, or not at all.
    let mut sender = Sender::dial_as(Preset::Erpc, &device, &server);
    sender.message(Kind::RequestPart, 3, &part(4, 0, 4));
    sender.message(Kind::RequestPart, 3, &part(4, 0, 4));
    sender.message(Kind::RequestPart, 4, &part(5000, 1, 5000 - piece));
    sender.message(Kind::RequestPart, 4, &part(5000, 0, piece));
    sender.message(Kind::RequestPart, 4, &part(5000, 0, piece));
    sender.message(Kind::RequestPart, 4, &part(5000, 1, 5000 - piece));
    sender.message(Kind::RequestPart, 4, &part(5000, 1, 5000 - piece));
    // Never the whole of it, and parts of responses that are not there.
    sender.message(Kind::RequestPart, 5, &part(5000, 1, 5000 - piece));
    sender.message(Kind::ResponseRequest, 5, &[0; 4]);
    sender.message(Kind::ResponseRequest, 77, &[9; 4]);
    sender.message(Kind::Release, 3, &[]);
    sender.message(Kind::Release, 99, &[]);
    sender.message(Kind::RequestPart, 6, &part(0, 0, 0));
    eventually("the last is taken", || server.statistics().requests >= 3);
    sender.message(Kind::Goodbye, 0, &[]);
    eventually("it has left", || server.connections() == 0);
    assert_eq!(server.statistics().requests, 3);
    assert_eq!(server.statistics().violations, known);
    assert!(server.shutdown());
}

#[test]
fn each_breach_of_a_zone_ends_its_session() {
    let server = serve();
    let device = hostile_device();
    let breaches = [
        ("a response", Kind::Response, 0, 0),
        ("a long request of a pool", Kind::LongRequest, 0, 0),
        ("a call in the block of another call", Kind::Request, 3, 2),
        ("a call beyond the limit", Kind::Request, 16, 16),
    ];
    for (index, (name, kind, block, call)) in breaches.into_iter().enumerate() {
        let mut sender = Sender::dial_as(Preset::Herd, &device, &server);
        let uplink = sender.uplink.as_mut().unwrap();
        uplink.put(block, Header::new(kind, ECHO, call, 4), b"evil");
        eventually(name, || server.statistics().violations == index as u64 + 1);
    }
    eventually("all sessions have ended", || server.connections() == 0);
    // A request that is written twice, or told by a datagram as well, is executed once; one that was given up not at
    // all.
    let mut sender = Sender::dial_as(Preset::Herd, &device, &server);
    sender.message(Kind::Question, 0, &4u64.to_le_bytes());
    sender.message(Kind::Request, 5, b"by datagram");
    eventually("the datagrams are taken", || {
        server.statistics().requests == 1
    });
    let uplink = sender.uplink.as_mut().unwrap();
    for call in [3, 3, 4, 5] {
        uplink.write(ECHO, call, b"written");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Half of a message is none, and harms no other.
    uplink.tear(6, b"half of a message, and never the other");
    uplink.write(ECHO, 7, b"the last");
    eventually("the last is taken", || server.statistics().requests >= 3);
    sender.message(Kind::Goodbye, 0, &[]);
    eventually("it has left", || server.connections() == 0);
    assert_eq!(server.statistics().requests, 3);
    assert_eq!(server.statistics().violations, breaches.len() as u64);
    assert!(server.shutdown());
}

#[test]
fn datagrams_that_come_before_their_session_keep_their_order() {
    use crate::channel::datagram::connect::route_in;
    use crate::channel::datagram::Endpoint;
    let device = hostile_device();
    let endpoint = || {
        let wake = device.create_completion_channel().unwrap();
        let mut endpoint = Endpoint::new(&device, &wake, &Default::default()).unwrap();
        let block = endpoint.take_block().unwrap();
        endpoint.add(block).unwrap();
        endpoint
    };
    let (mut sender, mut receiver) = (endpoint(), endpoint());
    receiver.keep_unclaimed();
    let session = sender.enter(1).unwrap();
    let way = route_in(&device, sender.domain(), &receiver.address()).unwrap();
    sender.join(session, way);
    for call in 0..5 {
        let mut packet = Packet::new(512);
        packet.push(
            Header {
                length: 0,
                handler: ECHO,
                kind: Kind::Request,
                call,
            },
            &[],
        );
        packet.seal(Head {
            cookie: 77,
            session: 3,
            ..Head::default()
        });
        let to_all = std::iter::once((session, packet.bytes()));
        sender.send(to_all).unwrap();
    }
    let mut polls = 0;
    eventually("all have come", || {
        sender.poll(|_| {}).unwrap();
        receiver.poll(|_| panic!("nobody's yet")).unwrap();
        polls += 1;
        receiver.has_unclaimed() && polls > 200
    });
    receiver.enter_at(3, 77);
    let back = route_in(&device, receiver.domain(), &sender.address()).unwrap();
    receiver.join(3, back);
    receiver.settle(|number| assert_eq!(number, 3)).unwrap();
    let mut calls = Vec::new();
    let mut bytes = [0; 4096];
    eventually("each is taken", || {
        receiver.poll(|_| {}).unwrap();
        while let Some(length) = receiver.take(3, &mut bytes).unwrap() {
            assert_eq!(length, HEAD_BYTES + HEADER_BYTES);
            calls.push(bytes[HEAD_BYTES + 8]);
        }
        calls.len() == 5
    });
    assert_eq!(calls, [0, 1, 2, 3, 4]);
}
