//! A load that moves money between accounts of a database whose machines fail, and what its clients saw.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dunlin_txn::membership::Role;
use dunlin_txn::{AsyncTransaction, Database, DatabaseError, Outcome, Table, Transaction};
use dunlin_verbs::thread::block_on;

pub const LEASE: Duration = Duration::from_secs(1);
/// No step takes so long; a hang does.
pub const BOUND: Duration = Duration::from_secs(120);

/// What a client of the load saw.
#[derive(Default)]
pub struct Seen {
    pub acknowledged: i64,
    pub unknown: i64,
    pub others: Vec<String>,
}

type Tables<'t> = (&'t Table<u64, i64>, &'t Table<u64, i64>);

fn blocking(
    t: &mut Transaction,
    (accounts, counters): Tables<'_>,
    (from, to, amount): (u64, u64, i64),
    client: u64,
) -> Result<(), DatabaseError> {
    let left = t.get(accounts, &from)?.unwrap_or(0) - amount;
    t.put(accounts, &from, &left)?;
    let sum = t.get(accounts, &to)?.unwrap_or(0) + amount;
    t.put(accounts, &to, &sum)?;
    let count = t.get(counters, &client)?.unwrap_or(0) + 1;
    t.put(counters, &client, &count)
}

async fn waiting(
    t: AsyncTransaction,
    (accounts, counters): Tables<'_>,
    (from, to, amount): (u64, u64, i64),
    client: u64,
) -> Result<(), DatabaseError> {
    let left = t.get(accounts, &from).await?.unwrap_or(0) - amount;
    t.put(accounts, &from, &left)?;
    let sum = t.get(accounts, &to).await?.unwrap_or(0) + amount;
    t.put(accounts, &to, &sum)?;
    let count = t.get(counters, &client).await?.unwrap_or(0) + 1;
    t.put(counters, &client, &count)
}

/// Moves money from one account to another until it is `over`, and counts in the same transaction how often; every
/// other client by futures. `committed` is told of each that did at once.
pub fn transfers(
    database: &Database,
    client: u64,
    (accounts, amounts): (u64, Range<i64>),
    over: &AtomicBool,
    mut committed: impl FnMut(),
) -> Seen {
    let table: Table<u64, i64> = database.table("accounts").unwrap();
    let counters: Table<u64, i64> = database.table("counters").unwrap();
    let mut random = fastrand::Rng::with_seed(client);
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        let (from, to) = (random.u64(0..accounts), random.u64(0..accounts));
        let amount = random.i64(amounts.clone());
        let tables = (&table, &counters);
        let moved = match client % 2 {
            0 => database.run(|t| blocking(t, tables, (from, to, amount), client)),
            _ => block_on(database.run_async(|t| waiting(t, tables, (from, to, amount), client))),
        };
        match moved {
            Ok(()) => {
                seen.acknowledged += 1;
                committed();
            }
            Err(DatabaseError::UnknownOutcome { transaction, .. }) => {
                match database.outcome(transaction, LEASE * 5) {
                    Outcome::Committed => seen.acknowledged += 1,
                    _ => seen.unknown += 1,
                }
            }
            Err(error) => seen.others.push(error.to_string()),
        }
    }
    seen
}

/// The load ends also when a step fails.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < BOUND, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether all machines are whole members, as the clients know.
pub fn is_whole(database: &Database) -> bool {
    let known = database.configuration().unwrap();
    let mut members = known.members.iter();
    members.all(|member| member.role == Role::Whole)
}
