//! The calls of a datagram lane: what is out, since when, and whose it is.

use super::lane::CallId;

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
    /// The tick at which something was last heard of it, or it began.
    since: u32,
    state: State,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(most: usize) -> Self {
        let free = Slot {
            tag: 0,
            generation: 0,
            since: 0,
            state: State::Free,
        };
        Self {
            slots: vec![free; most].into(),
            free: (0..most as u32).rev().collect(),
        }
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(super) fn begin(&mut self, tag: u64, tick: u32) -> Option<CallId> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        slot.state = State::Waiting;
        slot.tag = tag;
        slot.since = tick;
        Some(u64::from(index) | u64::from(slot.generation) << 32)
    }

    #[inline]
    fn index(&self, call: CallId) -> Option<usize> {
        let index = call as u32 as usize;
        let slot = self.slots.get(index)?;
        let out = slot.generation == (call >> 32) as u32 && slot.state != State::Free;
        out.then_some(index)
    }

    /// Whether the call is out.
    #[inline]
    pub(super) fn is_out(&self, call: CallId) -> bool {
        self.index(call).is_some()
    }

    /// Frees the slot and says whose call it was, unless it is not out or nobody wants the answer.
    #[inline]
    pub(super) fn finish(&mut self, call: CallId) -> Option<u64> {
        let index = self.index(call)?;
        let slot = &mut self.slots[index];
        let wanted = slot.state == State::Waiting;
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index as u32);
        wanted.then_some(slot.tag)
    }

    /// Nobody wants the answer any more.
    pub(super) fn abandon(&mut self, call: CallId) {
        if let Some(index) = self.index(call) {
            self.slots[index].state = State::Abandoned;
        }
    }

    /// Something was heard of the call.
    pub(super) fn touch(&mut self, call: CallId, tick: u32) {
        if let Some(index) = self.index(call) {
            self.slots[index].since = tick;
        }
    }

    /// Calls that are out, with the tick at which each was last heard of.
    pub(super) fn out(&self) -> impl Iterator<Item = (CallId, u32)> + '_ {
        let out = self.slots.iter().enumerate();
        out.filter(|(_, slot)| slot.state != State::Free)
            .map(|(index, slot)| (index as u64 | u64::from(slot.generation) << 32, slot.since))
    }

    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn limit(&self) -> usize {
        self.slots.len()
    }
}
