//! The responder: requests of a connected peer, over RC and UC.

use dunlin_verbs::{Access, AsyncEvent, Completion, CompletionOpcode, CompletionStatus, Transport};

use crate::event::{Event, Ps, NS};
use crate::packet::{Kind, Place, Refusal};
use crate::pair::{Answer, Incoming};
use crate::world::World;

use super::pcie::Cost;
use super::RECEIVER;

/// Why a request cannot be carried out.
enum Obstacle {
    NoReceive,
    Access,
    Invalid,
    /// The RECEIVE is too short: the receiver fails, too.
    TooLong(u64),
    /// The RECEIVE's memory is gone.
    Gone(u64),
}

impl World {
    /// Handles a request packet for a connected queue pair; returns the engine's time.
    pub(super) fn respond(&mut self, host: u16, qp: u32, packet: u32) -> Ps {
        let mut cost = match self.packets[packet].kind {
            Kind::Write | Kind::Send => self.touch_responder(host, qp),
            // One pipeline for both directions: an answer with data needs the contexts of the sending side.
            _ if self.hosts[usize::from(host)].nic.sender() == RECEIVER => {
                self.touch_context(host, qp)
            }
            _ => self.touch_responder(host, qp),
        };
        let entry = &self.packets[packet];
        let nic = &self.hosts[usize::from(host)].nic;
        let p = &nic.parameters;
        cost.engine += match entry.kind {
            Kind::Write if entry.first => p.rx_write,
            Kind::Send if entry.first => p.rx_send,
            Kind::Write | Kind::Send => p.rx_packet,
            _ => p.rx_read_request,
        };
        cost.engine += nic.payload_time(entry.payload.len() as u64);
        let reliable = self.pairs[qp as usize].transport == Transport::ReliableConnection;
        let in_turn = if reliable {
            self.in_sequence(host, qp, packet, cost)
        } else {
            self.in_message(host, qp, packet)
        };
        if !in_turn {
            return cost.engine;
        }
        let before = self.pairs[qp as usize].incoming.is_none();
        match self.admit(host, qp, packet) {
            Ok(fetch) => {
                cost.latency += fetch;
                self.carry_out(host, qp, packet, cost, before)
            }
            Err(obstacle) => {
                self.obstruct(host, qp, packet, obstacle);
                cost.engine
            }
        }
    }

    /// RC: whether the packet is the expected one. Others are answered here.
    fn in_sequence(&mut self, host: u16, qp: u32, packet: u32, cost: Cost) -> bool {
        let psn = self.packets[packet].psn;
        let pair = &mut self.pairs[qp as usize];
        let counters = &mut self.hosts[usize::from(host)].nic.counters;
        if psn == pair.expected_psn {
            pair.refused_gap = false;
            return true;
        }
        if psn > pair.expected_psn {
            counters.out_of_sequence += 1;
            let expected = pair.expected_psn;
            // Once for each gap (HPCC limits by time; one is enough where the timer is the fallback).
            if !std::mem::replace(&mut pair.refused_gap, true) {
                self.refuse(qp, expected, Refusal::Sequence);
            }
            self.packets.give_back(packet);
            return false;
        }
        counters.duplicates += 1;
        match self.packets[packet].kind {
            Kind::ReadRequest => self.repeat_read(host, qp, packet, cost),
            Kind::CompareAndSwap | Kind::FetchAndAdd => self.repeat_atomic(qp, packet),
            _ => {
                let done = self.pairs[qp as usize].expected_psn - 1;
                self.acknowledge(qp, done);
                self.packets.give_back(packet);
            }
        }
        false
    }

    /// UC: whether the packet belongs to a message that is complete so far.
    fn in_message(&mut self, host: u16, qp: u32, packet: u32) -> bool {
        let entry = &self.packets[packet];
        let (psn, first) = (entry.psn, entry.first);
        let pair = &mut self.pairs[qp as usize];
        let expected = pair.expected_psn;
        let good = if first {
            psn >= expected
        } else {
            psn == expected && !pair.skipping
        };
        if psn >= expected {
            pair.expected_psn = psn + 1;
            if !good || first {
                self.abandon(host, qp);
            }
        }
        if psn > expected {
            self.hosts[usize::from(host)].nic.counters.out_of_sequence += 1;
        }
        self.pairs[qp as usize].skipping =
            !good && psn >= expected || (psn < expected && self.pairs[qp as usize].skipping);
        if !good {
            self.hosts[usize::from(host)].nic.counters.receiver_drops += 1;
            self.packets.give_back(packet);
        }
        good
    }

    /// UC: drops the message that was arriving; its RECEIVE serves the next one.
    fn abandon(&mut self, host: u16, qp: u32) {
        let pair = &mut self.pairs[qp as usize];
        let Some(Incoming { receive, .. }) = pair.incoming.take() else {
            return;
        };
        self.hosts[usize::from(host)].nic.counters.receiver_drops += 1;
        if let Some(receive) = receive {
            let queue = self.pairs[qp as usize].receives;
            self.receives[queue].give_back(receive);
        }
    }

    /// Checks the requirements of the packet, and takes the RECEIVE; returns the time of fetching its element.
    fn admit(&mut self, host: u16, qp: u32, packet: u32) -> Result<Ps, Obstacle> {
        let entry = &self.packets[packet];
        let pair = &self.pairs[qp as usize];
        let needed = match entry.kind {
            Kind::Write => Access::REMOTE_WRITE,
            Kind::ReadRequest => Access::REMOTE_READ,
            Kind::CompareAndSwap | Kind::FetchAndAdd => Access::REMOTE_ATOMIC,
            _ => {
                let end = u64::from(entry.offset) + entry.payload.len() as u64;
                return self.admit_send(host, qp, end, entry.first);
            }
        };
        if !pair.access.contains(needed) {
            return Err(Obstacle::Access);
        }
        let bytes = match entry.kind {
            Kind::CompareAndSwap | Kind::FetchAndAdd => 8,
            Kind::Write => entry.payload.len() as u64,
            _ => u64::from(entry.total - entry.offset),
        };
        let atomic = needed == Access::REMOTE_ATOMIC;
        let address = entry.address.wrapping_add(u64::from(entry.offset));
        // The first packet is checked for the whole message, so that nothing is written of a message that exceeds its
        // region.
        let (address, bytes) = if entry.kind == Kind::Write && entry.first {
            (entry.address, u64::from(entry.total))
        } else {
            (address, bytes)
        };
        if entry.total > 0 || atomic {
            let regions = &self.hosts[usize::from(host)].regions;
            let region = regions.find(entry.key).ok_or(Obstacle::Access)?;
            let allowed = region.domain == pair.domain && region.access.contains(needed);
            if !allowed || region.offset_of(address, bytes).is_none() {
                return Err(Obstacle::Access);
            }
            if atomic && address % 8 != 0 {
                return Err(Obstacle::Invalid);
            }
        }
        if entry.kind == Kind::Write && entry.last && entry.immediate.is_some() {
            return self.take_for(host, qp);
        }
        Ok(0)
    }

    /// Takes a RECEIVE for the message that begins.
    fn take_for(&mut self, host: u16, qp: u32) -> Result<Ps, Obstacle> {
        let queue = self.pairs[qp as usize].receives;
        let (receive, fetch) = self.take_receive(host, queue).ok_or(Obstacle::NoReceive)?;
        self.pairs[qp as usize].incoming = Some(Incoming {
            receive: Some(receive),
            bytes: 0,
        });
        Ok(fetch)
    }

    fn admit_send(&mut self, host: u16, qp: u32, end: u64, first: bool) -> Result<Ps, Obstacle> {
        let fetch = if first { self.take_for(host, qp)? } else { 0 };
        let pair = &self.pairs[qp as usize];
        let Some(Incoming {
            receive: Some(receive),
            ..
        }) = &pair.incoming
        else {
            return Err(Obstacle::Invalid);
        };
        let (id, room) = (receive.id, receive.segs.length());
        if end > room {
            return Err(Obstacle::TooLong(id));
        }
        let segs = receive.segs.clone();
        if !self.segs_alive(host, &segs) {
            return Err(Obstacle::Gone(id));
        }
        Ok(fetch)
    }

    /// Refuses a request, as the transport prescribes.
    fn obstruct(&mut self, host: u16, qp: u32, packet: u32, obstacle: Obstacle) {
        let psn = self.packets[packet].psn;
        let pair = &self.pairs[qp as usize];
        let reliable = pair.transport == Transport::ReliableConnection;
        let wait = pair.attributes.receiver_not_ready_timer_ns;
        let wait = wait.saturating_mul(NS);
        self.packets.give_back(packet);
        if !reliable {
            // Lost silently, and the rest of the message with it.
            self.abandon(host, qp);
            self.pairs[qp as usize].skipping = true;
            self.hosts[usize::from(host)].nic.counters.receiver_drops += 1;
            return;
        }
        let refusal = match obstacle {
            Obstacle::NoReceive => {
                self.hosts[usize::from(host)]
                    .nic
                    .counters
                    .receiver_not_ready += 1;
                return self.refuse(qp, psn, Refusal::NotReady(wait));
            }
            Obstacle::Access => Refusal::Access,
            Obstacle::Invalid => Refusal::Invalid,
            Obstacle::TooLong(id) => {
                self.pairs[qp as usize].incoming = None;
                self.fail_receive(qp, id, CompletionStatus::LocalLength);
                Refusal::Invalid
            }
            Obstacle::Gone(id) => {
                self.pairs[qp as usize].incoming = None;
                self.fail_receive(qp, id, CompletionStatus::LocalProtection);
                Refusal::Operation
            }
        };
        // The answers before the refusal must leave first, and the error state would drop them.
        self.refuse(qp, psn, refusal);
        let number = self.pairs[qp as usize].number;
        self.fail_pair_after_answers(qp);
        self.push_event(host, AsyncEvent::QueuePairFatal(number));
    }

    /// Carries out an admitted request.
    fn carry_out(&mut self, host: u16, qp: u32, packet: u32, mut cost: Cost, fresh: bool) -> Ps {
        let entry = &self.packets[packet];
        let (psn, kind, last, total) = (entry.psn, entry.kind, entry.last, entry.total);
        let (address, key, offset) = (entry.address, entry.key, entry.offset);
        let (immediate, solicited, wanted) = (entry.immediate, entry.solicited, entry.acknowledge);
        let bytes = entry.payload.len() as u64;
        let reliable = self.pairs[qp as usize].transport == Transport::ReliableConnection;
        let pipeline = self.hosts[usize::from(host)].nic.parameters.pipeline;
        let at = address.wrapping_add(u64::from(offset));
        let base = self.hosts[usize::from(host)]
            .regions
            .find(key)
            .map_or(0, |region| region.base);
        let mut place = Place::Nothing;
        match kind {
            Kind::ReadRequest | Kind::CompareAndSwap | Kind::FetchAndAdd => {
                return self.fetch(host, qp, packet, cost, at.wrapping_sub(base));
            }
            Kind::Write if bytes > 0 => {
                let region = self.hosts[usize::from(host)].regions.find(key);
                let warm = region.is_some_and(|region| !region.watches.is_empty());
                cost += self.touch_translation(host, key, at - base);
                cost += self.dma_write_payload(host, at, bytes, warm);
                place = Place::Write {
                    key,
                    offset: at - base,
                };
            }
            Kind::Send => {
                if let Some(Incoming {
                    receive: Some(receive),
                    ..
                }) = &self.pairs[qp as usize].incoming
                {
                    let segs = receive.segs.clone();
                    cost += self.price_of_segs(host, &segs, u64::from(offset), bytes);
                    place = Place::Scatter {
                        segs,
                        offset: u64::from(offset),
                    };
                }
            }
            _ => {}
        }
        let pair = &mut self.pairs[qp as usize];
        if let Some(incoming) = &mut pair.incoming {
            incoming.bytes += bytes;
        } else if !last && fresh {
            pair.incoming = Some(Incoming {
                receive: None,
                bytes,
            });
        }
        let placed = self.place_time(qp, self.now + cost.engine + cost.latency + pipeline);
        self.packets[packet].place = place;
        self.queue.push(placed, host, Event::Place { packet });
        let rest = self.hold_back(host, qp, packet, placed);
        if last {
            self.hosts[usize::from(host)].nic.counters.messages_received += 1;
            let incoming = self.pairs[qp as usize].incoming.take();
            if let Some(receive) = incoming.and_then(|incoming| incoming.receive) {
                let write = kind == Kind::Write;
                let opcode = if write {
                    CompletionOpcode::ReceiveWriteWithImmediate
                } else {
                    CompletionOpcode::Receive
                };
                let completion = Completion {
                    id: receive.id,
                    status: CompletionStatus::Success,
                    opcode,
                    bytes: total as usize,
                    immediate,
                    ..Completion::EMPTY
                };
                let context = self.touch_completions(host, self.pairs[qp as usize].receive_cq);
                let written =
                    self.completion_latency(host, bytes > 0) + context.engine + context.latency;
                cost += context;
                self.complete_receive(qp, completion, solicited, rest + written);
            }
        }
        if reliable {
            // The acknowledgement leaves when the bytes are on their way into memory: it takes longer than they do.
            let written = self.hosts[usize::from(host)].nic.parameters.dma_write;
            let pair = &mut self.pairs[qp as usize];
            pair.expected_psn = psn + 1;
            pair.answers_at = pair.answers_at.max(rest.saturating_sub(written));
            if wanted {
                self.acknowledge(qp, psn);
            }
        }
        cost.engine
    }

    /// Schedules an admitted READ or atomic for its turn at the memory.
    fn fetch(&mut self, host: u16, qp: u32, packet: u32, mut cost: Cost, offset: u64) -> Ps {
        let entry = &self.packets[packet];
        let (kind, key, psn) = (entry.kind, entry.key, entry.psn);
        let left = entry.total - entry.offset.min(entry.total);
        let nic = &self.hosts[usize::from(host)].nic;
        let mtu = nic.parameters.mtu_bytes as u32;
        let packets = left.div_ceil(mtu).max(1);
        let pipeline = nic.parameters.pipeline;
        let read = u64::from(left.min(mtu));
        if kind == Kind::ReadRequest {
            cost.engine += nic.payload_time(read);
        }
        cost += self.touch_translation(host, key, offset);
        let mut latency = if kind == Kind::ReadRequest && left == 0 {
            0
        } else {
            self.dma_read(host, read)
        };
        let (next, place) = match kind {
            Kind::ReadRequest => (u64::from(packets), Place::Read { key, offset }),
            _ => {
                let nic = &mut self.hosts[usize::from(host)].nic;
                let start = nic.atomic_free.max(self.now);
                nic.atomic_free = start + nic.parameters.atomic;
                latency += nic.atomic_free - self.now;
                (1, Place::Atomic { key, offset })
            }
        };
        let at = self.place_time(
            qp,
            self.now + cost.engine + cost.latency + latency + pipeline,
        );
        self.packets[packet].place = place;
        self.queue.push(at, host, Event::Place { packet });
        let pair = &mut self.pairs[qp as usize];
        if psn == pair.expected_psn {
            pair.expected_psn += next;
        }
        pair.answers.push_back(Answer::Awaited);
        self.hosts[usize::from(host)].nic.counters.requests_answered += 1;
        cost.engine
    }

    /// Handles a READ that was received before: it is carried out again if that is still allowed. If not, it is
    /// refused, because the requester would otherwise repeat it for ever. The responder does not fail: the requester
    /// may have its answer by now.
    fn repeat_read(&mut self, host: u16, qp: u32, packet: u32, cost: Cost) {
        if self.admit(host, qp, packet).is_err() {
            let psn = self.packets[packet].psn;
            self.packets.give_back(packet);
            return self.refuse(qp, psn, Refusal::Access);
        }
        let entry = &self.packets[packet];
        let at = entry.address.wrapping_add(u64::from(entry.offset));
        let base = self.hosts[usize::from(host)]
            .regions
            .find(entry.key)
            .map_or(at, |region| region.base);
        self.fetch(host, qp, packet, cost, at.wrapping_sub(base));
    }

    /// Handles an atomic that was received before: its result is sent again.
    fn repeat_atomic(&mut self, qp: u32, packet: u32) {
        let psn = self.packets[packet].psn;
        self.packets.give_back(packet);
        let kept = self.pairs[qp as usize]
            .atomics
            .iter()
            .find(|(at, _)| *at == psn);
        if let Some(&(_, old)) = kept {
            self.answer_atomic(qp, psn, old);
        }
    }

    /// Remembers the result of an atomic for repeated requests, for as many atomics as may be outstanding.
    pub(super) fn keep_atomic(&mut self, qp: u32, psn: u64, old: u64) {
        let pair = &mut self.pairs[qp as usize];
        let nic = &self.hosts[usize::from(pair.host)].nic;
        let most = (nic.parameters.max_rd_atomic as usize).max(1);
        while pair.atomics.len() >= most {
            pair.atomics.pop_front();
        }
        pair.atomics.push_back((psn, old));
    }
}
