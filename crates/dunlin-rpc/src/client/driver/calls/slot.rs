//! The slot of a future's call: its state, its deadline, and its result.

use super::{Asked, Terms};
use crate::call::lane::{Answer, CallId};
use crate::call::reply::Reply;
use crate::error::CallError;

/// How a response is kept until its task takes it. The memory of a response that was taken may be reused for the next.
pub(in crate::client) trait Keep {
    /// What a task receives.
    type Reply;
    /// Creates it without a response.
    fn empty() -> Self;
    /// Stores the response of the call.
    fn keep(&mut self, answer: Answer<'_>);
    /// Takes what its task receives, if anything is kept.
    fn take(&mut self) -> Option<Self::Reply>;
}

/// A [`Reply`] that its task owns, on any thread. For an inline reply the slot keeps the bytes, which the next one
/// overwrites.
impl Keep for Reply {
    type Reply = Reply;

    fn empty() -> Self {
        Self::EMPTY
    }

    #[inline]
    fn keep(&mut self, answer: Answer<'_>) {
        self.renew(answer);
    }

    #[inline]
    fn take(&mut self) -> Option<Reply> {
        Some(self.take())
    }
}

/// The slot; see the module. Its parts are written separately, each only as far as a call needs: a move that is wider
/// than the stores before it would wait for them.
pub(in crate::client) struct Slot<K> {
    pub(in crate::client) state: State,
    /// The terms of a call that has not ended.
    pub(super) terms: Terms,
    /// The response of a call that is [`State::Answered`].
    pub(super) kept: K,
}

/// The state, in two words.
pub(in crate::client) enum State {
    /// Free, with the index of the next free slot.
    Free(usize),
    /// Not sent yet.
    Waiting(Box<Asked>),
    Out(CallId),
    Answered,
    Failed(Box<CallError>),
}

impl State {
    /// Stores a state where the former one need not be dropped, so that it is not inspected.
    #[inline]
    pub(super) fn fill(&mut self, with: Self) {
        std::mem::forget(std::mem::replace(self, with));
    }

    /// Whether the call has not ended.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        matches!(self, State::Waiting(_) | State::Out(_))
    }
}

impl<K: Keep> Slot<K> {
    pub(super) fn new(next: usize) -> Self {
        Self {
            state: State::Free(next),
            terms: Terms::default(),
            kept: K::empty(),
        }
    }

    /// The terms of a call that has not ended.
    #[inline]
    pub(in crate::client) fn terms(&self) -> Option<&Terms> {
        self.state.is_live().then_some(&self.terms)
    }

    /// Whether the call is on the former lane.
    pub(in crate::client) fn on_former(&self) -> bool {
        self.terms.on_former
    }

    #[inline]
    pub(in crate::client) fn terms_mut(&mut self) -> Option<&mut Terms> {
        self.state.is_live().then_some(&mut self.terms)
    }
}
