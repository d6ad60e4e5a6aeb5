//! A load of transactions: on Dunlin's database through a driver, on Redis and PostgreSQL through a socket.

mod ours;
pub mod postgres;
pub mod redis;
mod tally;

use std::time::Duration;

use dunlin::txn::workload::{SmallBank, SmallBankTransaction, Tatp, TatpTransaction};
use dunlin::txn::{Key, Value};

pub use ours::{measure as measure_ours, Load as OurLoad};
pub use tally::Tally;

use crate::clock::now_ns;
use crate::commands::Failure;
use crate::interrupt;

/// A transaction of a load that the competitors can execute.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {
    /// Of SmallBank.
    SmallBank(SmallBankTransaction),
    /// Of TATP.
    Tatp(TatpTransaction),
}

/// A load that the competitors can execute, drawn in the same way.
#[derive(Clone, Debug)]
pub enum Draws {
    /// SmallBank.
    SmallBank(SmallBank),
    /// TATP.
    Tatp(Tatp),
}

impl Draws {
    /// The load of this name, if the competitors can execute it.
    pub fn named(name: &str, rows: u64) -> Option<Self> {
        match name {
            "smallbank" => Some(Self::SmallBank(SmallBank::new(rows))),
            "tatp" => Some(Self::Tatp(Tatp::new(rows))),
            _ => None,
        }
    }

    fn next(&self, random: &mut fastrand::Rng) -> Drawn {
        match self {
            Self::SmallBank(load) => Drawn::SmallBank(load.draw(random)),
            Self::Tatp(load) => Drawn::Tatp(load.draw(random)),
        }
    }

    /// The initial rows: table, key and value.
    fn rows(&self) -> Box<dyn Iterator<Item = (usize, u64, Value)> + '_> {
        use dunlin::txn::workload::Workload;
        let load: &dyn Workload = match self {
            Self::SmallBank(load) => load,
            Self::Tatp(load) => load,
        };
        let number = |key: &Key| key.bytes().try_into().map_or(0, u64::from_be_bytes);
        let rows = load.load();
        Box::new(rows.map(move |(key, value)| (usize::from(key.table()), number(&key), value)))
    }
}

/// The number that a row begins with: an account's balance, or a subscriber.
fn first(value: &[u8]) -> u64 {
    let bytes = value.get(..8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// A row that begins with this number, in the load's layout.
fn row<const BYTES: usize>(first: u64) -> [u8; BYTES] {
    let mut row = [0; BYTES];
    row[..8].copy_from_slice(&first.to_le_bytes());
    row
}

/// The key of a row of one of a subscriber's four types.
fn typed(subscriber: u64, kind: u64) -> u64 {
    subscriber << 8 | kind
}

/// The key of a call forwarding.
fn forwarding(subscriber: u64, facility: u64, start: usize) -> u64 {
    typed(subscriber, facility << 2 | start as u64)
}

/// What a call forwarding that is inserted ends with.
fn ends(start: usize) -> u64 {
    (start as u64 + 1) * 8
}

/// How a transaction has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has committed.
    Committed,
    /// Ended without effect by its own decision.
    Declined,
    /// Aborted because of others.
    Aborted,
    /// Ended in any other way.
    Failed(String),
}

/// Executes several transactions at once, and reports their outcomes in any order.
pub trait Engine: Send {
    /// Begins one, now or with the next wait.
    ///
    /// # Errors
    /// When the connection is lost.
    fn submit(&mut self, transaction: &Drawn, began: u64) -> Result<(), Failure>;
    /// The number of transactions that have not ended.
    fn outstanding(&self) -> usize;
    /// Waits until at least one transaction ends.
    ///
    /// # Errors
    /// When the connection is lost, or nothing ends.
    fn wait(&mut self, take: &mut dyn FnMut(u64, Outcome)) -> Result<(), Failure>;
}

/// Runs one thread's part on a competitor's engine: `transactions` at once for as long as `limit`. Nothing runs
/// afterwards.
///
/// # Errors
/// Of the engine.
pub fn measure_theirs(
    engine: &mut dyn Engine,
    draws: &Draws,
    transactions: usize,
    limit: Duration,
) -> Result<Tally, Failure> {
    let mut random = fastrand::Rng::new();
    let mut tally = Tally::default();
    let (start, limit) = (now_ns(), limit.as_nanos() as u64);
    let mut now = start;
    while now - start < limit && !interrupt::came() {
        while engine.outstanding() < transactions {
            engine.submit(&draws.next(&mut random), now)?;
        }
        engine.wait(&mut |began, outcome| tally.ended(began, outcome))?;
        now = now_ns();
    }
    tally.elapsed_ns = now - start;
    while engine.outstanding() > 0 {
        engine.wait(&mut |_, _| ())?;
    }
    Ok(tally)
}
