//! The calls of a port as its owner sees them. What others see of them is the port's, which also names them: port,
//! slot, generation, from above.

use super::ports::Port;
use crate::client::lane::CallId;
use crate::client::slots::Slots;

/// The calls of a port as its owner sees them.
#[derive(Debug)]
pub(crate) struct Calls(Slots<()>);

/// The slot in a call's name.
#[inline]
pub(crate) fn slot_of(call: CallId) -> u16 {
    (call >> 32) as u16
}

/// A call's name in the table.
#[inline]
fn inner(call: CallId) -> CallId {
    u64::from(slot_of(call)) | u64::from(call as u32) << 32
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        Self(Slots::new(most))
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, port: &Port) -> Option<CallId> {
        let mut call = 0;
        self.0.begin_as(tag, (), |slot| {
            call = port.begin(slot as u16);
            call as u32
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
        // The other way round is the same.
        self.0.out().map(|(call, ())| call.rotate_left(32))
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
