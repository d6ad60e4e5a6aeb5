//! When a thread's run is sent, and what is sent with it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin_verbs::thread;

use super::{Body, Outcome, SharedLane, ThreadPort};
use crate::config::REST;

/// The longest that a run is held back for other requests while the server's NIC is at its limit: as long as it would
/// wait in a queue there.
const HELD_MOST: Duration = REST;

/// How long a thread waits for the calls outstanding on its old lane: longer than they take if handlers do not wait.
const STUCK_AFTER: Duration = Duration::from_millis(1);

impl ThreadPort {
    /// Whether the run takes another message; if necessary it is sent first.
    #[inline]
    pub(super) fn has_room(&mut self, payload: usize) -> bool {
        self.staging.fits(payload) || {
            self.send();
            self.staging.fits(payload)
        }
    }

    /// Whether the run waits for more of the thread's own requests, because the server's NIC is at its limit. A thread
    /// without other outstanding calls never waits.
    #[inline]
    pub(super) fn holds_back(&mut self) -> bool {
        match self.status.standing().together() {
            Some(part) if !self.staging.is_empty() => self.holds_back_for(part),
            _ => false,
        }
    }

    #[cold]
    pub(super) fn holds_back_for(&mut self, part: usize) -> bool {
        if self.staging.is_worth(self.calls.outstanding() / part) {
            return false;
        }
        let now = thread::now();
        let since = *self.held.get_or_insert(now);
        now.duration_since(since) < HELD_MOST
    }

    /// Sends the run; it stays if there is no room for it yet.
    #[inline]
    pub(super) fn send(&mut self) {
        if self.staging.is_empty() {
            return;
        }
        let outcome = self.lane.send(&self.node, self.staging.run());
        self.sent(outcome);
    }

    #[inline]
    pub(super) fn sent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => {
                self.staging.clear();
                self.held = None;
            }
            // The next poll notices that the lane is lost.
            Outcome::Lost => {}
            Outcome::Full => self.look_around(),
        }
    }

    /// Sends the one-sided operations: they refer to memory granted on their lane, and need no credits, so they are
    /// sent before the rest of the run.
    pub(super) fn send_operations(&mut self) {
        let run = self.staging.run_of_operations();
        if self.lane.send(&self.node, run) == Outcome::Sent {
            self.staging.take_operations();
        }
    }

    /// Moves to the lane that the scheduler wants, once nothing is outstanding on the old one (FLOCK §5.2). Returns
    /// `false` if it has not moved yet.
    ///
    /// If calls are outstanding for long (their handlers may even wait for the thread's next request), it goes on with
    /// the old lane, and spends its credits even if it was deactivated: when these run low the lane asks for more, and
    /// the server sees that it is used.
    ///
    /// A run that was not sent moves along: calls are named by port, not by lane. Otherwise it might never be sent,
    /// because a deactivated lane gets no credits.
    #[cold]
    pub(super) fn migrate(&mut self) -> bool {
        if self.staging.has_operations() {
            self.send_operations();
        }
        if !self.staging.is_all_of(self.calls.outstanding()) {
            let now = thread::now();
            let since = *self.going.get_or_insert(now);
            self.is_stuck = now.duration_since(since) >= STUCK_AFTER;
            if self.is_stuck {
                self.status.stick();
            }
            return self.is_in_place();
        }
        if let Some(placed) = self
            .handle
            .placed(self.port.assigned.load(Ordering::Relaxed))
        {
            if !self.export_again(&*placed.lane) {
                return false;
            }
            self.settle(placed);
        }
        self.is_in_place()
    }

    /// Copies long requests of the run into memory of another lane. Returns `false` if there was none, and the run
    /// stays with this lane.
    pub(super) fn export_again(&mut self, lane: &dyn SharedLane) -> bool {
        let mut exports = Vec::new();
        for slot in self.staging.longs() {
            let Some(kept) = self.port.take_kept(slot) else {
                return false;
            };
            let export = lane.export(Body::Bytes(kept.bytes_ref()));
            self.port.keep(slot, kept);
            match export {
                Ok(export) => exports.push((slot, export)),
                Err(_) => return false,
            }
        }
        for (place, (slot, export)) in exports.into_iter().enumerate() {
            self.staging.replace_long(place, &export.descriptor);
            drop(self.port.take_kept(slot));
            self.port.keep(slot, export.buffer);
        }
        true
    }
}
