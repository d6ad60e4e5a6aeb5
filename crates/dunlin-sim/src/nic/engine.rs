//! Engines: the choice of the next piece of work.

use dunlin_verbs::{SendFlags, Transport};

use crate::event::{Event, Ps};
use crate::observe::Activity;
use crate::world::World;

use super::{Source, RECEIVER};

/// Backlog of DMA writes above which the engine stops processing arrived packets.
const UP_BACKLOG: Ps = 1_000_000;

impl World {
    /// Lets an engine do work that may be available, or makes sure that it will be done.
    pub(crate) fn kick(&mut self, host: u16, engine: u8) {
        let now = self.now;
        let state = &mut self.hosts[usize::from(host)].nic.engines[usize::from(engine)];
        if state.free_at <= now {
            self.run_engine(host, engine);
        } else {
            let at = state.free_at;
            self.plan_engine(host, engine, at);
        }
    }

    /// Schedules a look of an engine at its work for `at`, unless it looks sooner. Unlike a kick, this may be called
    /// from what the engine itself is doing.
    pub(super) fn plan_engine(&mut self, host: u16, engine: u8, at: Ps) {
        let state = &mut self.hosts[usize::from(host)].nic.engines[usize::from(engine)];
        if state.wakes_at > at {
            state.wakes_at = at;
            self.queue.push(at, host, Event::Engine { host, engine });
        }
    }

    /// The event of an engine.
    pub(crate) fn engine_event(&mut self, host: u16, engine: u8) {
        let now = self.now;
        let state = &mut self.hosts[usize::from(host)].nic.engines[usize::from(engine)];
        if state.wakes_at <= now {
            state.wakes_at = Ps::MAX;
        }
        self.kick(host, engine);
    }

    /// Carries out one piece of work and schedules the next.
    fn run_engine(&mut self, host: u16, engine: u8) {
        loop {
            let now = self.now;
            let nic = &self.hosts[usize::from(host)].nic;
            let sends = nic.sender() == engine;
            // The time until which it cannot send or receive for lack of room further on.
            let mut not_before = Ps::MAX;
            let mut may_receive = engine == RECEIVER && nic.arrived.waiting() != 0;
            if may_receive && nic.up_free > now + UP_BACKLOG {
                not_before = nic.up_free - UP_BACKLOG;
                may_receive = false;
            }
            let mut may_send = sends && nic.ring.waiting() & !nic.paused != 0;
            if may_send && nic.dma_from > now {
                not_before = not_before.min(nic.dma_from);
                may_send = false;
            }
            let backlog = nic.wire_backlog();
            if may_send && nic.wire_free > now + backlog {
                not_before = not_before.min(nic.wire_free - backlog);
                may_send = false;
            }
            if may_receive && may_send {
                // Arrived packets go first: they occupy buffers, while a request only waits in host memory.
                may_send = false;
            }
            let time = if may_receive {
                Some(self.receive_next(host))
            } else if may_send {
                self.send_next(host)
            } else {
                if not_before != Ps::MAX {
                    self.plan_engine(host, engine, not_before);
                }
                return;
            };
            let nic = &mut self.hosts[usize::from(host)].nic;
            let Some(time) = time else { continue };
            let state = &mut nic.engines[usize::from(engine)];
            state.free_at = now + time;
            let more = engine == RECEIVER && nic.arrived.waiting() != 0
                || sends && nic.ring.waiting() != 0;
            if more && time > 0 {
                self.plan_engine(host, engine, now + time);
                return;
            }
            if !more {
                return;
            }
        }
    }

    fn receive_next(&mut self, host: u16) -> Ps {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let waiting = nic.arrived.waiting();
        let priority = nic.receives.next(waiting).expect("checked by the caller");
        let packet = nic.arrived.pop(priority).expect("it waits");
        let bytes = self.packets[packet].wire_bytes;
        nic.receives.serve(priority, u64::from(bytes));
        nic.arrived_bytes[usize::from(priority)] -= u64::from(bytes);
        nic.headroom.remove(bytes, &mut self.tight);
        let kind = self.packets[packet].kind;
        let time = self.receive(host, packet);
        self.maybe_unpause(host, priority);
        let time = (time as f64 * self.hosts[usize::from(host)].slowness) as Ps;
        self.observe_engine(host, RECEIVER, Activity::Receive(kind), time);
        time
    }

    /// Lets the next source send one packet; `None` when it had nothing to send after all.
    fn send_next(&mut self, host: u16) -> Option<Ps> {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let priority = nic.sends.next(nic.ring.waiting() & !nic.paused)?;
        let source = *nic.ring.front(priority)?;
        let burst_left = &mut nic.burst_left[usize::from(priority)];
        if *burst_left == 0 {
            *burst_left = (nic.parameters.tx_burst as u32).max(1);
        }
        let before = nic.counters.wire_bytes;
        let time = match source {
            Source::Requests(qp) => self.transmit(host, qp),
            Source::Answers(qp) => self.transmit_answer(host, qp),
        };
        let more = time.is_some()
            && match source {
                Source::Requests(qp) => self.may_transmit(qp),
                Source::Answers(qp) => self.may_answer(qp),
            };
        let moves = more && self.priority_of(source) != priority;
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.sends.serve(priority, nic.counters.wire_bytes - before);
        let burst_left = &mut nic.burst_left[usize::from(priority)];
        *burst_left -= 1;
        if moves {
            *burst_left = 0;
            nic.ring.pop(priority);
            let priority = self.priority_of(source);
            let nic = &mut self.hosts[usize::from(host)].nic;
            nic.ring.push(priority, source);
        } else if !more {
            *burst_left = 0;
            nic.ring.pop(priority);
            match source {
                Source::Requests(qp) => {
                    self.pairs[qp as usize].in_ring = false;
                    self.plan_fence(qp);
                }
                Source::Answers(qp) => self.pairs[qp as usize].answering = false,
            }
        } else if *burst_left == 0 {
            nic.ring.rotate(priority);
        }
        let activity = match source {
            Source::Requests(_) => Activity::Request,
            Source::Answers(_) => Activity::Answer,
        };
        let engine = self.hosts[usize::from(host)].nic.sender();
        self.observe_engine(host, engine, activity, time.unwrap_or(0));
        time
    }

    /// The priority of what a source sends next: datagrams have the priority of their address handles.
    fn priority_of(&self, source: Source) -> u8 {
        let (Source::Requests(qp) | Source::Answers(qp)) = source;
        let pair = &self.pairs[qp as usize];
        match (pair.transport, source) {
            (Transport::UnreliableDatagram, Source::Requests(_)) => pair
                .element(pair.cursor)
                .and_then(|element| element.target)
                .map_or(pair.priority, |target| target.priority),
            _ => pair.priority,
        }
    }

    /// If the next request only waits for bytes on their way into memory, schedules another look for when they have
    /// arrived.
    fn plan_fence(&mut self, qp: u32) {
        let pair = &self.pairs[qp as usize];
        let (host, stamp, at) = (pair.host, pair.stamp, pair.fenced_until);
        let fenced = pair.element(pair.cursor).is_some_and(|next| {
            next.packets == 0 && next.flags.contains(SendFlags::FENCE) && pair.cursor < pair.rung
        });
        if fenced && pair.fetching == 0 && at > self.now {
            self.queue.push(at, host, Event::Resume { qp, stamp });
        }
    }

    /// Puts a queue pair into the ring of senders if it has something to send.
    pub(crate) fn wake_sender(&mut self, qp: u32) {
        let pair = &self.pairs[qp as usize];
        if pair.in_ring {
            return;
        }
        if !self.may_transmit(qp) {
            self.plan_fence(qp);
            return;
        }
        let pair = &mut self.pairs[qp as usize];
        pair.in_ring = true;
        let host = pair.host;
        let priority = self.priority_of(Source::Requests(qp));
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.ring.push(priority, Source::Requests(qp));
        let engine = nic.sender();
        self.kick(host, engine);
    }
}
