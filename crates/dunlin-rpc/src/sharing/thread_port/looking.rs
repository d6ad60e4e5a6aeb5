//! How a thread gets what was sent to it: from its mailbox, and from the lane if no other thread polls it.

use std::sync::atomic::Ordering;

use dunlin_verbs::thread;

use super::{Mine, ThreadPort};
use crate::call::lane::Sink;
use crate::error::CallError;

/// Number of polls of a leader for which no thread waits: leadership is given up rarely, so that polling costs as much
/// as on a lane that is not shared.
pub(super) const LOOKS: u32 = 32;
/// Number of checks for mail in vain before a thread yields to a dispatcher that may be waiting for this core. A
/// simulated check lasts until something arrives.
const LOOKS_FOR_MAIL: u32 = 1024;
pub(super) const RESTS_FOR_MAIL: u32 = 2;

impl ThreadPort {
    /// Takes what has come for the thread; polls the lane for it, unless another thread does.
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
        // A thread with nothing outstanding polls for others, and must not delay its own next call by that.
        let looks = if crowded || before == 0 { 1 } else { LOOKS };
        let led = self.lane.poll(&self.node, Some(mine), looks);
        self.looked = led.is_some();
        // What was taken for others is counted by them.
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

    /// Called when nothing is in the mailbox and only the dispatcher polls the lane (FLOCK §4.3): its mail wakes a
    /// resting thread.
    #[inline(never)]
    pub(super) fn leave_to_dispatcher(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.looked = true;
        self.look_at_end(sink)?;
        if self.staging.has_messages() && !self.holds_back() {
            // Room and credits come without mail. Once more, because they may have come before this thread announced
            // its need.
            self.status.want();
            self.send();
        }
        self.looked_in_vain();
        if self.looks.count() > 0 && self.looks.count() % LOOKS_FOR_MAIL == 0 {
            thread::yield_now();
        }
        Ok(0)
    }

    /// Called when there was no room or no credit.
    #[cold]
    pub(super) fn look_around(&mut self) {
        if !self.status.is_active() {
            self.handle.reassign(&self.node);
        }
        if self.port.assigned.load(Ordering::Relaxed) != self.index {
            self.migrate();
        }
    }

    /// Simulated threads of a crowded handle yield here, real ones where they rest.
    #[inline]
    fn looked_in_vain(&mut self) {
        let crowded = thread::is_simulated() && self.handle.is_crowded();
        if self.looks.in_vain(crowded) {
            thread::yield_now();
        }
    }
}
