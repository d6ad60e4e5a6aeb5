//! What the steps of a transaction take of a core: instructions, counted, and memory that is not in its caches.
//!
//! A simulated core is charged them; on a real one nobody asks ([`crate::server::LocalStore`] and databases that are
//! opened on its machines have where to charge, others have not). What the RPC below takes it charges itself.
//!
//! Instructions are what callgrind counts for the functions of a step in release, by `examples/transactions.rs` of
//! `dunlin-lab`. An item of a table is two accesses that miss, its bucket and itself, as MICA counts them, and 90 ns
//! each, as the lab has them for the databases of other papers; a line of the log is written where the last one was.

use dunlin_verbs::Work;

use crate::wire::{Body, Response};

/// An access to memory that no cache has.
const MISS_NS: u64 = 90;
/// An item found by its key: its bucket, and the item.
const ITEM_MISSES: u64 = 2;

/// A request at a participant, whatever it asks for: taken apart, its slot looked up, its answer made.
const REQUEST: u32 = 900;
/// Each key that is read or compared.
const READ: u32 = 420;
/// Each key that is locked and read.
const LOCKED: u32 = 640;
/// Each change that is kept in the log.
const APPENDED: u32 = 200;
/// Each change that is applied or installed.
const CHANGED: u32 = 500;

/// A transaction begun by its coordinator.
pub(crate) const BEGUN: Work = Work::Instructions(1000);
/// A request of a coordinator made, or a one-sided operation.
pub(crate) const SENT: Work = Work::Instructions(500);
/// What has come taken to its transaction.
pub(crate) const TOOK: Work = Work::Instructions(900);

/// Charges what a participant has done for a request.
pub(crate) fn of_step(body: &Body, response: &Response, charge: fn(Work)) {
    let count = |keys: usize, each: u32| u32::try_from(keys).map_or(0, |keys| keys * each);
    let (instructions, items) = match body {
        Body::Execute { writes, reads } => {
            // Where one is locked the others are not looked at.
            let found = match response {
                Response::Locked { item, .. } => *item as usize + 1,
                _ => writes.len() + reads.len(),
            };
            let locked = writes.len().min(found);
            let read = count(found - locked, READ);
            (count(locked, LOCKED) + read, found)
        }
        Body::Validate(checks) => (count(checks.len(), READ), checks.len()),
        Body::Replicate { append, apply } => {
            let kept = count(append.len() + apply.len(), APPENDED);
            (kept + count(apply.len(), CHANGED), apply.len())
        }
        // Items that it has locked are in a cache still.
        Body::Commit(updates) => (count(updates.len(), CHANGED), 0),
        Body::Release | Body::Outcome => (0, 0),
    };
    charge(Work::Instructions(REQUEST + instructions));
    charge(Work::Compute(items as u64 * ITEM_MISSES * MISS_NS));
}
