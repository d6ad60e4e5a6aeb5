//! The interface by which a coordinator's actions reach machines and results come back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::coordinator::Config;
use crate::membership::Epoch;
use crate::types::{Address, MachineId, TransactionId, Value};
use crate::wire::{Answer, Request};
use dunlin_store::Header;

/// The kind of operation that a tag identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Read,
    Write,
}

/// Identifies an outstanding operation: its kind, the transaction by slot and low bits of its sequence number, and the
/// step or token within the transaction. Results that arrive after the end of their transaction are recognized by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(pub(crate) u64);

const SEQUENCE_BITS: u32 = 20;

impl Tag {
    pub(crate) fn new(kind: Kind, transaction: TransactionId, part: u32) -> Tag {
        let sequence = transaction.sequence & ((1 << SEQUENCE_BITS) - 1);
        let slot = u64::from(transaction.slot) & 0x3ff;
        Tag((kind as u64) << 62 | slot << 52 | sequence << 32 | u64::from(part))
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 >> 62 {
            0 => Kind::Request,
            1 => Kind::Read,
            _ => Kind::Write,
        }
    }

    pub(crate) fn slot(self) -> u16 {
        (self.0 >> 52) as u16 & 0x3ff
    }

    pub(crate) fn part(self) -> u32 {
        self.0 as u32
    }

    /// Whether it belongs to this transaction, as far as its bits tell.
    pub(crate) fn is_of(self, transaction: TransactionId) -> bool {
        self == Tag::new(self.kind(), transaction, self.part())
    }
}

/// A result that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    Answer(MachineId, Answer),
    /// A request or its answer has been lost: the connection broke, or there is none.
    Lost(MachineId, Tag),
    /// A header returned by a READ, and the key of its item if that was READ with it.
    Header(Tag, u64, Option<u64>),
    /// All WRITEs of a tag have completed.
    Written(Tag),
    /// A one-sided operation has failed, and will not be executed any more.
    Failed(Tag),
}

/// The connections to the machines. Nothing blocks: what cannot be sent now is sent by a later poll.
pub(crate) trait Wire: Send + fmt::Debug {
    /// Sends a request in this epoch.
    fn send(&mut self, machine: MachineId, request: &Request, epoch: Epoch, tag: Tag);
    /// READs the header at an address, with the key of its item if it is an `item`'s.
    fn read(&mut self, machine: MachineId, address: Address, item: bool, tag: Tag);
    /// WRITEs items, then headers.
    fn write(
        &mut self,
        machine: MachineId,
        items: Vec<(Address, Option<Value>)>,
        headers: Vec<(Address, Header)>,
        tag: Tag,
    );
    /// Sends everything that is pending, at once, and takes the results that have arrived.
    fn poll(&mut self, now: Instant, arrived: &mut Vec<Arrival>);
    /// Called after a poll without events.
    fn rest(&mut self);
    /// The last error of a machine, and since when it has not answered, if known.
    fn trouble(&self, machine: MachineId) -> Option<(Instant, String)>;
}

/// What a driver works with: the connections to the machines, and its configuration.
pub(crate) type Way = (Box<dyn Wire>, Arc<Config>);

/// Tracks the membership.
pub(crate) trait Source: Send + Sync + fmt::Debug {
    /// Returns the connections of a later epoch than this one, if there is one.
    fn newer(&self, than: Epoch, coordinator: u64) -> Option<Way>;
    /// Reports a failure: the membership may have changed.
    fn suspect(&self);
}
