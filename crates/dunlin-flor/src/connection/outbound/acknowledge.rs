//! Completions and acknowledgements: what they complete, and which messages are finished as a result.

use super::{Carried, Outbound, State};
use crate::ack::{Ack, AckedNumber};
use crate::congestion::Signals;
use crate::connection::action::{Action, LostBy, MessageId};
use crate::connection::context::Context;
use crate::number::{GlobalNumber, WriteNumber};

impl Outbound {
    /// Records that the NIC has completed a work request, at `at_ns` by the local clock if it succeeded.
    pub(in crate::connection) fn completed(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        global: GlobalNumber,
        at_ns: Option<u64>,
    ) {
        let Some(work) = self.works.get_mut(global.0).filter(|work| !work.completed) else {
            return;
        };
        work.completed = true;
        work.completed_ns = at_ns;
        let (path, epoch, message) = (work.path, work.epoch, work.message);
        if let Some(step) = cx.paths.completed(path) {
            cx.step(path, step);
        }
        if let Some(id) = message {
            if let Some(message) = self.messages.get_mut(id) {
                message.posted = message.posted.saturating_sub(1);
            }
        }
        if at_ns.is_some() && cx.modules.reliability.completion_acknowledges() {
            self.acknowledge_one(cx, now_ns, global, false, None);
        }
        if let Some(id) = message {
            self.settle(cx, id);
        }
        if at_ns.is_none() && epoch == cx.paths.epoch() {
            self.path_failed(cx, now_ns, path, LostBy::QueuePair);
        }
        self.trim();
    }

    /// Handles RC's completion, which acknowledges one work request.
    pub(super) fn acknowledge_one(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        global: GlobalNumber,
        marked: bool,
        ack: Option<(u64, u64)>,
    ) {
        let Some(work) = self.works.get(global.0) else {
            return;
        };
        let times = work.times(ack);
        if let Some(bytes) = self.close(cx, global.0) {
            let rtt_ns = cx.modules.round_trip.sample_ns(&times);
            cx.signal(
                now_ns,
                Signals {
                    bytes,
                    rtt_ns,
                    marked,
                },
                0,
            );
        }
    }

    /// Handles a software acknowledgement that arrived at `at_ns` by the local clock.
    pub(in crate::connection) fn acknowledged(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        ack: &Ack,
        at_ns: u64,
    ) {
        let mut bytes = 0;
        let mut rtt_ns = None;
        let mut latest = None;
        for number in ack.numbers() {
            let Some(global) = self.global_of(cx, *number) else {
                cx.counters.unknown_acks += 1;
                continue;
            };
            let Some(work) = self.works.get(global) else {
                continue;
            };
            let times = work.times(Some((at_ns, ack.delay_ns)));
            if work.epoch == cx.paths.epoch() {
                cx.paths.confirm();
                latest = latest.max(Some(global));
            }
            rtt_ns = None;
            if let Some(acknowledged) = self.close(cx, global) {
                bytes += acknowledged;
                // The delay refers to the packet's last number.
                rtt_ns = cx.modules.round_trip.sample_ns(&times);
            }
        }
        cx.signal(
            now_ns,
            Signals {
                bytes,
                rtt_ns,
                marked: ack.marked,
            },
            ack.delay_ns,
        );
        if let Some(latest) = latest {
            self.overtaken(cx, now_ns, latest);
        }
        self.trim();
    }

    /// The work request that a number acknowledges, if one was ever posted with that number.
    pub(super) fn global_of(&self, cx: &Context, number: AckedNumber) -> Option<u64> {
        match number {
            AckedNumber::Send(global) => {
                let carried = self.works.get(global.0)?.carried;
                matches!(carried, Carried::Send(_)).then_some(global.0)
            }
            AckedNumber::Write(immediate) => {
                let number = WriteNumber {
                    hint: false,
                    ..cx.config.layout.decode(immediate)
                };
                let key = cx.config.layout.encode(number);
                self.writes.get(&key).map(|write| write.global)
            }
        }
    }

    /// Records that a work request is acknowledged and its contents are done. Returns the number of bytes, or `None` if
    /// it was already acknowledged.
    pub(super) fn close(&mut self, cx: &mut Context, global: u64) -> Option<u64> {
        let work = self.works.get_mut(global)?;
        if work.state == State::Acknowledged {
            return None;
        }
        if work.state == State::Out {
            self.in_flight -= work.bytes;
            self.out -= 1;
        } else {
            cx.counters.spurious += 1;
        }
        work.state = State::Acknowledged;
        let bytes = work.bytes;
        match work.carried {
            Carried::Send(number) => {
                if let Some(send) = self.sends.remove(number) {
                    if let Some(key) = send.new.parent {
                        let carried = send.new.piece.map_or(0, |piece| piece.bytes);
                        self.repaired(cx, key, carried);
                    } else if let Some(id) = send.new.message {
                        self.closed(cx, id);
                    }
                }
            }
            Carried::Write(key) => self.write_done(cx, key),
        }
        Some(bytes)
    }

    pub(super) fn repaired(&mut self, cx: &mut Context, key: u32, bytes: u32) {
        if let Some(write) = self.writes.get_mut(&key) {
            write.remaining = write.remaining.saturating_sub(bytes);
            if write.remaining == 0 {
                self.write_done(cx, key);
            }
        }
    }

    pub(super) fn write_done(&mut self, cx: &mut Context, key: u32) {
        if let Some(write) = self.writes.remove(&key) {
            self.closed(cx, write.piece.message.0);
        }
    }

    pub(super) fn closed(&mut self, cx: &mut Context, id: u64) {
        if let Some(message) = self.messages.get_mut(id) {
            message.open = message.open.saturating_sub(1);
        }
        self.settle(cx, id);
    }

    /// Reports that a message is finished, if nothing of it is outstanding and the NIC reads none of its bytes.
    pub(super) fn settle(&mut self, cx: &mut Context, id: u64) {
        let Some(message) = self.messages.get(id) else {
            return;
        };
        let whole = message.all_sent && message.open == 0;
        if message.posted > 0 || !(whole || message.failure.is_some()) {
            return;
        }
        if let Some(message) = self.messages.remove(id) {
            if message.written {
                self.announced.remove(&message.number);
            }
            let outcome = message.failure.map_or(Ok(()), Err);
            cx.actions
                .push_back(Action::Finished(MessageId(id), outcome));
        }
    }

    /// Removes work requests for which no further event can arrive.
    pub(super) fn trim(&mut self) {
        while let Some((global, work)) = self.works.first() {
            let done = match (work.state, work.carried) {
                (State::Acknowledged, _) => true,
                (State::Out, _) => false,
                (State::Lost, Carried::Send(number)) => self.sends.get(number).is_none(),
                (State::Lost, Carried::Write(key)) => !self.writes.contains_key(&key),
            };
            if !done || !work.completed {
                return;
            }
            self.works.remove(global);
        }
    }
}
