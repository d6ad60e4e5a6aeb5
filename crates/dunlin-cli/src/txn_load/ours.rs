//! Dunlin's database, through a driver.

use std::time::Duration;

use dunlin::txn::Database;

use super::Tally;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::interrupt;
use crate::services::store::workload;

/// Time limit for the last transactions to end.
const ENDING_NS: u64 = 3_000_000_000;

/// The load to run.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// Customers, subscribers or keys.
    pub rows: u64,
    /// Transactions in flight.
    pub transactions: u16,
}

/// One thread's part.
///
/// # Errors
/// When the database has no driver for it.
pub fn measure(
    load: Load<'_>,
    database: &Database,
    limit: Duration,
    progress: impl Fn(f64),
) -> Result<Tally, Failure> {
    let mut driver = database.driver(load.transactions).map_err(Failure::new)?;
    let mut work = workload(load.workload, load.rows)?;
    let mut random = fastrand::Rng::new();
    let mut tally = Tally {
        replaces: database.configuration().is_some(),
        ..Tally::default()
    };
    let limit = limit.as_nanos() as u64;
    let start = now_ns();
    let mut now = start;
    let mut polls = 0_u32;
    while now - start < limit {
        while driver.free() > 0 {
            driver.begin(now, work.next(&mut random));
        }
        let busy = driver.poll(|began, _, report| tally.take(began, report));
        polls = polls.wrapping_add(1);
        if busy || polls % 16 == 0 {
            now = now_ns();
        }
        if polls % 4096 == 0 {
            progress((now - start) as f64 / limit as f64);
            if interrupt::came() {
                break;
            }
        }
        if !busy {
            driver.rest();
        }
    }
    tally.elapsed_ns = now_ns() - start;
    // Transactions in flight end, but no longer count.
    let end = now_ns();
    while driver.running() > 0 && now_ns() - end < ENDING_NS {
        if !driver.poll(|_, _, report| tally.settle(&report)) {
            driver.rest();
        }
    }
    if tally.unknown > 0 {
        tally.errors += tally.unknown;
        let words = "unknown whether they have committed";
        tally.last_error.get_or_insert_with(|| words.to_owned());
    }
    Ok(tally)
}
