//! Lanes to two servers over one queue pair, on one thread; both servers are sessions of one endpoint.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

use super::DatagramLane;
use crate::call::lane::{Lane, NoCalls};
use crate::channel::datagram::connect::route_in;
use crate::channel::datagram::packet::{Cursor, Head, Packet};
use crate::channel::datagram::{Endpoint, Greeting, Protocol, Shared, UnconnectedSession};
use crate::channel::message::{Header, Kind};
use crate::config::ChannelConfig;
use crate::lanes::{LaneSetup, Owner};

const LONGEST: usize = 1 << 20;
const CALLS: usize = 32;
/// Number of SENDs that a queue pair may have posted.
const ENTRIES: usize = 256;
/// Time limit of a wait: what a port has no room for is delivered by the device's thread, when that has a core.
const WITHIN: Duration = Duration::from_secs(30);
/// Number of polls after all have arrived, to see whether more do.
const LOOKS: usize = 100;

fn endpoint(device: &ShmDevice) -> Endpoint<ShmDevice> {
    let wake = device.create_completion_channel().unwrap();
    Endpoint::new(device, &wake, &Default::default()).unwrap()
}

/// A lane over `client` to a session of `server`, which has greeted it, and the session's number there.
fn lane(
    client: &Shared<ShmDevice>,
    server: &mut Endpoint<ShmDevice>,
    cookie: u64,
) -> (DatagramLane<ShmDevice>, u32) {
    let mut session = UnconnectedSession::new(client, CALLS, LONGEST).unwrap();
    let theirs = Greeting::read(&session.parameters()).unwrap();
    let number = server.enter(cookie).unwrap();
    let way = route_in(server.device(), server.domain(), &session.address()).unwrap();
    server.join(number, way);
    let ours = Greeting {
        to: Head {
            cookie,
            session: number as u16,
            ..Head::default()
        },
        packet_bytes: server.packet_bytes(),
        longest: LONGEST,
        calls: CALLS,
    };
    let (told, handle) = session.join(&server.address(), &ours.parameters()).unwrap();
    let setup = LaneSetup {
        config: ChannelConfig::default(),
        owner: Owner::Alone,
        packet_lost: Arc::default(),
    };
    let mut lane = DatagramLane::new(&session, (&told, handle), None, (Protocol::Bare, &setup));
    let mut hello = Packet::new(server.packet_bytes());
    hello.push(Header::new(Kind::Fates, 0, 0, 0), &[]);
    hello.seal(theirs.to);
    let sent = server.send(std::iter::once((number, hello.bytes())));
    assert_eq!(sent.unwrap(), 1);
    while !lane.met {
        lane.poll(&mut NoCalls).unwrap();
    }
    (lane, number)
}

/// The first bytes of all requests that have arrived for a session.
fn requests(server: &mut Endpoint<ShmDevice>, session: u32) -> Vec<[u8; 2]> {
    let mut bytes = vec![0; server.packet_bytes()];
    let mut requests = Vec::new();
    while let Some(length) = server.take(session, &mut bytes).unwrap() {
        let head = Head::read(bytes.first_chunk().unwrap()).unwrap();
        let mut cursor = Cursor::new(head);
        while let Some((_, payload)) = cursor.take(&bytes[..length]).unwrap() {
            requests.push([bytes[payload.start], bytes[payload.start + 1]]);
        }
    }
    requests
}

/// Room that becomes free between two packets of a batch is for the first waiting one: none is dropped or sent twice,
/// and none goes to the other server.
#[test]
fn packets_that_find_no_room_at_first_leave_in_their_order() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut server = endpoint(&device);
    for _ in 0..6 {
        let block = server.take_block().unwrap();
        server.add(block).unwrap();
    }
    let client = Arc::new(Mutex::new(endpoint(&device)));
    let (mut one, at_one) = lane(&client, &mut server, 1);
    let (mut other, at_other) = lane(&client, &mut server, 2);

    // It is full of datagrams without a session; the second poll for room is the first to find them gone.
    let full = std::iter::repeat_n((one.session, &[0; 16][..]), ENTRIES);
    assert_eq!(client.lock().unwrap().send(full).unwrap(), ENTRIES);
    client.lock().unwrap().vain_looks = 1;
    let began = Instant::now();
    while server.strange() < ENTRIES as u64 {
        assert!(began.elapsed() < WITHIN, "{} arrived", server.strange());
        server.poll(|_| {}).unwrap();
        thread::yield_now();
    }

    // One per packet, and as many as share a doorbell.
    let mut payload = vec![0; one.capacity];
    for number in 0..16 {
        payload[..2].copy_from_slice(&[1, number]);
        assert!(one.submit_short(1, &payload, 0).is_some());
    }
    for number in 0..4 {
        payload[..2].copy_from_slice(&[2, number]);
        assert!(other.submit_short(1, &payload, 0).is_some());
    }
    one.gather(&mut NoCalls).unwrap();
    other.gather(&mut NoCalls).unwrap();
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    let (began, mut looks_left) = (Instant::now(), LOOKS);
    while looks_left > 0 && began.elapsed() < WITHIN {
        other.poll(&mut NoCalls).unwrap();
        other.send_gathered(&mut NoCalls).unwrap();
        server.poll(|_| {}).unwrap();
        of_one.extend(requests(&mut server, at_one));
        of_other.extend(requests(&mut server, at_other));
        looks_left -= usize::from(of_one.len() >= 16 && of_other.len() >= 4);
        thread::yield_now();
    }
    assert_eq!(
        of_one,
        (0..16).map(|number| [1, number]).collect::<Vec<_>>()
    );
    assert_eq!(of_other, [[2, 0], [2, 1], [2, 2], [2, 3]]);
}
