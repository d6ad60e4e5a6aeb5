//! The message pool (ScaleRPC §3): each message has a block of its own in memory that its receiver polls, and responses
//! are written to a block of the same number.
//!
//! At the server there is a *zone* of [`BLOCKS`] blocks for each client being served. With static mapping (`rawwrite`)
//! it belongs to the client for as long as the connection lasts. With virtualized mapping (`scalerpc`) a zone of a pool
//! that all clients share belongs to a client for a *turn*, while its group is served. Before its turn a client keeps
//! its requests in its own memory and announces them in its *endpoint entry*; the server READs them into the zone
//! (warm-up). During its turn it WRITEs new ones there itself.
//!
//! So a WRITE or a READ may be late: it arrives in a zone that belongs to another client by then, even on top of that
//! client's messages. Nothing prevents that, and nothing needs to:
//! - A message is *sealed* ([`block`]): its last word is a keyed sum over all of it and its block, under a secret of
//!   the one connection. A message that is torn, incomplete or of another client is invalid.
//! - It carries the number of the turn that it was written in; the server accepts it in that turn only.
//! - When a turn ends, calls that were not answered and are not known to be with a worker remain in the client's memory
//!   for the next warm-up. So messages that were overwritten by a late WRITE, or were late themselves, are not lost.
//! - A call's slot and generation are accepted once, so a request that is fetched again is not executed again.
//!
//! With `selfrpc` the client also has a zone of its own, and requests are WRITEs with immediate: the completion of a
//! RECEIVE identifies client and block, so the server polls one completion queue for all such clients and none of their
//! blocks.
//!
//! Where the peer's memory is mapped here ([`dunlin_verbs::PeerMemory`]), a message is transferred by a store instead
//! of a posted WRITE: the bytes and the positions are the same.
//!
//! None of this requires a device to place the bytes of a WRITE in order.

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
pub(crate) use connect::{Notifications, PoolMemory};
pub(crate) use server::ServedPool;

/// Which client a zone belongs to, and how a server finds messages in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// It belongs to a client for a turn; its blocks are polled (`scalerpc`).
    ByTurns,
    /// It belongs to one client permanently; its blocks are polled (`rawwrite`).
    Polled,
    /// It belongs to one client permanently. Each request is a WRITE with immediate, whose completion states the block;
    /// no block is polled (`selfrpc`).
    Notified,
}

/// Number of blocks of a zone.
pub(crate) const BLOCKS: usize = 32;
/// Number of blocks for calls; a call's number in its lane is its block. Control messages use the others.
pub(crate) const CALLS: usize = 24;
/// Maximum number of requests that a server fetches by one READ.
const BUNDLE: usize = 8;
/// Maximum size in bytes of messages fetched in this way: the messages of a batch are also kept contiguously, each in a
/// slot of the size of the longest.
const SLOT_BYTES: usize = 256;
/// The block in a client's inlet for turn messages.
const EVENT: usize = BLOCKS;
/// Maximum length of a payload in a block, whatever the settings: pools are for short messages.
const CAPACITY_MAX: usize = 16 << 10;
/// Size in bytes of an endpoint entry, including the control words after it.
pub(crate) const ENTRY_BYTES: usize = 128;
/// Offset in the server's inlet of the word of the entry.
const ENTRY_AT: usize = 0;
/// Offset in a client's inlet of the responses; one page, so that lines are cache lines.
const ANSWERS_AT: usize = 4096;
/// In the immediate of a client of `selfrpc`, in place of a block: announces the word of its entry.
pub(crate) const ENTRY_NOTICE: u32 = 0xff;
/// Number of RECEIVEs for such a client: each block has at most one message in flight, and there are the word of its
/// entry and wake-ups.
pub(crate) const NOTIFICATIONS: usize = BLOCKS + 8;
/// Every block of a zone.
const ALL: u32 = u32::MAX;

/// Size of blocks for payloads of up to `eager` bytes: whole cache lines, and an odd number of them, so that the words
/// that are polled are not all in the same set of a cache.
pub(crate) fn block_bytes(eager: usize) -> usize {
    let lines = (capacity(eager) + block::TAIL_BYTES).div_ceil(64);
    (lines | 1) * 64
}

/// Maximum length of a payload in a block of a side with this setting.
pub(crate) fn capacity(eager: usize) -> usize {
    eager.min(CAPACITY_MAX)
}

/// Size of a zone with such blocks, in bytes.
pub(crate) fn zone_bytes(eager: usize) -> usize {
    BLOCKS * block_bytes(eager)
}

/// Whether messages of an endpoint entry are contiguous, to be fetched together (ScaleRPC §3.4's
/// `<req_addr, batch_size>`).
fn are_bundled(lines: u16, blocks: u32) -> bool {
    blocks.count_ones() > 1 && usize::from(lines) * 64 <= SLOT_BYTES
}

/// The positions of the set bits.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        place
    })
}
