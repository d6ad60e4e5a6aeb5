//! Answers of the responder: acknowledgements, refusals and responses, in the order of the requests.

use dunlin_verbs::Transport;

use crate::event::Ps;
use crate::packet::{Kind, Refusal};
use crate::pair::Answer;
use crate::priority;
use crate::world::World;

use super::Source;

impl World {
    /// Creates a packet for the peer of `qp`.
    fn answer_packet(&mut self, qp: u32, kind: Kind, psn: u64) -> Option<u32> {
        let pair = &self.pairs[qp as usize];
        let peer = pair.peer?;
        let (from, from_number, from_stamp) = (pair.host, pair.number, pair.stamp);
        let unreliable = pair.transport == Transport::UnreliableConnection;
        let priority = pair.priority;
        let index = self.packets.take();
        let packet = &mut self.packets[index];
        packet.clear();
        packet.kind = kind;
        packet.psn = psn;
        packet.priority = priority;
        packet.from = from;
        packet.from_number = from_number;
        packet.unreliable = unreliable;
        packet.from_stamp = from_stamp;
        packet.to = peer.host;
        packet.to_number = peer.number;
        packet.to_stamp = peer.stamp;
        Some(index)
    }

    /// Acknowledges everything up to `psn`.
    pub(super) fn acknowledge(&mut self, qp: u32, psn: u64) {
        if let Some(packet) = self.answer_packet(qp, Kind::Acknowledge, psn) {
            self.queue_answer(qp, packet);
        }
    }

    /// Refuses the request at `psn`.
    pub(super) fn refuse(&mut self, qp: u32, psn: u64, refusal: Refusal) {
        if let Some(packet) = self.refusal_packet(qp, psn, refusal) {
            self.queue_answer(qp, packet);
        }
    }

    /// Creates the refusal of the request at `psn`.
    pub(super) fn refusal_packet(&mut self, qp: u32, psn: u64, refusal: Refusal) -> Option<u32> {
        self.answer_packet(qp, Kind::Refuse(refusal), psn)
    }

    /// Creates the response of an atomic, with the old value.
    pub(super) fn atomic_packet(&mut self, qp: u32, psn: u64, old: u64) -> Option<u32> {
        let packet = self.answer_packet(qp, Kind::AtomicResponse, psn)?;
        self.packets[packet].operands = [old, 0];
        Some(packet)
    }

    /// Sends the old value of an atomic that was repeated.
    pub(super) fn answer_atomic(&mut self, qp: u32, psn: u64, old: u64) {
        if let Some(packet) = self.atomic_packet(qp, psn, old) {
            self.queue_answer(qp, packet);
        }
    }

    /// Sends a congestion notification at once.
    pub(super) fn send_notification(&mut self, qp: u32) {
        if let Some(packet) = self.answer_packet(qp, Kind::Congestion, 0) {
            let pipeline = self.pipeline_of(qp);
            self.emit_control(packet, pipeline);
        }
    }

    fn pipeline_of(&self, qp: u32) -> Ps {
        let host = self.pairs[qp as usize].host;
        self.hosts[usize::from(host)].nic.parameters.pipeline
    }

    /// Sends an answer that is ready, or queues it behind those before it. Called while an engine handles the request.
    fn queue_answer(&mut self, qp: u32, packet: u32) {
        let first = self.pairs[qp as usize].answers.is_empty();
        if first && !self.is_held(qp, packet) {
            let pipeline = self.pipeline_of(qp);
            return self.emit_answer(qp, packet, pipeline);
        }
        let answers = &mut self.pairs[qp as usize].answers;
        answers.push_back(Answer::Packet(packet));
        if first && self.ring_answers(qp) {
            let host = self.pairs[qp as usize].host;
            let engine = self.hosts[usize::from(host)].nic.sender();
            self.plan_engine(host, engine, self.now);
        }
    }

    /// Whether a packet may not be given to the wire now: its priority is paused, or it carries data, and the wire has
    /// enough or its flow was slowed down. Acknowledgements do not wait for room on the wire: they are short, and fewer
    /// than the packets that arrived.
    fn is_held(&self, qp: u32, packet: u32) -> bool {
        let entry = &self.packets[packet];
        let nic = &self.hosts[usize::from(entry.from)].nic;
        let paused = nic.paused & priority::bit(entry.priority) != 0;
        let data = || {
            let full = nic.wire_free > self.now + nic.wire_backlog();
            entry.kind == Kind::ReadResponse && (full || self.is_slowed(qp))
        };
        entry.to != entry.from && (paused || data())
    }

    /// Sets the answer of the oldest READ or atomic that awaits one.
    pub(super) fn resolve_answer(&mut self, qp: u32, answer: Option<Answer>) {
        let answers = &mut self.pairs[qp as usize].answers;
        let awaited = answers
            .iter()
            .position(|answer| matches!(answer, Answer::Awaited));
        match (awaited, answer) {
            (Some(at), Some(answer)) => answers[at] = answer,
            (Some(at), None) => {
                answers.remove(at);
            }
            (None, Some(Answer::Packet(packet))) => self.packets.give_back(packet),
            (None, _) => {}
        }
        self.drain_answers(qp);
    }

    /// Sends the answers that are ready, in order.
    pub(super) fn drain_answers(&mut self, qp: u32) {
        let pipeline = self.pipeline_of(qp);
        while let Some(&Answer::Packet(packet)) = self.pairs[qp as usize].answers.front() {
            if self.is_held(qp, packet) {
                break;
            }
            self.pairs[qp as usize].answers.pop_front();
            self.emit_answer(qp, packet, pipeline);
        }
        self.wake_answers(qp);
    }

    /// Lets the engine send the answers that are ready.
    pub(super) fn wake_answers(&mut self, qp: u32) {
        if self.ring_answers(qp) {
            let host = self.pairs[qp as usize].host;
            let engine = self.hosts[usize::from(host)].nic.sender();
            self.kick(host, engine);
        }
    }

    /// Puts the answers of a queue pair into the ring of senders if the next one is ready; returns false if nothing
    /// changes.
    fn ring_answers(&mut self, qp: u32) -> bool {
        if !self.may_answer(qp) {
            return false;
        }
        let pair = &mut self.pairs[qp as usize];
        if std::mem::replace(&mut pair.answering, true) {
            return false;
        }
        let (host, priority) = (pair.host, pair.priority);
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.ring.push(priority, Source::Answers(qp));
        true
    }

    /// Whether the next answer of this queue pair is ready.
    pub(super) fn may_answer(&self, qp: u32) -> bool {
        let pair = &self.pairs[qp as usize];
        let next = pair.answers.front();
        !pair.answers_paced && matches!(next, Some(Answer::Stream { .. } | Answer::Packet(_)))
    }

    /// Sends the next packet of the answers. Returns the engine's time, or `None` when there was nothing to send.
    pub(super) fn transmit_answer(&mut self, host: u16, qp: u32) -> Option<Ps> {
        let next = self.pairs[qp as usize].answers.front().copied()?;
        let brings_data = match next {
            Answer::Packet(packet) => self.packets[packet].kind == Kind::ReadResponse,
            _ => true,
        };
        if !self.may_answer(qp) || brings_data && self.awaits_turn(Source::Answers(qp)) {
            return None;
        }
        match next {
            Answer::Awaited => None,
            // The engine's time for it was charged with the request.
            Answer::Packet(packet) => {
                self.pairs[qp as usize].answers.pop_front();
                let pipeline = self.pipeline_of(qp);
                self.emit_answer(qp, packet, pipeline);
                Some(0)
            }
            stream @ Answer::Stream { .. } => self.transmit_stream(host, qp, stream),
        }
    }

    /// Sends the next packet of a long answer, which is the first answer of the queue pair.
    fn transmit_stream(&mut self, host: u16, qp: u32, stream: Answer) -> Option<Ps> {
        let Answer::Stream {
            psn,
            key,
            offset,
            left,
            total,
        } = stream
        else {
            return None;
        };
        let mtu = self.hosts[usize::from(host)].nic.parameters.mtu_bytes as u32;
        let bytes = left.min(mtu);
        let packet = self.read_packet(host, qp, psn, (key, offset), bytes, total)?;
        let entry = &mut self.packets[packet];
        (entry.first, entry.last) = (left == total, left == bytes);
        let latency = self.dma_read(host, u64::from(bytes));
        let nic = &self.hosts[usize::from(host)].nic;
        let engine = nic.parameters.tx_packet + nic.payload_time(u64::from(bytes));
        let delay = engine + latency + nic.parameters.pipeline;
        self.emit_answer(qp, packet, delay);
        let answers = &mut self.pairs[qp as usize].answers;
        answers.pop_front();
        if left > bytes {
            let offset = offset + u64::from(bytes);
            answers.push_front(Answer::Stream {
                psn: psn + 1,
                key,
                offset,
                left: left - bytes,
                total,
            });
        } else {
            self.drain_answers(qp);
        }
        Some(engine)
    }

    /// Creates a packet of a READ's response, with its bytes, or a refusal if the region has ended meanwhile.
    pub(super) fn read_packet(
        &mut self,
        host: u16,
        qp: u32,
        psn: u64,
        (key, offset): (u32, u64),
        bytes: u32,
        total: u32,
    ) -> Option<u32> {
        let index = self.answer_packet(qp, Kind::ReadResponse, psn)?;
        let packet = &mut self.packets[index];
        packet.total = total;
        (packet.first, packet.last) = (true, true);
        packet.payload.resize(bytes as usize, 0);
        if bytes > 0 {
            match self.hosts[usize::from(host)].regions.find(key) {
                Some(region) if region.contains(offset, u64::from(bytes)) => {
                    region
                        .block
                        .memory()
                        .read(offset as usize, &mut packet.payload);
                }
                _ => packet.kind = Kind::Refuse(Refusal::Access),
            }
        }
        Some(index)
    }
}
