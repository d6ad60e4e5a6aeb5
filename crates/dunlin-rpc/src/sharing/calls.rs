//! The calls of a port as its owner sees them, and their names. What other threads see of them is in the port.
//!
//! A call's name is FLOCK's thread id and sequence id (§4.1), in as many bits as a short header has for it: `generation
//! (8 bits) | slot (12) | port (12)`. The port belongs to the thread. A slot has a new generation for each call, so
//! that answers that only a malicious server sends are detected: a lane delivers each answer once, and the slot of an
//! abandoned call is free only when its answer has come.

use super::port::{Port, CALL, OPERATION};
use crate::call::slots::Slots;
use crate::channel::call_id::{self, call_id, CallId};

/// The calls of a port as its owner sees them.
#[derive(Debug)]
pub(crate) struct Calls(Slots<()>);

const PORT_BITS: u32 = 12;
const SLOT_BITS: u32 = 12;
const GENERATION_BITS: u32 = 8;

/// Maximum number of threads, futures' lanes and pipelines that one handle serves.
pub(crate) const MOST_PORTS: usize = 1 << PORT_BITS;
/// Maximum number of outstanding calls of each.
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

/// The generation in a call's name; out of range if the name is not one of ours.
#[inline]
pub(super) fn generation_of(call: CallId) -> u64 {
    call >> (PORT_BITS + SLOT_BITS)
}

/// The name of a call in the table.
#[inline]
fn inner(call: CallId) -> CallId {
    call_id(u32::from(slot_of(call)), generation_of(call) as u32)
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        Self(Slots::new(most))
    }

    /// Names a call, unless the maximum number is outstanding.
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

    /// Frees the slot and returns the call's tag, unless the call was abandoned or belongs to a former owner.
    #[inline]
    pub(crate) fn finish(&mut self, call: CallId) -> Option<u64> {
        let call = inner(call);
        match self.0.finish_waiting(call) {
            Some(tag) => Some(tag),
            None => self.0.finish(call)?.tag,
        }
    }

    /// Abandons a call. Returns whether it was waited for until now.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        self.0.abandon(inner(call))
    }

    /// The outstanding calls; of their names only slot and generation are given.
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

    /// Whether calls are outstanding, and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.0.only_abandoned()
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit()
    }
}
