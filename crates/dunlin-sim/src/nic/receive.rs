//! Packets that have arrived: their destination, and the cost of processing them.

use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionStatus, QueuePairState, Transport, GRH_BYTES,
};

use crate::event::{Event, Ps};
use crate::memory::LINE;
use crate::packet::{Kind, Place};
use crate::pair::Fetch;
use crate::priority;
use crate::work::Receive;
use crate::world::World;

use super::pcie::ENTRY_BYTES;
use super::RECEIVER;

impl World {
    /// Queues a packet that has reached the NIC for the engine.
    pub(crate) fn arrive(&mut self, host: u16, packet: u32) {
        self.observe_arrival(packet, host);
        let entry = &self.packets[packet];
        let bytes = u64::from(entry.wire_bytes);
        let (priority, bit) = (entry.priority, priority::bit(entry.priority));
        let lossless = self.network.paths.lossless & bit != 0;
        let target = &mut self.hosts[usize::from(host)];
        let nic = &mut target.nic;
        let room = nic.parameters.rx_buffer_bytes as u64;
        let waiting = &mut nic.arrived_bytes[usize::from(priority)];
        if target.crashed || *waiting + bytes > room && !lossless {
            nic.counters.buffer_drops += u64::from(!target.crashed);
            nic.headroom.remove(bytes as u32, &mut self.tight);
            self.packets.give_back(packet);
            return;
        }
        nic.arrived.push(priority, packet);
        *waiting += bytes;
        let waiting = *waiting;
        nic.counters.packets_received += 1;
        if lossless && nic.pause_sent & bit == 0 && waiting > nic.pause_level() {
            nic.pause_sent |= bit;
            nic.headroom.pause(true, &mut self.tight);
            nic.counters.pauses_sent += 1;
            self.pause_upstream(host, priority, true);
        }
        self.observe_nic(host);
        self.kick(host, RECEIVER);
    }

    /// Lets the switch resume when the buffer has room again.
    pub(super) fn maybe_unpause(&mut self, host: u16, priority: u8) {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let (bit, low) = (
            priority::bit(priority),
            nic.parameters.rx_buffer_bytes as u64 / 4,
        );
        if nic.pause_sent & bit != 0 && nic.arrived_bytes[usize::from(priority)] < low {
            nic.pause_sent &= !bit;
            nic.headroom.pause(nic.pause_sent != 0, &mut self.tight);
            self.pause_upstream(host, priority, false);
        }
    }

    /// Processes an arrived packet; returns the engine's time.
    pub(super) fn receive(&mut self, host: u16, packet: u32) -> Ps {
        let entry = &self.packets[packet];
        let found = self.hosts[usize::from(host)].pair_of(entry.to_number);
        let Some(qp) = found else {
            self.packets.give_back(packet);
            return self.hosts[usize::from(host)].nic.parameters.rx_ack;
        };
        let pair = &self.pairs[qp as usize];
        let listens = matches!(
            pair.state,
            QueuePairState::ReadyToReceive
                | QueuePairState::ReadyToSend
                | QueuePairState::SendQueueDrained
                | QueuePairState::SendQueueError
        );
        let known = match pair.transport {
            Transport::UnreliableDatagram => entry.kind == Kind::Datagram,
            _ => {
                let ours = pair.peer.is_some_and(|peer| {
                    peer.host == entry.from
                        && peer.stamp == entry.from_stamp
                        && peer.number == entry.from_number
                });
                ours && entry.to_stamp == pair.stamp && entry.kind != Kind::Datagram
            }
        };
        if !listens || !known {
            self.packets.give_back(packet);
            return self.hosts[usize::from(host)].nic.parameters.rx_ack;
        }
        self.packets[packet].local_qp = qp;
        if self.packets[packet].congested {
            self.notify_congestion(qp, packet);
        }
        match self.packets[packet].kind {
            Kind::Datagram => self.datagram(host, qp, packet),
            Kind::Acknowledge | Kind::Refuse(_) | Kind::ReadResponse | Kind::AtomicResponse => {
                self.answered(host, qp, packet)
            }
            Kind::Congestion => {
                self.slow_down(qp);
                self.packets.give_back(packet);
                self.hosts[usize::from(host)].nic.parameters.rx_ack
            }
            _ => self.respond(host, qp, packet),
        }
    }

    /// Delivers a datagram into the next RECEIVE, behind a routing header, or drops it.
    fn datagram(&mut self, host: u16, qp: u32, packet: u32) -> Ps {
        let mut cost = self.touch_responder(host, qp);
        let entry = &self.packets[packet];
        let bytes = entry.payload.len() as u64;
        let total = bytes + GRH_BYTES as u64;
        let pair = &self.pairs[qp as usize];
        let right_key = entry.key == pair.queue_key;
        let (immediate, solicited) = (entry.immediate, entry.solicited);
        let source = entry.from_number;
        let queue = pair.receives;
        let fits = self.receives[queue]
            .entries
            .front()
            .is_some_and(|receive| receive.segs.length() >= total);
        let nic = &mut self.hosts[usize::from(host)].nic;
        cost.engine += nic.parameters.rx_datagram + nic.payload_time(bytes);
        let pipeline = nic.parameters.pipeline;
        if !right_key || !fits {
            nic.counters.receiver_drops += 1;
            self.packets.give_back(packet);
            return cost.engine;
        }
        nic.counters.messages_received += 1;
        let (receive, fetch) = self
            .take_receive(host, queue)
            .expect("there is one that fits");
        cost.latency += fetch;
        let alive = self.segs_alive(host, &receive.segs);
        let nic = &self.hosts[usize::from(host)].nic;
        let from = match nic.parameters.has_network_header() {
            true => 0,
            false => GRH_BYTES as u64,
        };
        let placed = self.price_of_segs(host, &receive.segs, from, total - from);
        cost += placed;
        let at = self.place_time(qp, self.now + cost.engine + cost.latency + pipeline);
        let status = if alive {
            CompletionStatus::Success
        } else {
            CompletionStatus::LocalProtection
        };
        let completion = Completion {
            id: receive.id,
            status,
            opcode: CompletionOpcode::Receive,
            bytes: total as usize,
            immediate,
            source_queue_pair: Some(source),
            ..Completion::EMPTY
        };
        let stamp = self.pairs[qp as usize].stamp;
        let entry = &mut self.packets[packet];
        entry.to_stamp = stamp;
        entry.place = Place::Scatter {
            segs: receive.segs,
            offset: GRH_BYTES as u64,
        };
        self.queue.push(at, host, Event::Place { packet });
        let context = self.touch_completions(host, self.pairs[qp as usize].receive_cq);
        let follows_data = total > from;
        let written =
            self.completion_latency(host, follows_data) + context.engine + context.latency;
        cost += context;
        self.complete_receive(qp, completion, solicited, at + written);
        cost.engine
    }

    /// Takes the next RECEIVE of a queue. Also returns the time of fetching its element, if the NIC does not have it
    /// yet.
    pub(super) fn take_receive(&mut self, host: u16, queue: u32) -> Option<(Receive, Ps)> {
        let (receive, fetch) = self.receives[queue].take()?;
        let fetch = match fetch {
            Fetch::Had => 0,
            Fetch::Asked(at) => at.saturating_sub(self.now),
            Fetch::Needed => self.dma_read(host, LINE),
        };
        if self.receives[queue].wants_ahead() {
            let at = self.now + self.dma_read(host, LINE);
            self.receives[queue].asked_ahead(at);
        }
        Some((receive, fetch))
    }

    /// Orders a placement behind those before it on the queue pair.
    pub(super) fn place_time(&mut self, qp: u32, at: Ps) -> Ps {
        let pair = &mut self.pairs[qp as usize];
        let at = at.max(pair.places_at);
        pair.places_at = at;
        at
    }

    /// The time that the DMA of a completion entry adds. Behind data of its own this is only its own time: the caller
    /// that has counted the data's way into memory has counted the backlog before the data, and the data. Without such
    /// data it waits for the backlog.
    pub(super) fn completion_latency(&mut self, host: u16, follows_data: bool) -> Ps {
        let nic = &self.hosts[usize::from(host)].nic;
        let base = nic.parameters.dma_write;
        let own = nic.pcie_time(ENTRY_BYTES + nic.parameters.pcie_request_bytes as u64);
        let waited = self.dma_write(host, ENTRY_BYTES).saturating_sub(base);
        if follows_data {
            own
        } else {
            waited
        }
    }
}
