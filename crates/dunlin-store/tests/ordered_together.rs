//! Several threads on one ordered store: whatever they do at once, there is an order of it in which an ordered map
//! answers the same (linearizability, for each key; a scan is a look at each key that it could have shown).
//!
//! `DUNLIN_ORDERED_CASES` says how many cases (32). A key that enters the index after the store is found by these, one
//! that leaves it before the store by some hundred: threads must meet within nanoseconds.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use common::{scan, store, ShmStore};
use proptest::prelude::*;

const THREADS: usize = 3;
/// In order. Few, so that all threads want each; some stand in the index's nodes and some do not.
const KEYS: [&[u8]; 3] = [b"", b"a", b"a key that is too long for a node"];
/// How often each thread takes its steps: once is over before another thread has a core.
const ROUNDS: usize = 60;
/// Values that are changed in place, and one that never is.
const VALUE_BYTES: [usize; 3] = [4, 700, 5_000];

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    Get(usize),
    Scan(usize, usize),
}

/// What an operation did to one key, and what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    /// Put this value; whether there was one before.
    Put(u32, bool),
    /// Whether there was one to delete.
    Deleted(bool),
    /// Saw this value, or none.
    Saw(Option<u32>),
}

/// One operation on one key, between two readings of a clock that all threads share.
#[derive(Clone, Copy, Debug)]
struct Event {
    began: u64,
    ended: u64,
    did: Did,
}

impl Event {
    /// What the key has afterwards, if it was so before; `None` where the operation cannot have said what it did.
    fn follows(&self, before: Option<u32>) -> Option<Option<u32>> {
        let (possible, after) = match self.did {
            Did::Put(value, replaced) => (replaced == before.is_some(), Some(value)),
            Did::Deleted(existed) => (existed == before.is_some(), None),
            Did::Saw(value) => (value == before, before),
        };
        possible.then_some(after)
    }
}

/// The events of one key, a list for each thread, each in its thread's order.
type History = Vec<Vec<Event>>;

/// Whether some order of the events, in which none comes before one that had ended when it began, is that of a map.
fn has_an_order(history: &History) -> bool {
    let mut open = vec![(vec![0; history.len()], None)];
    let mut seen = HashSet::new();
    while let Some((done, value)) = open.pop() {
        let next = |thread: usize| history[thread].get::<usize>(done[thread]);
        let pending: Vec<_> = (0..history.len()).filter_map(next).collect();
        let Some(first_end) = pending.iter().map(|event| event.ended).min() else {
            return true;
        };
        for thread in 0..history.len() {
            let Some(event) = next(thread).filter(|event| event.began < first_end) else {
                continue;
            };
            if let Some(after) = event.follows(value) {
                let mut done = done.clone();
                done[thread] += 1;
                if seen.insert((done.clone(), after)) {
                    open.push((done, after));
                }
            }
        }
    }
    false
}

/// The number that all four-byte words of a value have.
fn number(value: &[u8]) -> u32 {
    let first = value.first_chunk().copied().map(u32::from_le_bytes);
    let number = first.expect("a value has four bytes at least");
    let whole = value.chunks(4).all(|word| word == number.to_le_bytes());
    assert!(whole, "a value that nobody put");
    number
}

/// A thread's hand on the store.
struct Hand<'a> {
    store: &'a ShmStore,
    clock: &'a AtomicU64,
    /// Of each key.
    events: Vec<Vec<Event>>,
    /// That was put last.
    put: u32,
}

impl Hand<'_> {
    fn run(&mut self, step: Step) {
        let name = |at: usize| self.store.store().key(KEYS[at]).unwrap();
        let began = self.clock.fetch_add(1, Ordering::SeqCst);
        let did: Vec<(usize, Did)> = match step {
            Step::Put(key, length) => {
                self.put += THREADS as u32;
                let value = self.put.to_le_bytes().repeat(VALUE_BYTES[length] / 4);
                let replaced = self.store.put(&name(key), &value).unwrap();
                vec![(key, Did::Put(self.put, replaced))]
            }
            Step::Delete(key) => vec![(key, Did::Deleted(self.store.delete(&name(key))))],
            Step::Get(key) => {
                let mut value = Vec::new();
                let Ok(found) = self.store.store().get(&name(key), &mut value);
                vec![(key, Did::Saw(found.then(|| number(&value))))]
            }
            Step::Scan(first, most) => shown(&scan(self.store, KEYS[first], most), first, most),
        };
        let ended = self.clock.fetch_add(1, Ordering::SeqCst);
        for (key, did) in did {
            self.events[key].push(Event { began, ended, did });
        }
    }
}

/// What a scan says of the keys that it passed.
fn shown(entries: &[(Vec<u8>, Vec<u8>)], first: usize, most: usize) -> Vec<(usize, Did)> {
    let place = |name: &[u8]| KEYS.iter().position(|key| *key == name);
    let found: Vec<_> = entries
        .iter()
        .map(|(key, value)| (place(key).expect("a key that was put"), number(value)))
        .collect();
    let ordered = found.is_sorted_by(|one, next| one.0 < next.0);
    assert!(
        ordered && found.iter().all(|one| one.0 >= first),
        "{found:?}"
    );
    // One that has shown all it may says nothing of what is behind.
    let end = match found.last() {
        Some((last, _)) if found.len() == most => last + 1,
        _ => KEYS.len(),
    };
    let value = |key| found.iter().find(|one| one.0 == key).map(|one| one.1);
    (first..end)
        .map(|key| (key, Did::Saw(value(key))))
        .collect()
}

/// Runs each thread's steps at once, then looks at all keys; the histories of the keys.
fn histories(steps: &[Vec<Step>; THREADS]) -> Vec<History> {
    let (store, clock, ready) = (
        store(100, 1 << 20),
        AtomicU64::new(0),
        AtomicUsize::new(THREADS),
    );
    let hand = |put| Hand {
        store: &store,
        clock: &clock,
        events: vec![Vec::new(); KEYS.len()],
        put,
    };
    let mut by_thread = std::thread::scope(|scope| {
        let threads = steps.iter().enumerate().map(|(thread, steps)| {
            let (mut hand, ready) = (hand(thread as u32), &ready);
            scope.spawn(move || {
                // They begin together, as well as two cores can.
                ready.fetch_sub(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) > 0 {
                    std::thread::yield_now();
                }
                for _ in 0..ROUNDS {
                    steps.iter().for_each(|step| hand.run(*step));
                }
                hand.events
            })
        });
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect::<Vec<_>>()
    });
    let mut last = hand(0);
    (0..KEYS.len()).for_each(|key| last.run(Step::Get(key)));
    last.run(Step::Scan(0, KEYS.len() + 1));
    by_thread.push(last.events);
    let of_key = |key: usize| by_thread.iter().map(|events| events[key].clone()).collect();
    (0..KEYS.len()).map(of_key).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    prop_oneof![
        3 => (key.clone(), 0..VALUE_BYTES.len()).prop_map(|(key, length)| Step::Put(key, length)),
        2 => key.clone().prop_map(Step::Delete),
        2 => key.clone().prop_map(Step::Get),
        3 => (key, 1..KEYS.len() + 2).prop_map(|(first, most)| Step::Scan(first, most)),
    ]
}

fn cases() -> u32 {
    std::env::var("DUNLIN_ORDERED_CASES").map_or(32, |text| text.parse().unwrap())
}

proptest! {
    // Threads meet otherwise when a case is run again: there is nothing to shrink by.
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn threads_see_one_ordered_map(
        steps in prop::array::uniform3(prop::collection::vec(step(), 10..200)),
    ) {
        for (key, history) in histories(&steps).iter().enumerate() {
            prop_assert!(has_an_order(history), "key {key}: {history:?}");
        }
    }
}

/// What the property would say of a store that is not one.
#[test]
fn what_no_map_says_has_no_order() {
    let event = |began, ended, did| Event { began, ended, did };
    let put = event(0, 3, Did::Put(7, false));
    // Both while it was put.
    let before = vec![event(1, 2, Did::Saw(None)), event(4, 5, Did::Saw(Some(7)))];
    assert!(has_an_order(&vec![vec![put], before]));
    let stale = vec![event(4, 5, Did::Saw(None))];
    assert!(!has_an_order(&vec![vec![put], stale]));
    let back_again = vec![event(1, 2, Did::Saw(Some(7))), event(3, 4, Did::Saw(None))];
    assert!(!has_an_order(&vec![vec![put], back_again]));
    let never_put = vec![event(1, 2, Did::Saw(Some(8)))];
    assert!(!has_an_order(&vec![vec![put], never_put]));
    let both_first = vec![event(1, 2, Did::Put(8, false))];
    assert!(!has_an_order(&vec![vec![put], both_first]));
    let deleted_twice = vec![
        event(4, 5, Did::Deleted(true)),
        event(6, 7, Did::Deleted(true)),
    ];
    assert!(!has_an_order(&vec![vec![put], deleted_twice]));
}
