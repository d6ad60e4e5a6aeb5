//! Leaving the NIC: the wire as a server, the order of a queue pair's packets, fault rules, and entry into the network.

use crate::event::{Event, Ps};
use crate::faults::Verdict;
use crate::observe::{Activity, Part};
use crate::packet::Kind;
use crate::world::World;

/// The result of sending a packet.
struct Left {
    /// Time that the wire adds: waiting for its turn, and transmission.
    wire: Ps,
    /// When the packet begins to leave, and when it has left.
    at: Ps,
    gone: Ps,
    /// How long it waits for the packet before it of its queue pair.
    held_back: Ps,
}

impl World {
    /// Sends a packet of a request after `delay`; returns the time that the wire adds. Requests of a queue pair leave
    /// in order. If one waits for something of its own (its element, its context), those behind it wait in the NIC,
    /// which has room for as many as between engine and wire; beyond that the queue pair pauses until the first of them
    /// leaves.
    pub(super) fn emit_request(&mut self, qp: u32, packet: u32, delay: Ps) -> Ps {
        let left = self.leave(packet, delay, self.pairs[qp as usize].leaves_at);
        let pair = &mut self.pairs[qp as usize];
        pair.leaves_at = left.gone;
        pair.held_back = match left.held_back {
            0 => 0,
            _ => pair.held_back + (left.gone - left.at),
        };
        let (host, held_back) = (usize::from(pair.host), pair.held_back);
        if held_back > self.hosts[host].nic.wire_backlog() {
            self.pairs[qp as usize].held_back = 0;
            self.pause_sender(qp, self.now + left.held_back);
        }
        self.pace_request(qp, packet);
        self.travel(packet, left.at);
        left.wire
    }

    /// Sends an answer after `delay`, behind the answers before it.
    pub(super) fn emit_answer(&mut self, qp: u32, packet: u32, delay: Ps) {
        let left = self.leave(packet, delay, self.pairs[qp as usize].answers_at);
        self.pairs[qp as usize].answers_at = left.gone;
        if self.packets[packet].kind == Kind::ReadResponse {
            self.pace(qp, packet);
        }
        self.travel(packet, left.at);
    }

    /// Sends a packet of the NIC itself.
    pub(super) fn emit_control(&mut self, packet: u32, delay: Ps) {
        let left = self.leave(packet, delay, 0);
        self.travel(packet, left.at);
    }

    /// Takes the wire's time: the packet waits for those that were given to the wire before it. Latency delays no other
    /// packets except those of the same queue pair: these also leave the wire in order, so `not_before` is when the one
    /// before has left.
    fn leave(&mut self, packet: u32, delay: Ps, not_before: Ps) -> Left {
        let entry = &mut self.packets[packet];
        let host = entry.from;
        let nic = &mut self.hosts[usize::from(host)].nic;
        let bytes = nic.parameters.header_bytes as u32
            + entry.extended_bytes()
            + entry.payload.len() as u32;
        entry.wire_bytes = bytes;
        let start = nic.wire_free.max(self.now);
        let time = (f64::from(bytes) * nic.wire_byte) as Ps;
        let outside = entry.to != host;
        if outside {
            nic.wire_free = start + time;
        }
        nic.counters.packets_sent += 1;
        nic.counters.wire_bytes += u64::from(bytes);
        let waits = start - self.now;
        let ready = self.now + delay + waits;
        let at = ready.max(not_before);
        if outside {
            let activity = Activity::Bytes(u64::from(bytes));
            self.observe_busy(host, Part::Wire, activity, (start, start + time));
        }
        Left {
            wire: waits + time,
            at,
            gone: if outside { at + time } else { at },
            held_back: at - ready,
        }
    }

    /// Sends a packet into the network at `at`, unless a fault rule decides otherwise.
    pub(crate) fn travel(&mut self, packet: u32, at: Ps) {
        let (from, to) = (self.packets[packet].from, self.packets[packet].to);
        if self.hosts[usize::from(from)].crashed {
            self.packets.give_back(packet);
            return;
        }
        self.observe_departure(packet, at);
        if self.faults.is_active() {
            match self.faults.judge(&self.packets[packet]) {
                Verdict::Pass => {}
                Verdict::Drop => {
                    self.hosts[usize::from(from)].nic.counters.fault_drops += 1;
                    self.packets.give_back(packet);
                    return;
                }
                Verdict::Delay(delay) => {
                    self.held_back += 1;
                    let late = at.saturating_add(delay);
                    self.queue.push(late, from, Event::Emit { packet });
                    return;
                }
                Verdict::Duplicate(delay) => {
                    let copy = self.packets.take();
                    self.packets[copy] = self.packets[packet].clone();
                    self.held_back += 1;
                    let late = at.saturating_add(delay);
                    self.queue.push(late, from, Event::Emit { packet: copy });
                }
            }
        }
        if from == to {
            let loopback = self.hosts[usize::from(from)].nic.parameters.loopback;
            self.send(from, at + loopback, to, Event::Arrive { host: to, packet });
        } else {
            self.enter_network(packet, at);
        }
    }
}
