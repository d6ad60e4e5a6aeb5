//! The calls of a port as its owner sees them. What others see of them is the port's.

use super::ports::Port;
use crate::client::lane::CallId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u64,
    generation: u32,
    state: State,
}

/// The calls of a port as its owner sees them.
#[derive(Debug)]
pub(crate) struct Calls {
    slots: Box<[Slot]>,
    free: Vec<u16>,
    abandoned: usize,
}

/// The slot in a call's name.
#[inline]
pub(crate) fn slot_of(call: CallId) -> u16 {
    (call >> 32) as u16
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        let free = Slot {
            tag: 0,
            generation: 0,
            state: State::Free,
        };
        Self {
            slots: vec![free; most].into(),
            free: (0..most).rev().map(|slot| slot as u16).collect(),
            abandoned: 0,
        }
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, port: &Port) -> Option<CallId> {
        let slot = self.free.pop()?;
        let call = port.begin(slot);
        self.slots[usize::from(slot)] = Slot {
            tag,
            generation: call as u32,
            state: State::Waiting,
        };
        Some(call)
    }

    /// Frees the slot and says whose call it was, unless nobody wants the answer, or it was a former owner's.
    #[inline]
    pub(crate) fn finish(&mut self, call: CallId) -> Option<u64> {
        let slot = slot_of(call);
        let Slot {
            tag,
            generation,
            state,
        } = *self.slots.get(usize::from(slot))?;
        if generation != call as u32 || state == State::Free {
            return None;
        }
        self.slots[usize::from(slot)].state = State::Free;
        self.free.push(slot);
        if state == State::Abandoned {
            self.abandoned -= 1;
        }
        (state == State::Waiting).then_some(tag)
    }

    /// Whether the call was waited for until now.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        let slot = self.slots.get_mut(usize::from(slot_of(call)));
        let waiting =
            slot.filter(|slot| slot.generation == call as u32 && slot.state == State::Waiting);
        let Some(slot) = waiting else {
            return false;
        };
        slot.state = State::Abandoned;
        self.abandoned += 1;
        true
    }

    /// Calls that are out; of their names, only the lower half (slot and generation) is said.
    pub(crate) fn out(&self) -> impl Iterator<Item = CallId> + '_ {
        let out = self.slots.iter().enumerate();
        out.filter(|(_, slot)| slot.state != State::Free)
            .map(|(index, slot)| (index as u64) << 32 | u64::from(slot.generation))
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether calls are out, and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.abandoned > 0 && self.abandoned == self.outstanding()
    }

    pub(crate) fn limit(&self) -> usize {
        self.slots.len()
    }
}
