//! TATP (Neuvonen et al.): subscribers of a telephone network, in the standard mix of the benchmark's description.
use super::Workload;
use crate::logic::{Access, Logic, Once, Step, View};
use crate::server::TableSpec;
use crate::types::{Key, Value};

const SUBSCRIBER: u16 = 0;
/// Maps the subscriber's telephone number to the subscriber.
const BY_NUMBER: u16 = 1;
const ACCESS_INFO: u16 = 2;
const SPECIAL_FACILITY: u16 = 3;
const CALL_FORWARDING: u16 = 4;

/// Length of a row in bytes, as in FaSST's code.
const SUBSCRIBER_BYTES: usize = 40;
const ACCESS_INFO_BYTES: usize = 16;
const FACILITY_BYTES: usize = 8;
const FORWARDING_BYTES: usize = 16;
/// Hours at which a call forwarding begins.
const STARTS: [u64; 3] = [0, 8, 16];

/// The workload.
#[derive(Clone, Debug)]
pub struct Tatp {
    subscribers: u64,
}

impl Tatp {
    /// Creates the workload with this number of subscribers, at least one: FaSST and FLOCK have a million for each
    /// server.
    pub fn new(subscribers: u64) -> Tatp {
        Tatp {
            subscribers: subscribers.max(1),
        }
    }

    /// Draws a subscriber, with the benchmark's non-uniform distribution.
    fn subscriber(&self, random: &mut fastrand::Rng) -> u64 {
        let mask = match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        (random.u64(0..=mask) | random.u64(0..self.subscribers)) % self.subscribers
    }
}

fn number(subscriber: u64) -> Key {
    Key::number(BY_NUMBER, subscriber)
}

/// The key of a subscriber's row of one of the four types 0 to 3.
fn typed(table: u16, subscriber: u64, kind: u64) -> Key {
    Key::number(table, subscriber << 8 | kind)
}

fn forwarding(subscriber: u64, facility: u64, start: usize) -> Key {
    let kind = facility << 2 | start as u64;
    Key::number(CALL_FORWARDING, subscriber << 8 | kind)
}

/// Derives a subscriber's initial rows from a hash: one to four types, with every subset of a size equally likely.
fn has(subscriber: u64, what: u64, kind: u64) -> bool {
    let spread = Key::number(u16::MAX, subscriber << 8 | what).spread();
    let count = 1 + spread % 4;
    (kind + (spread >> 8) % 4) % 4 < count
}

fn row(bytes: usize, first: u64) -> Value {
    let mut row = vec![0; bytes];
    row[..8].copy_from_slice(&first.to_le_bytes());
    row.into()
}

fn first(view: View<'_>, key: &Key) -> Option<u64> {
    let bytes = view.value(key)?.get(..8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Whether a facility is active: 85 % are, as in the benchmark.
fn is_active(facility: u64) -> bool {
    facility % 100 < 85
}

fn reads(keys: Vec<Key>) -> Box<dyn Logic> {
    let access = Access {
        reads: keys,
        writes: Vec::new(),
    };
    Box::new(Once::new(access, |_| Step::Commit(Vec::new())))
}

/// Logic that first looks up the subscriber by telephone number, and then does the rest.
struct ByNumber<F> {
    number: Key,
    access: Option<Access>,
    asked: bool,
    then: F,
}

impl<F> std::fmt::Debug for ByNumber<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByNumber")
            .field("number", &self.number)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl<F: FnMut(View<'_>) -> Step + Send> Logic for ByNumber<F> {
    fn step(&mut self, view: View<'_>) -> Step {
        if !self.asked {
            self.asked = true;
            return Step::Access(Access {
                reads: vec![self.number.clone()],
                writes: Vec::new(),
            });
        }
        match (view.value(&self.number), self.access.take()) {
            (None, _) => Step::Abort,
            (Some(_), Some(access)) => Step::Access(access),
            (Some(_), None) => (self.then)(view),
        }
    }
}

fn by_number<F: FnMut(View<'_>) -> Step + Send + 'static>(
    subscriber: u64,
    access: Access,
    then: F,
) -> Box<dyn Logic> {
    Box::new(ByNumber {
        number: number(subscriber),
        access: Some(access),
        asked: false,
        then,
    })
}

impl Workload for Tatp {
    fn tables(&self) -> Vec<TableSpec> {
        let n = self.subscribers;
        vec![
            TableSpec::new(SUBSCRIBER, "subscriber", n, SUBSCRIBER_BYTES),
            TableSpec::new(BY_NUMBER, "subscriber-by-number", n, 8),
            TableSpec::new(ACCESS_INFO, "access-info", n * 5 / 2, ACCESS_INFO_BYTES),
            TableSpec::new(SPECIAL_FACILITY, "special-facility", n * 4, FACILITY_BYTES),
            TableSpec::new(CALL_FORWARDING, "call-forwarding", n * 5, FORWARDING_BYTES),
        ]
    }

    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_> {
        Box::new((0..self.subscribers).flat_map(|s| {
            let mut rows = vec![
                (Key::number(SUBSCRIBER, s), row(SUBSCRIBER_BYTES, s)),
                (number(s), row(8, s)),
            ];
            for kind in 0..4 {
                if has(s, 0, kind) {
                    rows.push((typed(ACCESS_INFO, s, kind), row(ACCESS_INFO_BYTES, s)));
                }
                if has(s, 1, kind) {
                    let active = Key::number(u16::MAX, s << 8 | 2 << 4 | kind).spread() % 100;
                    rows.push((
                        typed(SPECIAL_FACILITY, s, kind),
                        row(FACILITY_BYTES, active),
                    ));
                    for (start, hour) in STARTS.iter().enumerate() {
                        // Zero to three of them.
                        if has(s << 2 | kind, 3, start as u64 + 1) {
                            let end = hour + 8;
                            rows.push((forwarding(s, kind, start), row(FORWARDING_BYTES, end)));
                        }
                    }
                }
            }
            rows
        }))
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic> {
        self.draw(random).logic()
    }
}

/// A transaction of the workload, for callers that do not execute it through its [`Logic`]. Facilities and kinds of
/// access have the four types 0 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TatpTransaction {
    /// Reads a subscriber's row.
    GetSubscriber(u64),
    /// Reads a row of a subscriber's access information.
    GetAccess(u64, u64),
    /// Reads a facility, and the call forwardings that begin at or before this start.
    GetDestination(u64, u64, usize),
    /// Changes a subscriber and a facility, if the facility exists.
    UpdateSubscriber {
        /// The subscriber.
        subscriber: u64,
        /// The facility.
        facility: u64,
        /// The new value for the subscriber's row.
        bit: u64,
        /// The new value for the facility's row.
        data: u64,
    },
    /// Changes the location of a subscriber, who is identified by telephone number.
    UpdateLocation(u64, u64),
    /// Inserts a call forwarding, if the facility is active and it does not exist.
    InsertForwarding(u64, u64, usize),
    /// Deletes a call forwarding, if it exists.
    DeleteForwarding(u64, u64, usize),
}

impl Tatp {
    /// Draws the next transaction, by the mix of the benchmark.
    pub fn draw(&self, random: &mut fastrand::Rng) -> TatpTransaction {
        let s = self.subscriber(random);
        let kind = random.u64(0..4);
        let start = random.usize(0..STARTS.len());
        match random.u8(0..100) {
            0..35 => TatpTransaction::GetSubscriber(s),
            35..70 => TatpTransaction::GetAccess(s, kind),
            70..80 => TatpTransaction::GetDestination(s, kind, start),
            80..82 => TatpTransaction::UpdateSubscriber {
                subscriber: s,
                facility: kind,
                bit: random.u64(..),
                data: random.u64(0..100),
            },
            82..96 => TatpTransaction::UpdateLocation(s, random.u64(..)),
            96..98 => TatpTransaction::InsertForwarding(s, kind, start),
            _ => TatpTransaction::DeleteForwarding(s, kind, start),
        }
    }
}

impl TatpTransaction {
    /// The logic that executes the transaction.
    pub fn logic(self) -> Box<dyn Logic> {
        match self {
            TatpTransaction::GetSubscriber(s) => reads(vec![Key::number(SUBSCRIBER, s)]),
            TatpTransaction::GetAccess(s, kind) => reads(vec![typed(ACCESS_INFO, s, kind)]),
            TatpTransaction::GetDestination(s, kind, start) => {
                let facility = typed(SPECIAL_FACILITY, s, kind);
                let forwardings = (0..=start).map(|start| forwarding(s, kind, start));
                reads(std::iter::once(facility).chain(forwardings).collect())
            }
            TatpTransaction::UpdateSubscriber {
                subscriber,
                facility,
                bit,
                data,
            } => update_subscriber(subscriber, facility, bit, data),
            TatpTransaction::UpdateLocation(s, location) => {
                let subscriber = Key::number(SUBSCRIBER, s);
                let access = writes(&[(&subscriber, SUBSCRIBER_BYTES)]);
                by_number(s, access, move |_| {
                    let row = row(SUBSCRIBER_BYTES, location);
                    Step::Commit(vec![(subscriber.clone(), Some(row))])
                })
            }
            TatpTransaction::InsertForwarding(s, kind, start) => insert_forwarding(s, kind, start),
            TatpTransaction::DeleteForwarding(s, kind, start) => {
                let row_key = forwarding(s, kind, start);
                let access = writes(&[(&row_key, FORWARDING_BYTES)]);
                by_number(s, access, move |view| match view.value(&row_key) {
                    Some(_) => Step::Commit(vec![(row_key.clone(), None)]),
                    None => Step::Abort,
                })
            }
        }
    }
}

fn writes(keys: &[(&Key, usize)]) -> Access {
    let write = |&(key, bytes): &(&Key, usize)| (key.clone(), bytes as u32);
    Access {
        reads: Vec::new(),
        writes: keys.iter().map(write).collect(),
    }
}

fn update_subscriber(s: u64, kind: u64, bit: u64, data: u64) -> Box<dyn Logic> {
    let (subscriber, facility) = (Key::number(SUBSCRIBER, s), typed(SPECIAL_FACILITY, s, kind));
    let keys = [(&subscriber, SUBSCRIBER_BYTES), (&facility, FACILITY_BYTES)];
    Box::new(Once::new(writes(&keys), move |view| {
        if view.value(&facility).is_none() {
            return Step::Abort;
        }
        Step::Commit(vec![
            (subscriber.clone(), Some(row(SUBSCRIBER_BYTES, bit))),
            (facility.clone(), Some(row(FACILITY_BYTES, data))),
        ])
    }))
}

fn insert_forwarding(s: u64, kind: u64, start: usize) -> Box<dyn Logic> {
    let (facility, row_key) = (typed(SPECIAL_FACILITY, s, kind), forwarding(s, kind, start));
    let access = Access {
        reads: vec![facility.clone()],
        ..writes(&[(&row_key, FORWARDING_BYTES)])
    };
    by_number(s, access, move |view| {
        let active = first(view, &facility).is_some_and(is_active);
        if !active || view.value(&row_key).is_some() {
            return Step::Abort;
        }
        let row = row(FORWARDING_BYTES, STARTS[start] + 8);
        Step::Commit(vec![(row_key.clone(), Some(row))])
    })
}
