//! Sending requests: from an element of a send queue to packets.

use dunlin_verbs::{CompletionStatus, QueuePairState, SendFlags, Transport};

use crate::event::{Event, Ps};
use crate::memory::LINE;
use crate::packet::{Kind, Packet};
use crate::work::{Element, Inline, Verb};
use crate::world::World;

use super::pcie::Cost;
use super::Source;

/// Bytes of a doorbell without an element.
const DOORBELL_BYTES: u64 = 8;

impl World {
    /// Whether the queue pair could send a packet now.
    pub(crate) fn may_transmit(&self, qp: u32) -> bool {
        let pair = &self.pairs[qp as usize];
        let crashed = self.hosts[usize::from(pair.host)].crashed;
        let waits = pair.paused_until > self.now || pair.paced || pair.stalled;
        if waits || pair.cursor >= pair.rung || !pair.alive || crashed {
            return false;
        }
        let Some(element) = pair.element(pair.cursor) else {
            return false;
        };
        let started = element.packets > 0;
        match pair.state {
            QueuePairState::ReadyToSend => {}
            QueuePairState::SendQueueDrained if started => {}
            _ => return false,
        }
        if !self.is_within_window(qp) {
            return false;
        }
        if started {
            return true;
        }
        let most = self.hosts[usize::from(pair.host)]
            .nic
            .parameters
            .max_rd_atomic as u32;
        let held = pair.fetching > 0 || pair.fenced_until > self.now;
        !(element.flags.contains(SendFlags::FENCE) && held
            || element.verb.fetches() && pair.fetching >= most)
    }

    /// Handles a doorbell: the NIC now knows requests below `rung`.
    pub(crate) fn doorbell(&mut self, qp: u32, stamp: u32, rung: u32, thread: u32) {
        let pair = &mut self.pairs[qp as usize];
        if pair.stamp != stamp {
            return;
        }
        // `rung` counts modulo 2^32 from the base.
        let ahead = rung.wrapping_sub(pair.rung as u32);
        let (host, old) = (pair.host, pair.rung);
        if i64::from(ahead as i32) <= 0 {
            return;
        }
        pair.rung += u64::from(ahead);
        let (mut fetched, mut lines, mut pushed_lines) = (0, 0, 0);
        for element in (old..pair.rung).filter_map(|index| pair.element(index)) {
            if element.pushed {
                pushed_lines += u64::from(element.lines);
            } else {
                fetched += 1;
                lines += u64::from(element.lines);
            }
        }
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.counters.doorbells += 1;
        nic.counters.fetched_elements += fetched;
        nic.counters.pushed_elements += u64::from(ahead) - fetched;
        // The processor writes a pushed element line by line, each in a PCIe request of its own; otherwise a word.
        let request = nic.parameters.pcie_request_bytes as u64;
        let rung_bytes = match pushed_lines {
            0 => DOORBELL_BYTES + request,
            lines => lines * (LINE + request),
        };
        // The core issued the write `mmio` ago, and could not go on before the link accepted it.
        let (link_free, ago) = (nic.down_free, nic.parameters.mmio);
        if link_free > self.now {
            self.stall(thread, link_free.saturating_sub(ago));
        }
        let mut latency = self.pcie_down(host, rung_bytes);
        if lines > 0 {
            latency += self.dma_read(host, LINE * lines);
        }
        let at = self.now + latency;
        let pair = &mut self.pairs[qp as usize];
        for index in old..pair.rung {
            if let Some(element) = pair.element_mut(index) {
                element.at = at;
            }
        }
        self.wake_sender(qp);
    }

    /// Sends the next packet of the queue pair. Returns the engine's time, or `None` when there was nothing to send.
    pub(super) fn transmit(&mut self, host: u16, qp: u32) -> Option<Ps> {
        if !self.may_transmit(qp) || self.awaits_turn(Source::Requests(qp)) {
            return None;
        }
        let mtu = self.hosts[usize::from(host)].nic.parameters.mtu_bytes as u32;
        let pair = &mut self.pairs[qp as usize];
        let (cursor, transport, next_psn) = (pair.cursor, pair.transport, pair.next_psn);
        let element = pair.element_mut(cursor)?;
        let first_time = element.packets == 0;
        if first_time {
            element.first_psn = next_psn;
            element.packets = element.length.div_ceil(mtu).max(1);
            let (packets, fetches) = (u64::from(element.packets), element.verb.fetches());
            pair.next_psn += packets;
            pair.fetching += u32::from(fetches);
        }
        let number = pair.cursor_packet;
        let now = self.now;
        let packet = self.build(qp, cursor, number, mtu);
        if let Some((packet, _)) = packet {
            self.ask(qp, packet);
        }
        let mut cost = self.touch_context(host, qp);
        let Some((packet, read_bytes)) = packet else {
            self.fail_send(qp, cursor, CompletionStatus::LocalProtection);
            return Some(cost.engine);
        };
        let element = self.pairs[qp as usize].element(cursor)?;
        let (packets, verb, at) = (element.packets, element.verb, element.at);
        let nic = &mut self.hosts[usize::from(host)].nic;
        let p = &nic.parameters;
        let pipeline = p.pipeline;
        cost.engine += match (number, verb) {
            _ if transport == Transport::UnreliableDatagram => p.tx_datagram,
            (_, Verb::Read | Verb::CompareAndSwap | Verb::FetchAndAdd) => p.tx_read,
            (0, _) => p.tx_wqe,
            _ => p.tx_packet,
        };
        cost.engine += nic.payload_time(read_bytes);
        if verb.fetches() {
            let context = self.pairs[qp as usize].context();
            nic.elements.touch_in(context, element_key(context, cursor));
        }
        nic.counters.requests_started += u64::from(first_time);
        cost.latency += at.saturating_sub(now);
        if read_bytes > 0 {
            cost += Cost {
                engine: 0,
                latency: self.dma_read(host, read_bytes),
            };
            if let Some(seg) = self.pairs[qp as usize].element(cursor)?.segs.all().first() {
                let (key, offset) = (seg.key, seg.offset);
                cost += self.touch_translation(host, key, offset);
            }
        }
        let delay = cost.engine + cost.latency + pipeline;
        let wire = self.emit_request(qp, packet, delay);
        self.advance(qp, number, packets, verb, now + delay + wire);
        Some(cost.engine)
    }

    /// Moves the cursor past a packet that was sent.
    fn advance(&mut self, qp: u32, number: u32, packets: u32, verb: Verb, left_at: Ps) {
        let pair = &mut self.pairs[qp as usize];
        let whole = verb.fetches() || number + 1 == packets;
        if whole {
            pair.cursor += 1;
            pair.cursor_packet = 0;
            // A retransmission begins where the answers ended.
            let cursor = pair.cursor;
            if let Some(next) = pair.element(cursor) {
                pair.cursor_packet = next.answered;
            }
        } else {
            pair.cursor_packet += 1;
        }
        if pair.transport == Transport::ReliableConnection {
            self.arm_timer(qp);
        } else if whole {
            // Not acknowledged: complete when it has left.
            let element = self.pairs[qp as usize].sends.pop_front();
            self.pairs[qp as usize].base += 1;
            if let Some(element) = element {
                self.complete_send(qp, &element, CompletionStatus::Success, left_at);
            }
        }
    }

    /// Creates packet `number` of a request, with its bytes; also returns the number of bytes read by DMA. `None` when
    /// a local region is gone.
    fn build(&mut self, qp: u32, cursor: u64, number: u32, mtu: u32) -> Option<(u32, u64)> {
        let index = self.packets.take();
        let mut packet = std::mem::take(&mut self.packets[index]);
        packet.clear();
        let pair = &self.pairs[qp as usize];
        let element = pair.element(cursor).expect("the cursor names a request");
        fill_header(&mut packet, element, number);
        packet.from = pair.host;
        packet.from_number = pair.number;
        packet.unreliable = pair.transport == Transport::UnreliableConnection;
        packet.from_stamp = pair.stamp;
        match (&element.target, &pair.peer) {
            (Some(target), _) => {
                packet.kind = Kind::Datagram;
                packet.priority = target.priority;
                packet.to = target.host;
                packet.to_number = target.number;
                packet.key = target.key;
            }
            (None, Some(peer)) => {
                packet.priority = pair.priority;
                packet.to = peer.host;
                packet.to_number = peer.number;
                packet.to_stamp = peer.stamp;
            }
            (None, None) => {
                unreachable!("connected queue pairs send only when they know their peer")
            }
        }
        let mut read_bytes = 0;
        let mut whole = true;
        if element.verb == Verb::Read {
            packet.offset = number * mtu;
        } else if !element.verb.fetches() {
            let start = number * mtu;
            let length = (element.length - start).min(mtu);
            packet.offset = start;
            match &element.inline {
                Inline::Short(bytes) => {
                    packet
                        .payload
                        .extend_from_slice(&bytes[start as usize..(start + length) as usize]);
                }
                Inline::Long(bytes) => {
                    packet
                        .payload
                        .extend_from_slice(&bytes[start as usize..(start + length) as usize]);
                }
                Inline::None => {
                    read_bytes = u64::from(length);
                    let regions = &self.hosts[usize::from(pair.host)].regions;
                    whole = gather(
                        regions,
                        element,
                        u64::from(start),
                        read_bytes,
                        &mut packet.payload,
                    );
                }
            }
        }
        self.packets[index] = packet;
        if !whole {
            self.packets.give_back(index);
            return None;
        }
        Some((index, read_bytes))
    }

    /// Lets the requests of a queue pair send nothing before `at`.
    pub(super) fn pause_sender(&mut self, qp: u32, at: Ps) {
        let pair = &mut self.pairs[qp as usize];
        if at <= pair.paused_until || at <= self.now {
            return;
        }
        pair.paused_until = at;
        let (host, stamp) = (pair.host, pair.stamp);
        self.queue.push(at, host, Event::Resume { qp, stamp });
    }
}

/// The key of an element in the element cache, derived from its queue pair's key in the context cache.
pub(super) fn element_key(context: u64, index: u64) -> u64 {
    context << 32 | index & 0xffff_ffff
}

fn fill_header(packet: &mut Packet, element: &Element, number: u32) {
    packet.kind = match element.verb {
        Verb::Send => Kind::Send,
        Verb::Write => Kind::Write,
        Verb::Read => Kind::ReadRequest,
        Verb::CompareAndSwap => Kind::CompareAndSwap,
        Verb::FetchAndAdd => Kind::FetchAndAdd,
    };
    packet.first = number == 0;
    packet.last = element.verb.fetches() || number + 1 == element.packets;
    packet.psn = element.first_psn + u64::from(number);
    packet.solicited = packet.last && element.flags.contains(SendFlags::SOLICITED);
    packet.immediate = element.immediate.filter(|_| packet.last);
    packet.address = element.address;
    packet.key = element.key;
    packet.total = element.length;
    packet.operands = element.operands;
}

/// Copies bytes of a request from host memory; returns false when a region has ended.
fn gather(
    regions: &crate::memory::RegionTable,
    element: &Element,
    offset: u64,
    length: u64,
    payload: &mut Vec<u8>,
) -> bool {
    let mut whole = true;
    element
        .segs
        .for_range(offset, length, |key, at, bytes| match regions.find(key) {
            Some(region) if region.contains(at, bytes) => {
                let old = payload.len();
                payload.resize(old + bytes as usize, 0);
                region.block.memory().read(at as usize, &mut payload[old..]);
            }
            _ => whole = false,
        });
    whole
}
