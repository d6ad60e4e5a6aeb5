//! What carries a coordinator's actions to machines, and what comes back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::coordinator::Config;
use crate::membership::Epoch;
use crate::types::{Address, MachineId, TransactionId, Value};
use crate::wire::{Answer, Request};
use dunlin_store::Header;

/// What a tag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Read,
    Write,
}

/// The name of what is out: its kind, the transaction by slot and low bits of its sequence number, and the step or
/// token within the transaction. Results that come after the end of a transaction are known by it.
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

    /// Whether it is of this transaction, as far as its bits tell.
    pub(crate) fn is_of(self, transaction: TransactionId) -> bool {
        self == Tag::new(self.kind(), transaction, self.part())
    }
}

/// What has come back.
#[derive(Debug)]
pub(crate) enum Arrival {
    Answer(MachineId, Answer),
    /// A request has been lost, or its answer: the connection broke, or there is none.
    Lost(MachineId, Tag),
    /// A header that a READ has brought, and the key of its item if that was READ with it.
    Header(Tag, u64, Option<u64>),
    /// All WRITEs of a tag are there.
    Written(Tag),
    /// A one-sided operation has failed, and is not executed any more.
    Failed(Tag),
}

/// The way to the machines. It does not wait: what cannot go now goes with a later poll.
pub(crate) trait Wire: Send + fmt::Debug {
    /// Sends a request of this epoch.
    fn send(&mut self, machine: MachineId, request: &Request, epoch: Epoch, tag: Tag);
    /// READs the header at an address, and the key of its item if it is an `item`'s.
    fn read(&mut self, machine: MachineId, address: Address, item: bool, tag: Tag);
    /// WRITEs items, then headers.
    fn write(
        &mut self,
        machine: MachineId,
        items: Vec<(Address, Option<Value>)>,
        headers: Vec<(Address, Header)>,
        tag: Tag,
    );
    /// Lets go out what is to go, all at once, and takes what has come.
    fn poll(&mut self, now: Instant, arrived: &mut Vec<Arrival>);
    /// After a poll in vain.
    fn rest(&mut self);
    /// Why a machine did not answer last, and since when, where that is known.
    fn trouble(&self, machine: MachineId) -> Option<(Instant, String)>;
}

/// What a driver works with: a way to the machines, and what it knows of them.
pub(crate) type Way = (Box<dyn Wire>, Arc<Config>);

/// Knows the membership.
pub(crate) trait Source: Send + Sync + fmt::Debug {
    /// The way of a later epoch than this one, when there is one.
    fn newer(&self, than: Epoch, coordinator: u64) -> Option<Way>;
    /// Something did not go well: it may have changed.
    fn suspect(&self);
}
