//! The place of a future's call: how far the call is, how long it may take, and what came of it.

use super::{Asked, Terms};
use crate::call::lane::{Answer, CallId};
use crate::call::reply::Reply;
use crate::error::CallError;

/// How an answer is kept until its task takes it. What has been taken may be used again for the next.
pub(in crate::client) trait Keep {
    /// What a task gets.
    type Reply;
    /// Nothing is kept yet.
    fn empty() -> Self;
    /// The call has been answered.
    fn keep(&mut self, answer: Answer<'_>);
    /// What its task gets, if anything is kept.
    fn take(&mut self) -> Option<Self::Reply>;
}

/// A [`Reply`] that its task owns, on any thread. Of one that stands in itself the place keeps the bytes, which the
/// next writes over.
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

/// See the module. Its parts are written one by one, each with as much as a call needs: a move that is wider than the
/// stores before it waits for them.
pub(in crate::client) struct Slot<K> {
    pub(in crate::client) state: State,
    /// Of a call that has not ended.
    pub(super) terms: Terms,
    /// Of a call that is [`State::Answered`].
    pub(super) kept: K,
}

/// Two words.
pub(in crate::client) enum State {
    /// Which place is the next that is free.
    Free(usize),
    /// It is not sent yet.
    Waiting(Box<Asked>),
    Out(CallId),
    Answered,
    Failed(Box<CallError>),
}

impl State {
    /// Puts a state where there is none that would have to be dropped, so that nobody looks what it was.
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

    /// Of a call that has not ended.
    #[inline]
    pub(in crate::client) fn terms(&self) -> Option<&Terms> {
        self.state.is_live().then_some(&self.terms)
    }

    /// Whether the call is on the lane before the present one.
    pub(in crate::client) fn on_former(&self) -> bool {
        self.terms.on_former
    }

    #[inline]
    pub(in crate::client) fn terms_mut(&mut self) -> Option<&mut Terms> {
        self.state.is_live().then_some(&mut self.terms)
    }
}
