//! Engines: which piece of work is next.

use dunlin_verbs::SendFlags;

use crate::event::{Event, Ps};
use crate::observe::Activity;
use crate::world::World;

use super::{Source, RECEIVER};

/// DMA writes may be this far behind before the engine stops taking packets in.
const UP_BACKLOG: Ps = 1_000_000;

impl World {
    /// Something may be to do for an engine: does it, or makes sure that it will be done.
    pub(crate) fn kick(&mut self, host: u16, engine: u8) {
        let now = self.now;
        let state = &mut self.hosts[usize::from(host)].nic.engines[usize::from(engine)];
        if state.free_at <= now {
            self.run_engine(host, engine);
        } else if state.wakes_at > state.free_at {
            state.wakes_at = state.free_at;
            let at = state.free_at;
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

    /// Carries out one piece of work and plans the next.
    fn run_engine(&mut self, host: u16, engine: u8) {
        loop {
            let now = self.now;
            let nic = &self.hosts[usize::from(host)].nic;
            let sends = nic.sender() == engine;
            // When it cannot send or receive for lack of room further on: until when.
            let mut not_before = Ps::MAX;
            let mut may_receive = engine == RECEIVER && !nic.arrived.is_empty();
            if may_receive && nic.up_free > now + UP_BACKLOG {
                not_before = nic.up_free - UP_BACKLOG;
                may_receive = false;
            }
            let mut may_send = sends && !nic.ring.is_empty() && !nic.paused;
            let backlog = nic.wire_backlog();
            if may_send && nic.wire_free > now + backlog {
                not_before = not_before.min(nic.wire_free - backlog);
                may_send = false;
            }
            if may_receive && may_send {
                // What has arrived goes first: it holds buffers, a request only waits in host memory.
                may_send = false;
            }
            let time = if may_receive {
                Some(self.receive_next(host))
            } else if may_send {
                self.send_next(host)
            } else {
                if not_before != Ps::MAX {
                    let state = &mut self.hosts[usize::from(host)].nic.engines[usize::from(engine)];
                    if state.wakes_at > not_before {
                        state.wakes_at = not_before;
                        self.queue
                            .push(not_before, host, Event::Engine { host, engine });
                    }
                }
                return;
            };
            let nic = &mut self.hosts[usize::from(host)].nic;
            let Some(time) = time else { continue };
            let state = &mut nic.engines[usize::from(engine)];
            state.free_at = now + time;
            let more =
                engine == RECEIVER && !nic.arrived.is_empty() || sends && !nic.ring.is_empty();
            if more && time > 0 {
                let state = &mut nic.engines[usize::from(engine)];
                if state.wakes_at > state.free_at {
                    state.wakes_at = state.free_at;
                    let at = state.free_at;
                    self.queue.push(at, host, Event::Engine { host, engine });
                }
                return;
            }
            if !more {
                return;
            }
        }
    }

    fn receive_next(&mut self, host: u16) -> Ps {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let packet = nic.arrived.pop_front().expect("checked by the caller");
        let bytes = self.packets[packet].wire_bytes;
        nic.arrived_bytes -= u64::from(bytes);
        nic.headroom.remove(bytes, &mut self.tight);
        let kind = self.packets[packet].kind;
        let time = self.receive(host, packet);
        self.maybe_unpause(host);
        let time = (time as f64 * self.hosts[usize::from(host)].slowness) as Ps;
        self.observe_engine(host, RECEIVER, Activity::Receive(kind), time);
        time
    }

    /// Lets the next source send one packet; none when it had nothing after all.
    fn send_next(&mut self, host: u16) -> Option<Ps> {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let source = *nic.ring.front()?;
        if nic.burst_left == 0 {
            nic.burst_left = (nic.parameters.tx_burst as u32).max(1);
        }
        let time = match source {
            Source::Requests(qp) => self.transmit(host, qp),
            Source::Answers(qp) => self.transmit_answer(host, qp),
        };
        let more = time.is_some()
            && match source {
                Source::Requests(qp) => self.may_transmit(qp),
                Source::Answers(qp) => self.has_stream(qp),
            };
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.burst_left -= 1;
        if !more {
            nic.ring.pop_front();
            nic.burst_left = 0;
            match source {
                Source::Requests(qp) => {
                    self.pairs[qp as usize].in_ring = false;
                    self.plan_fence(qp);
                }
                Source::Answers(qp) => self.pairs[qp as usize].answering = false,
            }
        } else if nic.burst_left == 0 {
            nic.ring.rotate_left(1);
        }
        let activity = match source {
            Source::Requests(_) => Activity::Request,
            Source::Answers(_) => Activity::Answer,
        };
        let engine = self.hosts[usize::from(host)].nic.sender();
        self.observe_engine(host, engine, activity, time.unwrap_or(0));
        time
    }

    /// When the next request only waits for bytes on their way into memory: looks again when they are there.
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
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.ring.push_back(Source::Requests(qp));
        let engine = nic.sender();
        self.kick(host, engine);
    }
}
