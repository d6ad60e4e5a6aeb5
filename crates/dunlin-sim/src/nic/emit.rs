//! Leaving the NIC: the wire as a server, the order of a queue pair's packets, fault rules, the way into the network.

use crate::event::{Event, Ps};
use crate::faults::Verdict;
use crate::observe::{Activity, Part};
use crate::world::World;

impl World {
    /// A request's packet leaves after `delay`; gives what the wire adds. Requests of a queue pair leave in order.
    pub(super) fn emit_request(&mut self, qp: u32, packet: u32, delay: Ps) -> Ps {
        let (wire, leaves) = self.leave(packet, delay, self.pairs[qp as usize].leaves_at);
        self.pairs[qp as usize].leaves_at = leaves;
        self.pace(qp, packet);
        self.travel(packet, leaves);
        wire
    }

    /// An answer leaves after `delay`, behind the answers before it.
    pub(super) fn emit_answer(&mut self, qp: u32, packet: u32, delay: Ps) {
        let (_, leaves) = self.leave(packet, delay, self.pairs[qp as usize].answers_at);
        self.pairs[qp as usize].answers_at = leaves;
        self.travel(packet, leaves);
    }

    /// A packet of the NIC itself leaves.
    pub(super) fn emit_control(&mut self, packet: u32, delay: Ps) {
        let (_, leaves) = self.leave(packet, delay, 0);
        self.travel(packet, leaves);
    }

    /// Takes the wire's time: the packet waits for those that were given to the wire before. Latency keeps nobody
    /// waiting.
    fn leave(&mut self, packet: u32, delay: Ps, not_before: Ps) -> (Ps, Ps) {
        let entry = &mut self.packets[packet];
        let host = entry.from;
        let nic = &mut self.hosts[usize::from(host)].nic;
        let bytes = nic.parameters.header_bytes as u32
            + entry.extended_bytes()
            + entry.payload.len() as u32;
        entry.wire_bytes = bytes;
        let start = nic.wire_free.max(self.now);
        let time = (f64::from(bytes) * nic.wire_byte) as Ps;
        if entry.to != host {
            nic.wire_free = start + time;
        }
        nic.counters.packets_sent += 1;
        nic.counters.wire_bytes += u64::from(bytes);
        let waits = start - self.now;
        if self.packets[packet].to != host {
            let activity = Activity::Bytes(u64::from(bytes));
            self.observe_busy(host, Part::Wire, activity, (start, start + time));
        }
        (waits + time, (self.now + delay + waits).max(not_before))
    }

    /// Into the network at `at`, unless a fault rule says otherwise.
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
                    self.queue.push(at + delay, from, Event::Emit { packet });
                    return;
                }
                Verdict::Duplicate(delay) => {
                    let copy = self.packets.take();
                    self.packets[copy] = self.packets[packet].clone();
                    self.held_back += 1;
                    self.queue
                        .push(at + delay, from, Event::Emit { packet: copy });
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
