//! Loss detection and recovery: by an acknowledgement of a later work request, by timeout, or with the failure of a
//! queue pair.

use super::transmit::fragment_bytes;
use super::{Carried, NewSend, Outbound, State};
use crate::congestion::Loss;
use crate::connection::action::{Action, Failure, LostBy, MessageId, Piece};
use crate::connection::context::Context;
use crate::number::WriteNumber;
use crate::wire::Content;

impl Outbound {
    /// Declares lost what was posted long enough before an acknowledged work request and is not acknowledged itself.
    pub(super) fn overtaken(&mut self, cx: &mut Context, now_ns: u64, latest: u64) {
        let end = latest.saturating_sub(cx.modules.reliability.reordering().saturating_sub(1));
        self.skip_settled();
        let lost: Vec<u64> = (self.oldest_out..end)
            .filter(|global| self.is_out(*global))
            .collect();
        if !lost.is_empty() {
            let requests = u32::try_from(lost.len()).unwrap_or(u32::MAX);
            let loss = Loss::Overtaken(requests);
            cx.modules.congestion.lost(now_ns, loss);
            cx.modules.chunking.lost();
        }
        for global in lost {
            self.lose(cx, global);
        }
    }

    pub(super) fn is_out(&self, global: u64) -> bool {
        let work = self.works.get(global);
        work.is_some_and(|work| work.state == State::Out)
    }

    pub(super) fn skip_settled(&mut self) {
        while self.oldest_out < self.works.next() && !self.is_out(self.oldest_out) {
            self.oldest_out += 1;
        }
    }

    /// Handles the loss of a work request: its contents must be sent again.
    pub(super) fn lose(&mut self, cx: &mut Context, global: u64) {
        let Some(work) = self.works.get_mut(global) else {
            return;
        };
        work.state = State::Lost;
        self.in_flight -= work.bytes;
        self.out -= 1;
        match work.carried {
            Carried::Send(number) => {
                if self
                    .sends
                    .get(number)
                    .is_some_and(|send| send.latest == global)
                {
                    self.repeats.push_back(number);
                }
            }
            Carried::Write(key) => self.repair(cx, key),
        }
    }

    /// Splits a lost write into SENDs.
    pub(super) fn repair(&mut self, cx: &Context, key: u32) {
        let Some(write) = self.writes.get_mut(&key).filter(|write| !write.repeated) else {
            return;
        };
        if write.abandoned {
            self.writes.remove(&key);
            return;
        }
        write.repeated = true;
        write.remaining = write.piece.bytes;
        let unit = cx.modules.chunking.unit_bytes();
        let window = cx.modules.congestion.window_bytes();
        let available = window.saturating_sub(self.in_flight);
        let chunk = cx.modules.chunking.chunk_bytes(available);
        let chunk = chunk.min(fragment_bytes(cx));
        let mut begin = 0;
        // At least one: a message without bytes is complete when its only piece has arrived.
        loop {
            let bytes = chunk.min(write.piece.bytes - begin);
            self.repairs.push_back(NewSend {
                content: Content::Chunk(WriteNumber {
                    offset_units: write.number.offset_units + begin / unit,
                    ..write.number
                }),
                piece: Some(Piece {
                    offset: write.piece.offset + begin,
                    bytes,
                    ..write.piece
                }),
                message: None,
                parent: Some(key),
            });
            begin += bytes;
            if begin >= write.piece.bytes {
                return;
            }
        }
    }

    /// When something may next have timed out.
    pub(in crate::connection) fn timer_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    /// Checks for timeouts.
    pub(in crate::connection) fn handle_timer(&mut self, cx: &mut Context, now_ns: u64) {
        if cx.lost || self.timer_ns.is_none_or(|timer| now_ns < timer) {
            return;
        }
        self.skip_settled();
        self.timer_ns = None;
        let mut expired = Vec::new();
        for global in self.oldest_out..self.works.next() {
            let Some(work) = self
                .works
                .get(global)
                .filter(|work| work.state == State::Out)
            else {
                continue;
            };
            let timeouts = self.timeouts(work.carried);
            let Some(timeout_ns) = cx.modules.reliability.timeout_ns(timeouts) else {
                continue;
            };
            let since_ns = work.posted_ns.max(work.completed_ns.unwrap_or(0));
            let deadline_ns = since_ns.saturating_add(timeout_ns);
            if deadline_ns <= now_ns {
                expired.push(global);
            } else {
                let timer_ns = self.timer_ns.unwrap_or(u64::MAX);
                self.timer_ns = Some(timer_ns.min(deadline_ns));
            }
        }
        if expired.is_empty() {
            return;
        }
        let mut most = 1;
        for global in &expired {
            let Some(carried) = self.works.get(*global).map(|work| work.carried) else {
                continue;
            };
            if let Carried::Send(number) = carried {
                if let Some(send) = self.sends.get_mut(number) {
                    send.timeouts += 1;
                    most = most.max(send.timeouts);
                }
            }
        }
        cx.counters.timeouts += 1;
        // First, because the chunk size for what is lost depends on it.
        cx.modules.congestion.lost(now_ns, Loss::Timeout(most));
        cx.modules.chunking.lost();
        for global in expired {
            self.lose(cx, global);
        }
        let reliability = &cx.modules.reliability;
        let limit = match cx.paths.next_epoch() {
            Some(_) => reliability.max_timeouts(),
            None => reliability.last_timeouts(),
        };
        if most > limit {
            let by = LostBy::Silence { timeouts: most };
            self.path_failed(cx, now_ns, cx.paths.primary(), by);
        }
    }

    /// Handles the failure of a queue pair. If it is the primary, a backup takes over; without one the connection is
    /// lost, for the reason `by`.
    pub(in crate::connection) fn path_failed(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        path: usize,
        by: LostBy,
    ) {
        if cx.lost || path != cx.paths.primary() {
            return;
        }
        match cx.paths.next_epoch() {
            Some(epoch) => self.change_epoch(cx, now_ns, epoch),
            None => {
                cx.lost = true;
                cx.lost_by = Some(by);
            }
        }
    }

    /// Changes to another queue pair: what is not acknowledged is sent again there (Flor §6).
    pub(in crate::connection) fn change_epoch(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        epoch: u64,
    ) {
        cx.counters.switches += 1;
        // First, because the chunk size for what is lost depends on it.
        cx.modules.congestion.lost(now_ns, Loss::Timeout(1));
        cx.modules.chunking.lost();
        let fenced = cx.paths.change(epoch);
        for (path, step) in &fenced {
            cx.actions.push_back(Action::Fence { path: *path });
            if let Some(step) = step {
                cx.step(*path, *step);
            }
        }
        // Statements about a queue pair that has failed again are no longer true.
        let stale = |content: &Content| match content {
            Content::Renewed { path, .. } | Content::Ready { path } => {
                fenced.iter().any(|(number, _)| *number == *path as usize)
            }
            _ => false,
        };
        self.control.retain(|new| !stale(&new.content));
        for send in self.sends.iter_mut() {
            send.timeouts = 0;
            if stale(&send.new.content) {
                send.new.content = Content::Empty;
            }
        }
        self.skip_settled();
        for global in self.oldest_out..self.works.next() {
            if self.is_out(global) {
                self.lose(cx, global);
            }
        }
        self.timer_ns = None;
        // This informs the peer of the change.
        self.control.push_front(NewSend::control(Content::Empty));
    }

    /// Gives up these messages: nothing of them is sent any more. Numbers that the peer may wait for are sent without
    /// bytes, so that later SENDs arrive.
    pub(in crate::connection) fn abandon(
        &mut self,
        cx: &mut Context,
        which: impl Fn(MessageId) -> bool,
    ) {
        let given_up = |id: u64| which(MessageId(id));
        let writes = &self.writes;
        let of_them = |new: &NewSend| match (new.message, new.parent) {
            (Some(id), _) => given_up(id),
            // The retransmissions of a write that is over are not needed.
            (None, Some(key)) => writes
                .get(&key)
                .is_none_or(|write| which(write.piece.message)),
            (None, None) => false,
        };
        self.control.retain(|new| !of_them(new));
        self.repairs.retain(|new| !of_them(new));
        for send in self.sends.iter_mut() {
            if of_them(&send.new) {
                send.new = NewSend::control(Content::Empty);
            }
        }
        for waiting in [&mut self.small, &mut self.unannounced, &mut self.granted] {
            waiting.retain(|id| !given_up(*id));
        }
        // A write in flight may still be acknowledged.
        self.writes
            .retain(|_, write| !(write.repeated && which(write.piece.message)));
        for write in self.writes.values_mut() {
            write.abandoned |= which(write.piece.message);
        }
        self.fail_messages(cx, Failure::Abandoned, given_up);
    }

    fn fail_messages(&mut self, cx: &mut Context, failure: Failure, which: impl Fn(u64) -> bool) {
        let ids = self.messages.iter().map(|(id, _)| id);
        let ids: Vec<u64> = ids.filter(|id| which(*id)).collect();
        for id in ids {
            if let Some(message) = self.messages.get_mut(id) {
                message.failure.get_or_insert(failure);
            }
            self.settle(cx, id);
        }
    }

    /// Fails all messages: the connection is lost.
    pub(in crate::connection) fn give_up(&mut self, cx: &mut Context) {
        self.fail_messages(cx, Failure::ConnectionLost, |_| true);
        self.timer_ns = None;
    }
}
