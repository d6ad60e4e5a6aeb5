//! The table of outstanding calls: which caller each belongs to, and whether its response is still wanted. All lanes
//! use it.

use crate::channel::call_id::{call_id, slot_of, CallId, MOST_SLOTS, SLOT_BITS};

/// State bits of a slot's word: the call is outstanding and waited for, or outstanding and abandoned. Neither: the slot
/// is free.
const WAITING: u64 = 1;
const ABANDONED: u64 = 2;
/// Shift of a lane's marks.
const MARKS_SHIFT: u32 = 8;
/// Shift of the generation.
const GENERATION_SHIFT: u32 = 32;

/// A slot for an outstanding call. Small, because every call touches one.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The owner's tag for the call; in a free slot, the index of the next free one.
    tag: u64,
    /// `generation (32 bits) | marks | state`: a single comparison shows whether a response belongs to a call that is
    /// waited for and has no marks, as nearly all do.
    word: u64,
}

impl Slot {
    #[inline]
    fn is_out(&self) -> bool {
        self.word & (WAITING | ABANDONED) != 0
    }
}

#[inline]
fn name(index: u32, word: u64) -> CallId {
    call_id(index, (word >> GENERATION_SHIFT) as u32)
}

/// The word of a slot that has this call, without marks and state.
#[inline]
fn word_of(call: CallId) -> u64 {
    call >> SLOT_BITS << GENERATION_SHIFT
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The owner's tag; `None` if the response is no longer wanted.
    pub(crate) tag: Option<u64>,
    /// See [`Slots::mark`].
    pub(crate) marks: u8,
}

/// The table; `E` is what a lane stores for a call in addition.
#[derive(Debug)]
pub(crate) struct Slots<E> {
    slots: Box<[Slot]>,
    extras: Box<[E]>,
    /// The first free slot, which holds the next one; equal to the number of slots when none is free.
    free: u32,
    out: usize,
    abandoned: usize,
    /// The number of generations.
    generations: u32,
}

impl<E: Copy + Default> Slots<E> {
    /// A table for `most` calls, whose names have 32 bits for the generation.
    pub(crate) fn new(most: usize) -> Self {
        Self::named(most, u32::MAX)
    }

    /// A table for `most` calls, whose names have 16 bits for the generation, to fit into short headers. A channel that
    /// delivers each message once needs generations only to detect a dishonest peer.
    pub(crate) fn with_short_names(most: usize) -> Self {
        Self::named(most, u32::from(u16::MAX))
    }

    fn named(most: usize, generations: u32) -> Self {
        debug_assert!(most <= MOST_SLOTS);
        let slot = |next| Slot { tag: next, word: 0 };
        Self {
            slots: (1..=most as u64).map(slot).collect(),
            extras: vec![E::default(); most].into(),
            free: 0,
            out: 0,
            abandoned: 0,
            generations,
        }
    }

    /// Names a new call, unless the maximum number is outstanding.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, extra: E) -> Option<CallId> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.tag as u32;
        self.out += 1;
        slot.tag = tag;
        slot.word |= WAITING;
        let word = slot.word;
        if size_of::<E>() > 0 {
            self.extras[index as usize] = extra;
        }
        Some(name(index, word))
    }

    /// As [`Slots::begin`], where the caller counts the generations of a slot.
    #[inline]
    pub(crate) fn begin_as(
        &mut self,
        tag: u64,
        extra: E,
        generation: impl FnOnce(u32) -> u32,
    ) -> Option<CallId> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        slot.word = u64::from(generation(index)) << GENERATION_SHIFT;
        self.begin(tag, extra)
    }

    #[inline]
    fn index(&self, call: CallId) -> Option<usize> {
        let slot = self.slots.get(slot_of(call))?;
        let is_it = (slot.word ^ word_of(call)) >> GENERATION_SHIFT == 0 && slot.is_out();
        is_it.then_some(slot_of(call))
    }

    /// Whether the call is outstanding.
    #[inline]
    pub(crate) fn is_out(&self, call: CallId) -> bool {
        self.index(call).is_some()
    }

    /// The lane's data for a call, if it is outstanding.
    #[inline]
    pub(crate) fn extra(&mut self, call: CallId) -> Option<&mut E> {
        self.index(call).map(|index| &mut self.extras[index])
    }

    /// Sets some of the eight marks of an outstanding call and returns those that it had before; `None` if it is not
    /// outstanding.
    pub(crate) fn mark(&mut self, call: CallId, marks: u8) -> Option<u8> {
        let index = self.index(call)?;
        let word = &mut self.slots[index].word;
        let had = (*word >> MARKS_SHIFT) as u8;
        *word |= u64::from(marks) << MARKS_SHIFT;
        Some(had)
    }

    /// Frees the slot of an outstanding call.
    #[inline(always)]
    fn free(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let generation = ((slot.word >> GENERATION_SHIFT) as u32).wrapping_add(1);
        slot.word = u64::from(generation & self.generations) << GENERATION_SHIFT;
        slot.tag = u64::from(self.free);
        self.free = index as u32;
        self.out -= 1;
    }

    /// Frees the slot of a call that is waited for and has no marks, and returns its tag. `None`: it is another call,
    /// or none; [`Slots::finish`] distinguishes them.
    #[inline(always)]
    pub(crate) fn finish_waiting(&mut self, call: CallId) -> Option<u64> {
        let slot = self.slots.get(slot_of(call))?;
        if slot.word != word_of(call) | WAITING {
            return None;
        }
        let tag = slot.tag;
        self.free(slot_of(call));
        Some(tag)
    }

    /// Frees the slot; `None` if the call is not outstanding.
    pub(crate) fn finish(&mut self, call: CallId) -> Option<Ended> {
        let index = self.index(call)?;
        let Slot { tag, word } = self.slots[index];
        let wanted = word & WAITING != 0;
        self.abandoned -= usize::from(!wanted);
        self.free(index);
        Some(Ended {
            tag: wanted.then_some(tag),
            marks: (word >> MARKS_SHIFT) as u8,
        })
    }

    /// Marks the response as no longer wanted. Returns whether it was wanted before.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        let Some(index) = self.index(call) else {
            return false;
        };
        let word = &mut self.slots[index].word;
        let waited = *word & WAITING != 0;
        *word = *word & !WAITING | ABANDONED;
        self.abandoned += usize::from(waited);
        waited
    }

    /// The outstanding calls, each with the lane's data.
    pub(crate) fn out(&self) -> impl Iterator<Item = (CallId, E)> + '_ {
        let all = (0..).zip(&self.slots).zip(&self.extras);
        all.filter(|((_, slot), _)| slot.is_out())
            .map(|((index, slot), extra)| (name(index, slot.word), *extra))
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.out
    }

    /// Whether all outstanding calls, if any, are abandoned.
    #[inline]
    pub(crate) fn nobody_waits(&self) -> bool {
        self.abandoned == self.out
    }

    /// Whether there are outstanding calls and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.abandoned > 0 && self.nobody_waits()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.out == self.slots.len()
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
            marks: 0,
        };
        assert_eq!(slots.finish(first), Some(ended));
        assert_eq!(slots.finish(first), None);
        assert_eq!(slots.finish_waiting(first), None);
        let third = slots.begin(9, 3).unwrap();
        assert_eq!(slots.finish(first), None);
        assert_eq!(slots.finish_waiting(first), None);
        assert!(slots.abandon(third));
        assert!(!slots.abandon(third));
        assert!(!slots.only_abandoned());
        assert_eq!(slots.finish_waiting(second), Some(8));
        assert!(slots.only_abandoned());
        assert_eq!(slots.out().collect::<Vec<_>>(), [(third, 3)]);
        let ended = Ended {
            tag: None,
            marks: 0,
        };
        assert_eq!(slots.finish_waiting(third), None);
        assert_eq!(slots.finish(third), Some(ended));
        assert_eq!(slots.outstanding(), 0);
        assert!(!slots.only_abandoned());
    }

    #[test]
    fn short_names_fit_into_32_bits_and_go_round() {
        let mut slots: Slots<()> = Slots::with_short_names(3);
        let first = slots.begin(1, ()).unwrap();
        slots.finish_waiting(first).unwrap();
        for _ in 1..1 << 16 {
            let call = slots.begin(1, ()).unwrap();
            assert!(call < 1 << 32 && call != first);
            assert_eq!(slots.finish_waiting(first), None);
            assert_eq!(slots.finish(call).unwrap().tag, Some(1));
        }
        assert_eq!(slots.begin(1, ()), Some(first));
    }

    #[test]
    fn marks_end_with_their_call() {
        let mut slots: Slots<()> = Slots::new(1);
        let call = slots.begin(7, ()).unwrap();
        assert_eq!(slots.mark(call, 1), Some(0));
        assert_eq!(slots.mark(call, 2), Some(1));
        assert_eq!(slots.finish_waiting(call), None);
        let ended = Ended {
            tag: Some(7),
            marks: 3,
        };
        assert_eq!(slots.finish(call), Some(ended));
        assert_eq!(slots.mark(call, 1), None);
        let next = slots.begin(8, ()).unwrap();
        assert_eq!(slots.finish_waiting(next), Some(8));
    }

    #[test]
    fn generations_may_be_counted_elsewhere() {
        let mut slots: Slots<()> = Slots::new(1);
        let call = slots.begin_as(1, (), |index| index + 41).unwrap();
        assert_eq!(call, call_id(0, 41));
        assert!(slots.is_out(call));
        assert_eq!(slots.begin_as(1, (), |_| unreachable!("it is full")), None);
    }
}
