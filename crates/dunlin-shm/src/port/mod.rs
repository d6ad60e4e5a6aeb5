//! Ports, in which messages for a queue pair arrive.
//!
//! A port is one memory file, created by the receiver and mapped by its single sender: a page of control words, a ring
//! with the lengths of the posted RECEIVEs, and a ring of records. The control words and their writers:
//!
//! | offset | word | writer |
//! |---|---|---|
//! | 0 | tail: bytes of records published | sender |
//! | 64 | head: bytes of records taken | receiver |
//! | 128 | state of the receiving queue pair | receiver |
//! | 192 | posted: RECEIVEs posted so far | receiver |
//! | 256 | armed: 1 wakes at the next message, 2 at a solicited one | receiver sets, sender clears |
//!
//! The sender could write all of it. The receiver therefore keeps its own copies of what it writes, and each side
//! checks what it reads. Invalid contents cost the queue pair that read them, and nothing else.
//!
//! The protocol (`inbound.rs`, `outbound.rs` and the methods here) accesses the memory only through [`PortMap`]. That
//! is a mapped file, or under `--cfg loom` a model in which each unit of 16 bytes of the record ring is a cell that
//! detects races.

mod inbound;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod map;
#[cfg(loom)]
mod modelled;
mod outbound;
mod record;

pub(crate) use inbound::Inbound;
#[cfg(not(loom))]
pub(crate) use map::PortMap;
#[cfg(loom)]
pub(crate) use modelled::PortMap;
pub(crate) use outbound::{is_receiving, Outbound};
pub(crate) use record::{Record, RecordKind, RECORD_HEADER_BYTES};

use crate::sync::Ordering;

/// `armed`: the next message raises the event.
pub(crate) const ARMED_NEXT: u32 = 1;
/// `armed`: the next solicited message raises the event.
pub(crate) const ARMED_SOLICITED: u32 = 2;

/// The peer wrote something invalid into shared words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// The geometry of a port, as its owner reports it to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Number of entries of the ring of RECEIVE lengths, a power of two.
    pub(crate) lengths: u32,
    /// Bytes of the record ring, a power of two.
    pub(crate) data_bytes: u32,
    /// Whether RECEIVEs come from a shared queue, so that the sender cannot see them.
    pub(crate) shared_receive: bool,
}

impl PortMap {
    /// Tells the sender that the RECEIVE with this running number is posted, and its length.
    #[inline]
    pub(crate) fn announce_receive(&self, number: u64, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.receive_length(number).store(length, Ordering::Relaxed);
        self.posted().store(number + 1, Ordering::Release);
    }

    /// Asks the sender to raise the event. To find messages that arrived before, the tail must be read after a fence.
    #[inline]
    pub(crate) fn arm(&self, kind: u32) {
        self.armed().store(kind, Ordering::SeqCst);
    }
}
