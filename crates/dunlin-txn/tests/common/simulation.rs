//! What the simulated clusters have in common: seeds with what each of them runs, virtual time, and messages that are
//! bytes on their way.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::ops::Range;

use dunlin_txn::wire::{Answer, Request};
use dunlin_txn::workload::{Random, SmallBank, Workload};
use dunlin_txn::{Mistake, Protocol};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// From `DUNLIN_TXN_SEED` on, as many as `DUNLIN_TXN_SEEDS` says.
pub fn seeds(count: u64) -> Range<u64> {
    let first = number("DUNLIN_TXN_SEED", 0);
    first..first + number("DUNLIN_TXN_SEEDS", count)
}

/// How to see a seed again.
pub fn again(protocol: Protocol, seed: u64) -> String {
    let name = protocol.name;
    format!("{name}, DUNLIN_TXN_SEED={seed} DUNLIN_TXN_SEEDS=1")
}

/// The headers of a seed's stores, which every other run has fewer of than keys, and what its coordinators do.
pub fn shape(seed: u64) -> (usize, Box<dyn Workload>) {
    let headers = if seed % 4 < 2 { 7 } else { 4096 };
    match seed % 2 {
        0 => (headers, Box::new(Random::new(16))),
        _ => (headers, Box::new(SmallBank::new(8))),
    }
}

/// The first seed of so many by which a mistake is found; it is an error when there is none.
pub fn finds(
    mistake: Mistake,
    protocol: Protocol,
    count: u64,
    is_found: impl FnMut(&u64) -> bool,
) -> u64 {
    let name = protocol.name;
    let found = seeds(count).find(is_found);
    let seed = found.unwrap_or_else(|| panic!("{mistake:?} in {name} was not found"));
    println!("{mistake:?} in {name}: seed {seed}");
    seed
}

/// What is to happen, in the order of virtual microseconds, and the chance that decides it.
pub struct Timeline<H> {
    pub random: fastrand::Rng,
    pub now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), H>,
}

impl<H> Timeline<H> {
    pub fn new(random: fastrand::Rng) -> Self {
        Self {
            random,
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
        }
    }

    pub fn later(&mut self, delay: u64, happening: H) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), happening);
    }

    /// How long a message takes: short, and now and then very long.
    pub fn delay(&mut self) -> u64 {
        let tail = self.random.u8(..) < 8;
        self.random.u64(1..if tail { 2000 } else { 40 })
    }

    /// Goes on to what happens next.
    pub fn next(&mut self) -> Option<H> {
        let ((now, _), happening) = self.queue.pop_first()?;
        self.now = now;
        Some(happening)
    }

    /// How much has been put there so far.
    pub fn count(&self) -> u64 {
        self.order
    }
}

/// A request as it arrives.
pub fn sent(request: &Request) -> Request {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    Request::decode(&bytes).expect("a request")
}

/// An answer as it arrives.
pub fn answered(answer: &Answer) -> Answer {
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    Answer::decode(&bytes).expect("an answer")
}
