//! The calls of a port as its owner sees them, and their names. What others see of them is the port's.
//!
//! A call's name is FLOCK's thread id and sequence id (§4.1), in as many bits as a short header has for it:
//! `generation (8 bits) | slot (12) | port (12)`. The port is the thread's. A slot has a new generation for each call,
//! so that an answer which no honest server would send is noticed: a lane brings each answer once, and the slot of a
//! call that nobody waits for any more is free only when its answer has come.

use super::ports::{Port, CALL, OPERATION};
use crate::call::slots::Slots;
use crate::channel::call_id::{self, call_id, CallId};

/// The calls of a port as its owner sees them.
#[derive(Debug)]
pub(crate) struct Calls(Slots<()>);

const PORT_BITS: u32 = 12;
const SLOT_BITS: u32 = 12;
const GENERATION_BITS: u32 = 8;

/// Threads, futures' lanes and pipelines that one handle serves at once.
pub(crate) const MOST_PORTS: usize = 1 << PORT_BITS;
/// Calls of each that may be out.
pub(crate) const MOST_CALLS: usize = 1 << SLOT_BITS;

/// The name of a call.
#[inline]
pub(super) fn name(port: u16, slot: u16, generation: u64) -> CallId {
    debug_assert!(usize::from(port) < MOST_PORTS && usize::from(slot) < MOST_CALLS);
    u64::from(port) | u64::from(slot) << PORT_BITS | generation << (PORT_BITS + SLOT_BITS)
}

/// The generation after this one.
#[inline]
pub(super) fn next_generation(generation: u64) -> u64 {
    (generation + 1) & ((1 << GENERATION_BITS) - 1)
}

/// The port in a call's name.
#[inline]
pub(super) fn port_of(call: CallId) -> usize {
    call as usize & (MOST_PORTS - 1)
}

/// The slot in a call's name.
#[inline]
pub(crate) fn slot_of(call: CallId) -> u16 {
    (call >> PORT_BITS) as u16 & (MOST_CALLS - 1) as u16
}

/// The generation in a call's name; more than there are when it is none of ours.
#[inline]
pub(super) fn generation_of(call: CallId) -> u64 {
    call >> (PORT_BITS + SLOT_BITS)
}

/// A call's name in the table.
#[inline]
fn inner(call: CallId) -> CallId {
    call_id(u32::from(slot_of(call)), generation_of(call) as u32)
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        Self(Slots::new(most))
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, port: &Port) -> Option<CallId> {
        self.begin_as(tag, port, CALL)
    }

    /// The same for a one-sided operation.
    #[inline]
    pub(super) fn begin_operation(&mut self, tag: u64, port: &Port) -> Option<CallId> {
        self.begin_as(tag, port, OPERATION)
    }

    #[inline]
    fn begin_as(&mut self, tag: u64, port: &Port, what: u64) -> Option<CallId> {
        let mut call = 0;
        self.0.begin_as(tag, (), |slot| {
            call = port.begin(slot as u16, what);
            generation_of(call) as u32
        })?;
        Some(call)
    }

    /// Frees the slot and says whose call it was, unless nobody wants the answer, or it was a former owner's.
    #[inline]
    pub(crate) fn finish(&mut self, call: CallId) -> Option<u64> {
        let call = inner(call);
        match self.0.finish_waiting(call) {
            Some(tag) => Some(tag),
            None => self.0.finish(call)?.tag,
        }
    }

    /// Whether the call was waited for until now.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        self.0.abandon(inner(call))
    }

    /// Calls that are out; of their names, only slot and generation are said.
    pub(crate) fn out(&self) -> impl Iterator<Item = CallId> + '_ {
        let calls = self.0.out();
        calls.map(|(call, ())| {
            let generation = call_id::generation_of(call);
            name(0, call_id::slot_of(call) as u16, generation.into())
        })
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.0.outstanding()
    }

    /// Whether calls are out, and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.0.only_abandoned()
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit()
    }
}
