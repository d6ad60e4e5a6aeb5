//! Random programs compared with a model: every message arrives once, whole, and in the order of its pair and tag.
//!
//! Each rank knows from the seed what every rank sends. It sends its messages nonblocking, in their order, and receives
//! those for it in a random order of sources and tags, some of them by wildcards.

use std::collections::{HashMap, VecDeque};

use dunlin_mpi::{MpiError, Request, Source, Tag, World};

use crate::{pattern, run};

const RANKS: usize = 3;
const MESSAGES: usize = 120;
const TAGS: u32 = 4;

/// A message: source, destination, tag, number, length.
#[derive(Clone, Copy, Debug)]
struct Planned {
    source: usize,
    dest: usize,
    tag: u32,
    number: u64,
    bytes: usize,
}

fn plan(seed: u64) -> Vec<Planned> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = |number| Planned {
        source: random.usize(..RANKS),
        dest: random.usize(..RANKS),
        tag: random.u32(..TAGS),
        number,
        bytes: match random.u8(..10) {
            0 => random.usize(..40_000),
            1 => 0,
            _ => random.usize(..1500),
        },
    };
    (0..MESSAGES as u64).map(&mut one).collect()
}

/// The messages that a rank still expects, by source and tag, each in the order of sending.
struct Expected(HashMap<(usize, u32), VecDeque<Planned>>);

impl Expected {
    /// Checks a message that has arrived: it is the first of its source and tag.
    fn check(&mut self, source: usize, tag: u32, bytes: &[u8], seed: u64) {
        let queue = self.0.get_mut(&(source, tag)).unwrap();
        let planned = queue.pop_front().unwrap();
        assert!(
            bytes == pattern(planned.number, planned.bytes),
            "seed {seed}: {planned:?} is not {} bytes from {source} with {tag}",
            bytes.len()
        );
    }
}

fn rank(world: &mut World, seed: u64) -> Result<(), MpiError> {
    let plan = plan(seed);
    let own = world.rank();
    let mut random = fastrand::Rng::with_seed(seed + 1000 * own as u64);
    let mut to_send: VecDeque<_> = plan.iter().filter(|one| one.source == own).collect();
    let mut expected = Expected(HashMap::new());
    // The receives by which all of these are taken: in this order for each source and tag.
    let mut to_receive: Vec<(usize, u32)> = Vec::new();
    for one in plan.iter().filter(|one| one.dest == own) {
        expected
            .0
            .entry((one.source, one.tag))
            .or_default()
            .push_back(*one);
        to_receive.push((one.source, one.tag));
    }
    random.shuffle(&mut to_receive);
    // The last ones are received by wildcards, which would take the messages of other receives.
    let by_wildcard = to_receive.len() / 3;
    let mut named = to_receive.split_off(by_wildcard);
    let mut sends: Vec<Request> = Vec::new();
    let mut receives: VecDeque<((usize, u32), Request)> = VecDeque::new();
    while !(to_send.is_empty() && named.is_empty() && receives.is_empty()) {
        match random.u8(..4) {
            0 | 1 if !to_send.is_empty() => {
                if let Some(one) = to_send.pop_front() {
                    let bytes = pattern(one.number, one.bytes);
                    sends.push(world.isend(one.dest, one.tag, bytes)?);
                }
            }
            2 if !named.is_empty() => {
                if let Some((source, tag)) = named.pop() {
                    let request = world.ireceive(source, tag, vec![0; 40_000])?;
                    receives.push_back(((source, tag), request));
                }
            }
            // All own messages must be under way before a rank waits for those of others.
            _ if to_send.is_empty() => {
                if let Some(((source, tag), request)) = receives.pop_front() {
                    let completed = request.wait(world)?;
                    expected.check(source, tag, &completed.buffer, seed);
                }
            }
            _ => {
                let _ = world.iprobe(Source::Any, Tag::Any)?;
            }
        }
    }
    let mut buffer = vec![0; 40_000];
    for _ in 0..by_wildcard {
        let found = world.probe(Source::Any, Tag::Any)?;
        let status = world.receive(found.source, found.tag, &mut buffer)?;
        assert_eq!(found, status);
        expected.check(status.source, status.tag, &buffer[..status.bytes], seed);
    }
    assert!(expected.0.values().all(VecDeque::is_empty), "seed {seed}");
    world.wait_all(sends)?;
    world.barrier()?;
    assert_eq!(world.iprobe(Source::Any, Tag::Any)?, None, "seed {seed}");
    Ok(())
}

#[test]
fn random_programs_do_what_the_model_does() {
    run(RANKS, |mut world| {
        for seed in 0..40 {
            rank(&mut world, seed).unwrap();
            // No rank begins the next program before all have checked that nothing is left.
            world.barrier().unwrap();
        }
        world.finalize().unwrap();
    });
}
