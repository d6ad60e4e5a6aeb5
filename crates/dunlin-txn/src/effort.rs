//! The cost of the steps of a transaction on a core: instructions, as counted, and accesses to memory that is not in
//! its caches.
//!
//! Simulated cores are charged with it; real ones are not: [`crate::server::LocalStore`] and databases opened on its
//! machines have a function to charge, others have none. The RPC below charges its own cost.
//!
//! The instructions are those that callgrind counts for `transact` of the server, and for `begin` and `take` of the
//! driver and its handling of an answer, in a release build over `shm` (`examples/instructions.rs`). The parts were
//! derived from object stores of one key and of four, read or changed: the charge for one of these transactions, and
//! for TATP, is within 8 % of the count. An item of a table costs two accesses that miss, its bucket and itself, as
//! MICA counts them, at 90 ns each, as in the lab's model of other papers' databases.

use dunlin_verbs::Work;

use crate::coordinator::Action;
use crate::wire::{Body, Response};

/// An access to memory that misses all caches.
const MISS_NS: u64 = 90;
/// Misses for an item found by its key: its bucket, and the item.
const ITEM_MISSES: u64 = 2;

/// A request at a participant, of any kind.
const REQUEST: u32 = 3600;
/// An execute request, in addition to its keys: a slot begun, an answer with items.
const EXECUTED: u32 = 820;
/// Each key that is read or compared.
const READ: u32 = 1260;
/// Each key that is locked and read.
const LOCKED: u32 = 1950;
/// Each change that is kept in the log.
const APPENDED: u32 = 500;
/// Each change that is applied as a backup.
const APPLIED: u32 = 750;
/// Each change that is installed, and its lock released.
const INSTALLED: u32 = 1300;

/// A transaction begun by its coordinator, and ended.
pub(crate) const BEGUN: Work = Work::Instructions(7000);
/// Handing an arrived result to its transaction.
pub(crate) const TOOK: Work = Work::Instructions(2600);
/// A request of a coordinator, or a one-sided operation.
const SENT: u32 = 1430;
/// Each key that it executes: requested, recorded, evaluated by the logic, compared.
const KEY: u32 = 3400;
/// Each change that goes with it.
const CHANGE: u32 = 350;

/// `count` times `each`.
fn times(count: usize, each: u32) -> u32 {
    u32::try_from(count).map_or(0, |count| count * each)
}

/// The cost of an action on its coordinator's core.
pub(crate) fn of_action(action: &Action) -> Work {
    let more = match action {
        Action::Send { request, .. } => match &request.body {
            Body::Execute { writes, reads } => times(writes.len() + reads.len(), KEY),
            Body::Replicate { append, apply } => times(append.len() + apply.len(), CHANGE),
            Body::Commit(updates) => times(updates.len(), CHANGE),
            Body::Validate(_) | Body::Release | Body::Outcome => 0,
        },
        Action::Write { items, .. } => times(items.len(), CHANGE),
        Action::Read { .. } => 0,
        // Charged with the next poll.
        Action::Report(_) => return Work::Instructions(0),
    };
    Work::Instructions(SENT + more)
}

/// Each item that a machine reads for a machine that copies, or stores as a copy (its example `copying`, items of 1000
/// bytes): found and put into a message, taken out of it and stored.
const FOUND_NS: u64 = 330;
const ENCODED_NS: u64 = 55;
const DECODED_NS: u64 = 95;
const STORED_NS: u64 = 260;

/// A part of the copying of this many items.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copying {
    Found(usize),
    Encoded(usize),
    Decoded(usize),
    Stored(usize),
}

/// The cost of a part.
pub(crate) fn of_copying(part: Copying) -> Work {
    let (items, each) = match part {
        Copying::Found(items) => (items, FOUND_NS),
        Copying::Encoded(items) => (items, ENCODED_NS),
        Copying::Decoded(items) => (items, DECODED_NS),
        Copying::Stored(items) => (items, STORED_NS),
    };
    Work::Compute(items as u64 * each)
}

/// Charges the cost of a participant's step.
pub(crate) fn of_step(body: &Body, response: &Response, charge: fn(Work)) {
    let (instructions, items) = match body {
        Body::Execute { writes, reads } => {
            // The keys behind a locked one are not accessed.
            let found = match response {
                Response::Locked { item, .. } => *item as usize + 1,
                _ => writes.len() + reads.len(),
            };
            let locked = writes.len().min(found);
            let keys = times(locked, LOCKED) + times(found - locked, READ);
            (EXECUTED + keys, found)
        }
        Body::Validate(checks) => (times(checks.len(), READ), checks.len()),
        Body::Replicate { append, apply } => {
            let kept = times(append.len(), APPENDED);
            (kept + times(apply.len(), APPLIED), apply.len())
        }
        // Items that it has locked are still in a cache.
        Body::Commit(updates) => (times(updates.len(), INSTALLED), 0),
        Body::Release | Body::Outcome => (0, 0),
    };
    charge(Work::Instructions(REQUEST + instructions));
    charge(Work::Compute(items as u64 * ITEM_MISSES * MISS_NS));
}
