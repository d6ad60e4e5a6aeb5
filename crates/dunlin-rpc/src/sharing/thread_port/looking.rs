//! How a thread comes to what was sent to it: its mailbox, and the lane when nobody else looks.

use std::sync::atomic::Ordering;

use dunlin_verbs::thread;

use super::{Mine, ThreadPort};
use crate::call::lane::Sink;
use crate::error::CallError;

/// Looks of a leader that nobody waits for: leadership is given up seldom, so that looking costs what it costs on a
/// lane of its own.
pub(super) const LOOKS: u32 = 32;
/// Looks in vain for mail before a thread lets a dispatcher run that may wait for this core. A simulated look lasts
/// until news.
const LOOKS_FOR_MAIL: u32 = 1024;
pub(super) const RESTS_FOR_MAIL: u32 = 2;

impl ThreadPort {
    /// Takes what has come for the thread; looks at the lane for it, unless another does.
    #[inline]
    pub(super) fn look(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        let mut taken = self.take_mail(sink);
        if taken > 0 {
            self.looks.begin_anew();
            return Ok(taken);
        }
        if self.handle.is_dispatched() {
            return self.leave_to_dispatcher(sink);
        }
        let before = self.calls.outstanding();
        let mine = Mine::Thread {
            port: &self.port,
            calls: &mut self.calls,
            sink: self.answers.or(&mut *sink),
        };
        let crowded = self.handle.is_crowded();
        // Who has nothing out looks for others, whom it is not to keep waiting for its own next call.
        let looks = if crowded || before == 0 { 1 } else { LOOKS };
        let led = self
            .lane
            .poll(&self.node, self.handle.ports(), Some(mine), looks);
        self.looked = led.is_some();
        // What was taken for others is theirs to count.
        taken += before - self.calls.outstanding();
        self.answers.give(sink);
        self.look_at_end(sink)?;
        if taken == 0 {
            self.looked_in_vain();
        } else {
            self.looks.found();
        }
        Ok(taken)
    }

    #[inline]
    pub(super) fn take_mail(&mut self, sink: &mut dyn Sink) -> usize {
        match self.port.has_mail() {
            true => self.empty_mailbox(sink),
            false => 0,
        }
    }

    #[inline(never)]
    pub(super) fn empty_mailbox(&mut self, sink: &mut dyn Sink) -> usize {
        let mut taken = 0;
        while let Ok(delivered) = self.port.mailbox.try_recv() {
            taken += 1;
            if let Some(tag) = self.calls.finish(delivered.call) {
                match delivered.result {
                    Ok(reply) => reply.into_answer(|answer| sink.complete(tag, Ok(answer))),
                    Err(error) => sink.complete(tag, Err(error)),
                }
            }
        }
        taken
    }

    /// Nothing is in the mailbox, and the dispatcher alone looks at the lane (FLOCK §4.3): its mail wakes who rests.
    #[inline(never)]
    pub(super) fn leave_to_dispatcher(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.looked = true;
        self.look_at_end(sink)?;
        if self.staging.has_messages() && !self.holds_back() {
            // Room and credits come without mail. Once more, because they may have come before the wish for them was
            // known.
            self.status.want();
            self.send();
        }
        self.looked_in_vain();
        if self.looks.count() > 0 && self.looks.count() % LOOKS_FOR_MAIL == 0 {
            thread::yield_now();
        }
        Ok(0)
    }

    /// There was no room or no credit.
    #[cold]
    pub(super) fn look_around(&mut self) {
        if !self.status.is_active() {
            self.handle.reassign(&self.node);
        }
        if self.port.assigned.load(Ordering::Relaxed) != self.index {
            self.migrate();
        }
    }

    /// Simulated threads of a crowded handle let others go first here, real ones where they rest.
    #[inline]
    fn looked_in_vain(&mut self) {
        let crowded = thread::is_simulated() && self.handle.is_crowded();
        if self.looks.in_vain(crowded) {
            thread::yield_now();
        }
    }
}
