//! Notifications that an executor has to send, kept until it is released: a thread that is woken while we hold it would
//! immediately wait for us, and if a wake-up ever took long, everybody would.

use std::sync::{Arc, Weak};

use crate::completion_queue::News;
use crate::control::Command;
use crate::wake::Waker;

use super::shared::Shared;

/// Wake-ups, and requests to the control thread.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    wakers: Vec<Arc<Waker>>,
    commands: Vec<Command>,
    completions: News,
}

impl Notices {
    /// Records that a peer must be woken.
    #[inline(always)]
    pub(super) fn wake(&mut self, waker: Option<&Arc<Waker>>) {
        if let Some(waker) = waker {
            self.note(waker);
        }
    }

    #[cold]
    fn note(&mut self, waker: &Arc<Waker>) {
        // One peer may have many ports, but needs only one wake-up.
        if !self.wakers.iter().any(|other| Arc::ptr_eq(other, waker)) {
            self.wakers.push(Arc::clone(waker));
        }
    }

    /// Records a request to the control thread; the answer arrives as mail.
    #[cold]
    pub(super) fn ask(
        &mut self,
        pair: &Shared,
        command: impl FnOnce(Weak<Shared>, u32) -> Command,
    ) {
        self.commands
            .push(command(pair.me.clone(), pair.incarnation()));
    }

    /// Records that a completion was added.
    pub(super) fn completed(&mut self, news: News) {
        self.completions = self.completions.max(news);
    }

    /// Sends all notifications.
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
