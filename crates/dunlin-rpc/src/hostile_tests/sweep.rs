//! Clients that lie about anything, in any order, by seed: about credits, counts, lengths, handlers, degrees, keys.
//! Nobody else sees it.

use dunlin_verbs::{Operation, RemoteAddress, RemoteKey};

use super::*;
use crate::channel::batch::FRAME_BYTES;
use crate::channel::message::SHORT_BYTES;
use crate::channel::one_sided::{Attached, GRANT_BYTES};
use crate::RemoteRegion;

const NOTES: &[u8; 64] = b"what only the server writes; clients may read it and nothing els";

impl Raw {
    /// Attaches a region, as the first thing that it does.
    fn attach(&mut self, name: &str) -> Attached {
        assert!(self.honest(Kind::Attach, 0, 9, name.as_bytes()));
        let memory = self.inlet.memory();
        // The commit word of the first batch.
        eventually("the grant comes", || {
            memory.atomic_u64(RING_AT).load(Ordering::Acquire) != 0
        });
        let mut grant = [0; GRANT_BYTES];
        memory.read(RING_AT + FRAME_BYTES + SHORT_BYTES, &mut grant);
        let grant = Attached::decode(&grant).unwrap();
        assert_eq!(grant.length, NOTES.len() as u64);
        grant
    }

    /// One lie; `false` when the connection is over.
    fn lie(&mut self, random: &mut Random, notes: &Attached) -> bool {
        let word = random.next();
        match random.below(8) {
            0 => {
                let degree = random.of(&[0, 1, 384, 385, 4_000_000_000, u32::MAX]) & !(3 << 30);
                self.ask(random.of(&[degree, degree | 1 << 29]))
            }
            1 => {
                let degree = random.of(&[0, 1, 384, 385, (1 << 30) - 1]);
                self.post(0, &[], Some(1 << 30 | degree))
            }
            2 => {
                let count = random.below(550);
                (0..count).all(|call| {
                    self.is_alive() && self.honest(Kind::Request, ECHO, call as u64, b"more")
                })
            }
            3 => {
                // Within the region, which was granted for reading alone.
                let remote = notes.remote.plus(8 * random.below(8) as u64);
                let operation = match random.below(3) {
                    0 => Operation::Write {
                        remote,
                        immediate: None,
                    },
                    1 => Operation::FetchAndAdd { remote, add: word },
                    _ => Operation::CompareAndSwap {
                        remote,
                        compare: u64::from_le_bytes(*NOTES.first_chunk().unwrap()),
                        swap: word,
                    },
                };
                let done = self.operate(operation, 8);
                assert!(!done, "{operation:?} was not granted");
                false
            }
            4 => {
                // Beyond it, by little and by much.
                let beyond = random.of(&[57, 64, 4096, 1 << 40, u64::MAX, word]);
                let remote = notes.remote.plus(beyond);
                let done = self.operate(Operation::Read { remote }, 8);
                assert!(!done, "a READ at {beyond} of 64 bytes");
                false
            }
            5 => {
                // Keys that are not ours: neighbours of one that is, and anything.
                let key = match random.below(3) {
                    0 => notes
                        .remote
                        .key
                        .0
                        .wrapping_add(random.of(&[1, 2, u32::MAX])),
                    1 => notes.remote.key.0 ^ 1 << random.below(32),
                    _ => word as u32,
                };
                let remote = RemoteAddress {
                    address: notes.remote.address,
                    key: RemoteKey(key),
                };
                let done = self.operate(Operation::Read { remote }, 8);
                // One of these is the key of our own inlet at the server, which may be written and nothing else.
                assert!(
                    !done || key == notes.remote.key.0,
                    "the key {key:#x} is not ours"
                );
                false
            }
            _ => self.misbehave(random, &[0, 1, 2, 3]),
        }
    }
}

/// Calls and counts of an honest client of the preset `flock`, until told to stop.
fn count(client: &Client, region: &RemoteRegion, stop: &AtomicBool) -> u64 {
    let mut counted = 0;
    while !stop.load(Ordering::Relaxed) {
        region.fetch_add(0, 1).unwrap();
        assert_eq!(*client.call(ECHO, b"fine").unwrap(), *b"fine");
        counted += 1;
    }
    counted
}

#[test]
fn liars_of_all_kinds_harm_themselves_alone() {
    let table = crate::Region::new("table", 4096).writable().atomic();
    let notes = crate::Region::new("notes", NOTES.len());
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&table)
        .region(&notes)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(LONG, |_, reply| reply.write(&[1; 30_000]))
        .handle_on_workers(ON_WORKERS, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    notes.memory().unwrap().write(0, NOTES);
    let device = hostile_device();
    let honest = Client::builder()
        .preset(Preset::Flock)
        .connect(&server.address().to_string())
        .unwrap();
    let region = honest.attach("table").unwrap();
    let stop = AtomicBool::new(false);
    let counted: u64 = std::thread::scope(|scope| {
        let counting: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| count(&honest, &region, &stop)))
            .collect();
        let stopper = Stopper(&stop);
        beside_a_good_client(&server, || {
            for seed in 1..=200 {
                let mut random = Random::new(seed);
                let sender = random.of(&[None, Some(seed), Some(7)]);
                let form = random.of(&[Form::Twice, Form::Sealed]);
                let mut raw = Raw::dial_in(form, &device, &server, 64, sender);
                let notes = raw.attach("notes");
                for _ in 0..40 {
                    if !raw.lie(&mut random, &notes) || !raw.is_alive() {
                        break;
                    }
                }
            }
        });
        drop(stopper);
        counting
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let mut read = [0; NOTES.len()];
    notes.memory().unwrap().read(0, &mut read);
    assert_eq!(read, *NOTES);
    let word = table.memory().unwrap().atomic_u64(0).load(Ordering::SeqCst);
    assert_eq!(word, counted, "nobody else has counted");
    assert!(counted > 0 && server.statistics().violations > 20);
    drop((honest, region));
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.senders().is_empty());
}
