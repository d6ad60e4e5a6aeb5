//! The message pool (ScaleRPC §3): each message has a block of its own in memory that its receiver polls, and answers
//! come back to a block of the same number.
//!
//! At the server a *zone* of [`BLOCKS`] blocks stands for each client that is being served. With static mapping
//! (`rawwrite`) it is the client's own, for as long as the connection lasts. With virtualized mapping (`scalerpc`) a
//! zone of a pool that all clients share is a client's for a *turn*, while its group is served. Before its turn a
//! client leaves its requests in its own memory and says so in its *endpoint entry*; the server READs them into the
//! zone (warm-up). In its turn it WRITEs new ones there itself.
//!
//! So a WRITE or a READ may be late: it lands in a zone that is another client's by then, on top of its messages even.
//! Nothing prevents that, and nothing needs to:
//! - A message is *sealed* ([`block`]): its last word is a keyed sum over all of it and its block, under a secret of
//!   the one connection. What is torn, of another client, or only half there is no message.
//! - It carries the number of the turn that it was written in; the server takes it in that turn alone.
//! - When a turn ends, what was not answered and is not known to be in a worker's hands is left in the client's memory
//!   again, for the next warm-up. So what a late WRITE has hit, or what came late itself, is not lost.
//! - A call's slot and generation are taken once, so what is fetched again is not executed again.
//!
//! With `selfrpc` the zone is the client's own as well, and requests are WRITEs with immediate: the completion of a
//! RECEIVE says whose they are and where, so the server polls one completion queue for all such clients and none of
//! their blocks.
//!
//! Where the peer's memory is mapped here ([`dunlin_verbs::PeerMemory`]) the last step of a message is a store, in
//! place of a WRITE that is posted: the bytes and the places are the same.
//!
//! This also makes no demand on the order in which a device places the bytes of a WRITE.

mod batch;
pub(crate) mod block;
mod client;
mod connect;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
pub(crate) mod scan;
mod server;
#[cfg(all(test, not(loom)))]
mod stored_tests;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;

pub(crate) use client::PoolChannel;
pub(crate) use connect::{Notifications, PoolMemory, UnconnectedPool, UnconnectedServedPool};
pub(crate) use server::ServedPool;

/// Whose a zone is, and how a server finds what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// A client's for a turn; its blocks are polled (`scalerpc`).
    ByTurns,
    /// A client's for good; its blocks are polled (`rawwrite`).
    Polled,
    /// A client's for good. Each request is a WRITE with immediate, which tells its block by a completion; no block is
    /// polled (`selfrpc`).
    Notified,
}

/// Blocks of a zone.
pub(crate) const BLOCKS: usize = 32;
/// Those of calls; a call's number in its lane is its block. Words that are no calls have the others.
pub(crate) const CALLS: usize = 24;
/// Requests that a server fetches by one READ.
const BUNDLE: usize = 8;
/// Bytes of the longest message that is fetched so: messages of a batch stand one behind the other as well, each in a
/// slot as long as the longest.
const SLOT_BYTES: usize = 256;
/// The block in a client's inlet for words about its turn.
const EVENT: usize = BLOCKS;
/// Longest payload in a block, whatever the settings say: pools are for short messages.
const CAPACITY_MAX: usize = 16 << 10;
/// Bytes of an endpoint entry, with the control words behind it.
pub(crate) const ENTRY_BYTES: usize = 128;
/// Offset in the server's inlet of the word of the entry.
const ENTRY_AT: usize = 0;
/// Offset in a client's inlet of the answers; a page, so that lines are cache lines.
const ANSWERS_AT: usize = 4096;
/// In the immediate of a client that is heard by completions: the word of its entry, in place of a block.
pub(crate) const ENTRY_NOTICE: u32 = 0xff;
/// RECEIVEs of such a client: each block has one message out at most, and there are the word of its entry and wake-ups.
pub(crate) const NOTIFICATIONS: usize = BLOCKS + 8;
/// Every block of a zone.
const ALL: u32 = u32::MAX;

/// Bytes of blocks for payloads of up to `eager` bytes: whole cache lines, and an odd number of them, so that the words
/// that are polled do not all fall into the same set of a cache.
pub(crate) fn block_bytes(eager: usize) -> usize {
    let lines = (capacity(eager) + block::TAIL_BYTES).div_ceil(64);
    (lines | 1) * 64
}

/// Longest payload in a block of a side with this setting.
pub(crate) fn capacity(eager: usize) -> usize {
    eager.min(CAPACITY_MAX)
}

/// Bytes of a zone with such blocks.
pub(crate) fn zone_bytes(eager: usize) -> usize {
    BLOCKS * block_bytes(eager)
}

/// Whether messages of an endpoint entry stand one behind the other, to be fetched together (ScaleRPC §3.4's
/// `<req_addr, batch_size>`).
fn are_bundled(lines: u16, blocks: u32) -> bool {
    blocks.count_ones() > 1 && usize::from(lines) * 64 <= SLOT_BYTES
}

/// The places of the set bits.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        place
    })
}
