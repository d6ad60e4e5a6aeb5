//! The calls that are out: whose each is, and whether anybody still wants its answer. All lanes keep theirs in this table.

use super::lane::CallId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Abandoned,
}

/// A call that may be out. Small, because every call touches one.
#[derive(Clone, Copy, Debug)]
struct Slot<E> {
    tag: u64,
    generation: u32,
    state: State,
    extra: E,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended<E> {
    /// Whose it was; `None`: nobody wants the answer any more.
    pub(crate) tag: Option<u64>,
    pub(crate) extra: E,
}

/// All of them; `E` is what a lane wants to know of a call besides.
#[derive(Debug)]
pub(crate) struct Slots<E> {
    slots: Box<[Slot<E>]>,
    free: Vec<u32>,
    abandoned: usize,
}

#[inline]
fn name(index: u32, generation: u32) -> CallId {
    u64::from(index) | u64::from(generation) << 32
}

impl<E: Copy + Default> Slots<E> {
    pub(crate) fn new(most: usize) -> Self {
        let free = Slot {
            tag: 0,
            generation: 0,
            state: State::Free,
            extra: E::default(),
        };
        Self {
            slots: vec![free; most].into(),
            free: (0..most as u32).rev().collect(),
            abandoned: 0,
        }
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, extra: E) -> Option<CallId> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        (slot.tag, slot.extra, slot.state) = (tag, extra, State::Waiting);
        Some(name(index, slot.generation))
    }

    /// As [`Slots::begin`], where somebody else counts the generations of a slot.
    #[inline]
    pub(crate) fn begin_as(
        &mut self,
        tag: u64,
        extra: E,
        generation: impl FnOnce(u32) -> u32,
    ) -> Option<CallId> {
        let index = *self.free.last()?;
        self.slots[index as usize].generation = generation(index);
        self.begin(tag, extra)
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
    pub(crate) fn is_out(&self, call: CallId) -> bool {
        self.index(call).is_some()
    }

    /// What the lane knows of a call, if it is out.
    #[inline]
    pub(crate) fn extra(&mut self, call: CallId) -> Option<&mut E> {
        self.index(call).map(|index| &mut self.slots[index].extra)
    }

    /// Frees the slot; `None`: the call is not out.
    #[inline]
    pub(crate) fn finish(&mut self, call: CallId) -> Option<Ended<E>> {
        let index = self.index(call)?;
        let slot = &mut self.slots[index];
        let wanted = slot.state == State::Waiting;
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index as u32);
        self.abandoned -= usize::from(!wanted);
        Some(Ended {
            tag: wanted.then_some(slot.tag),
            extra: slot.extra,
        })
    }

    /// Nobody wants the answer any more. Says whether somebody did until now.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        let Some(index) = self.index(call) else {
            return false;
        };
        let state = std::mem::replace(&mut self.slots[index].state, State::Abandoned);
        let waited = state == State::Waiting;
        self.abandoned += usize::from(waited);
        waited
    }

    /// Calls that are out, with what the lane knows of each.
    pub(crate) fn out(&self) -> impl Iterator<Item = (CallId, E)> + '_ {
        let all = (0..).zip(&self.slots);
        all.filter(|(_, slot)| slot.state != State::Free)
            .map(|(index, slot)| (name(index, slot.generation), slot.extra))
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether calls are out, and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.abandoned > 0 && self.abandoned == self.outstanding()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn limit(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_is_nobodys() {
        let mut slots: Slots<u8> = Slots::new(2);
        let first = slots.begin(7, 1).unwrap();
        let second = slots.begin(8, 2).unwrap();
        assert_eq!(slots.begin(9, 3), None);
        assert!(slots.is_full());
        let ended = Ended {
            tag: Some(7),
            extra: 1,
        };
        assert_eq!(slots.finish(first), Some(ended));
        assert_eq!(slots.finish(first), None);
        let third = slots.begin(9, 3).unwrap();
        assert_eq!(slots.finish(first), None);
        assert!(slots.abandon(third));
        assert!(!slots.abandon(third));
        assert!(!slots.only_abandoned());
        assert_eq!(slots.finish(second).unwrap().tag, Some(8));
        assert!(slots.only_abandoned());
        assert_eq!(slots.out().collect::<Vec<_>>(), [(third, 3)]);
        let ended = Ended {
            tag: None,
            extra: 3,
        };
        assert_eq!(slots.finish(third), Some(ended));
        assert_eq!(slots.outstanding(), 0);
        assert!(!slots.only_abandoned());
    }

    #[test]
    fn generations_may_be_counted_elsewhere() {
        let mut slots: Slots<()> = Slots::new(1);
        let call = slots.begin_as(1, (), |index| index + 41).unwrap();
        assert_eq!(call, 41 << 32);
        assert!(slots.is_out(call));
        assert_eq!(slots.begin_as(1, (), |_| unreachable!("it is full")), None);
    }
}
