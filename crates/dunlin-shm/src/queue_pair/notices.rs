//! What an executor has to tell others, kept until it is free again: who is woken while we hold it would wait for us at
//! once, and if ever a wake-up took long, everybody would.

use std::sync::{Arc, Weak};

use crate::completion_queue::News;
use crate::control::Command;
use crate::wake::Waker;

use super::shared::Shared;

/// Wake-ups, and questions to the control thread.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    wakers: Vec<Arc<Waker>>,
    commands: Vec<Command>,
    completions: News,
}

impl Notices {
    /// Notes that a peer is to be woken.
    #[inline(always)]
    pub(super) fn wake(&mut self, waker: Option<&Arc<Waker>>) {
        if let Some(waker) = waker {
            self.note(waker);
        }
    }

    #[cold]
    fn note(&mut self, waker: &Arc<Waker>) {
        // One peer may have many ports, but needs one wake-up.
        if !self.wakers.iter().any(|other| Arc::ptr_eq(other, waker)) {
            self.wakers.push(Arc::clone(waker));
        }
    }

    /// Notes a question to the control thread; the answer comes as mail.
    #[cold]
    pub(super) fn ask(
        &mut self,
        pair: &Shared,
        command: impl FnOnce(Weak<Shared>, u32) -> Command,
    ) {
        self.commands
            .push(command(pair.me.clone(), pair.incarnation()));
    }

    /// Notes that a completion was added.
    pub(super) fn completed(&mut self, news: News) {
        self.completions = self.completions.max(news);
    }

    /// Tells all of it.
    #[inline(always)]
    pub(super) fn tell(&mut self, pair: &Shared) {
        if !self.wakers.is_empty() || !self.commands.is_empty() {
            self.tell_others(pair);
        }
        pair.tell(std::mem::take(&mut self.completions));
    }

    #[cold]
    fn tell_others(&mut self, pair: &Shared) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
        for command in self.commands.drain(..) {
            pair.core.control.push(command);
        }
    }
}
