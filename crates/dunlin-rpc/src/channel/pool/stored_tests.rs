//! Messages that are stored into the peer's mapped memory instead of WRITEs.

use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_shm::ShmDevice;

use super::tests::{answer, answers, begin_turn, call, request, taken, Pools};
use super::{PoolChannel, PoolMemory, ServedPool};
use crate::channel::call_id::slot_of;
use crate::channel::message::Kind;
use crate::channel::Channel;

/// A client and a server that have posted a message each, which maps their memory.
fn mapped(by_turns: bool) -> (PoolChannel<ShmDevice>, ServedPool<ShmDevice>) {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join_in(match by_turns {
        true => PoolMemory::OwnByTurns,
        false => PoolMemory::Own(None),
    });
    // What is announced before a turn is fetched, so the second of two is the first that is written.
    for generation in 0..2 {
        request(&mut client, call(0, generation), b"posted");
        if by_turns && generation == 0 {
            begin_turn(&mut served, 0);
        }
        assert_eq!(taken(&mut served).len(), 1);
        answer(&mut served, call(0, generation), b"posted");
        assert_eq!(answers(&mut client).len(), 1);
    }
    assert!(client.peer_zones.is_some() && served.peer_answers.is_some());
    (client, served)
}

/// From the second message in each direction on there are no work requests.
#[test]
fn messages_are_stored_once_the_peer_is_mapped() {
    for by_turns in [false, true] {
        let (mut client, mut served) = mapped(by_turns);
        let posted = (client.carrier.last_posted(), served.carrier.last_posted());
        for generation in 2..50u32 {
            let payload = vec![generation as u8; generation as usize * 5];
            let calls = [call(0, generation), call(7, generation - 2)];
            for call in calls {
                client.push(Kind::Request, 1, call, &payload);
            }
            client.flush().unwrap();
            let expected = calls.map(|call| (call, payload.clone()));
            assert_eq!(taken(&mut served), expected);
            for call in calls {
                served.push(Kind::Response, 0, call, &payload);
            }
            served.flush().unwrap();
            let mut answered = Vec::new();
            while let Some(header) = client.receive().unwrap() {
                answered.push((header.call, client.payload(header).to_vec()));
            }
            answered.sort_by_key(|&(call, _)| slot_of(call));
            assert_eq!(answered, expected);
        }
        assert_eq!(
            (client.carrier.last_posted(), served.carrier.last_posted()),
            posted
        );
    }
}

/// A message is complete when the word that its reader polls is there, also when it is longer or shorter than the
/// former contents.
#[test]
fn a_stored_message_is_whole_when_it_is_seen() {
    const CALLS: u32 = 30_000;
    let (mut client, mut served) = mapped(false);
    let over = AtomicBool::new(false);
    let length = |generation: u32| (generation as usize * 37) % 257;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut torn = 0;
            while !over.load(Ordering::Relaxed) {
                let Some(header) = served.receive().unwrap() else {
                    torn += served
                        .parts
                        .iter()
                        .map(|&looks| u32::from(looks))
                        .sum::<u32>();
                    std::thread::yield_now();
                    continue;
                };
                let payload = served.payload(header).to_vec();
                served.push(Kind::Response, 0, header.call, &payload);
                served.flush().unwrap();
            }
            (torn, served)
        });
        for generation in 2..CALLS {
            let payload = vec![generation as u8; length(generation)];
            client.push(Kind::Request, 1, call(3, generation), &payload);
            client.flush().unwrap();
            let header = loop {
                match client.receive().unwrap() {
                    Some(header) => break header,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(header.call, call(3, generation));
            assert_eq!(client.payload(header), payload);
        }
        over.store(true, Ordering::Relaxed);
        let (torn, served) = server.join().unwrap();
        assert_eq!((torn, served.next[3]), (0, CALLS));
    });
}

/// Memory that its owner has released is not stored into any more: a WRITE is posted, which fails.
#[test]
fn a_mapping_that_is_closed_is_posted_to() {
    let (mut client, served) = mapped(false);
    drop(served);
    let posted = client.carrier.last_posted();
    client.push(Kind::Request, 1, call(0, 2), b"to nobody");
    let ended = client.flush().is_err();
    assert!(
        ended || client.carrier.last_posted() > posted,
        "it is not stored"
    );
    let heard = ended
        || (0..1_000_000).any(|_| {
            std::thread::yield_now();
            client.progress().is_err()
        });
    assert!(heard, "the failure of the WRITE");
}
