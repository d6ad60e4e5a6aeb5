//! Host memory: where the bytes of packets become visible, are read, and are changed by atomics.

use std::sync::atomic::{fence, Ordering};

use dunlin_verbs::Memory;

use crate::event::{Event, Ps};
use crate::packet::{Kind, Packet, Place, Refusal};
use crate::pair::Answer;
use crate::work::Segs;
use crate::world::World;

use super::pcie::Cost;

/// Bytes of a cache line.
const LINE: usize = 64;

impl World {
    /// Writes a packet's bytes to memory, or reads those that it asks for.
    pub(crate) fn place_event(&mut self, index: u32) {
        let mut packet = std::mem::take(&mut self.packets[index]);
        let qp = packet.local_qp;
        let pair = &self.pairs[qp as usize];
        let (host, current) = (pair.host, pair.alive && pair.stamp == packet.to_stamp);
        // Also when its queue pair is gone: the rest is still to come, and releases the packet.
        let held = matches!(packet.place, Place::Write { .. }) && packet.operands[0] != 0;
        if current {
            match std::mem::take(&mut packet.place) {
                Place::Nothing => {}
                Place::Write { key, offset } => {
                    self.write(
                        host,
                        key,
                        offset,
                        &packet.payload,
                        packet.operands[0],
                        false,
                    );
                    if held {
                        packet.place = Place::Write { key, offset };
                    }
                }
                Place::Scatter { segs, offset } => self.scatter(host, &segs, offset, &packet),
                Place::Read { key, offset } => self.carry_out_read(host, qp, &packet, key, offset),
                Place::Atomic { key, offset } => {
                    self.carry_out_atomic(host, qp, &packet, key, offset);
                }
            }
        }
        self.packets[index] = packet;
        if !held {
            self.packets.give_back(index);
        }
    }

    /// Writes the rest of a WRITE that was not placed in order.
    pub(crate) fn place_rest_event(&mut self, index: u32) {
        let packet = std::mem::take(&mut self.packets[index]);
        let pair = &self.pairs[packet.local_qp as usize];
        let host = pair.host;
        if pair.alive && pair.stamp == packet.to_stamp {
            if let Place::Write { key, offset } = packet.place {
                self.write(host, key, offset, &packet.payload, packet.operands[0], true);
            }
        }
        self.packets[index] = packet;
        self.packets.give_back(index);
    }

    /// On a NIC that places out of order: holds part of the packet back, and returns when all of it is in memory.
    pub(super) fn hold_back(&mut self, host: u16, qp: u32, packet: u32, placed: Ps) -> Ps {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let entry = &mut self.packets[packet];
        entry.operands[0] = 0;
        let write = matches!(entry.place, Place::Write { .. });
        let disorder = nic.parameters.disorder;
        if nic.parameters.in_order_placement != 0.0
            || !write
            || entry.payload.len() <= LINE
            || disorder == 0
        {
            return placed;
        }
        // Not zero, which means that nothing is held back.
        entry.operands[0] = nic.random.next().max(1);
        let rest = placed + nic.random.below(disorder);
        self.queue.push(rest, host, Event::PlaceRest { packet });
        self.place_time(qp, rest)
    }

    /// Writes the lines of a WRITE that `held` does not hold back, or, with `rest`, those that it does.
    fn write(&mut self, host: u16, key: u32, offset: u64, bytes: &[u8], held: u64, rest: bool) {
        let Some(region) = self.hosts[usize::from(host)].regions.find(key) else {
            return;
        };
        if !region.contains(offset, bytes.len() as u64) {
            return;
        }
        let memory = region.block.memory();
        if held == 0 {
            write_in_order(memory, offset as usize, bytes);
        } else {
            for (number, line) in bytes.chunks(LINE).enumerate() {
                if (held >> (number % 64) & 1 == 1) == rest {
                    memory.write(offset as usize + number * LINE, line);
                }
            }
        }
        self.wake_watchers(host, key, offset, bytes.len() as u64);
    }

    /// Writes bytes of a message or of a READ's response to their segments. Nobody is woken, because a completion
    /// follows.
    fn scatter(&mut self, host: u16, segs: &Segs, offset: u64, packet: &Packet) {
        let regions = &self.hosts[usize::from(host)].regions;
        let mut at = 0;
        let operand = packet.operands[0].to_ne_bytes();
        let bytes: &[u8] = if packet.kind == Kind::AtomicResponse {
            &operand
        } else {
            &packet.payload
        };
        segs.for_range(offset, bytes.len() as u64, |key, place, length| {
            let part = &bytes[at..at + length as usize];
            at += length as usize;
            if let Some(region) = regions.find(key) {
                if region.contains(place, length) {
                    write_in_order(region.block.memory(), place as usize, part);
                }
            }
        });
    }

    fn carry_out_read(&mut self, host: u16, qp: u32, packet: &Packet, key: u32, offset: u64) {
        let left = packet.total - packet.offset.min(packet.total);
        let mtu = self.hosts[usize::from(host)].nic.parameters.mtu_bytes as u32;
        let answer = if left <= mtu {
            self.read_packet(host, qp, packet.psn, (key, offset), left, left)
                .map(Answer::Packet)
        } else {
            Some(Answer::Stream {
                psn: packet.psn,
                key,
                offset,
                left,
                total: left,
            })
        };
        self.resolve_answer(qp, answer);
    }

    fn carry_out_atomic(&mut self, host: u16, qp: u32, packet: &Packet, key: u32, offset: u64) {
        let region = self.hosts[usize::from(host)].regions.find(key);
        let Some(region) = region.filter(|region| region.contains(offset, 8) && offset % 8 == 0)
        else {
            // The region has ended since the request was admitted.
            let refusal = self.refusal_packet(qp, packet.psn, Refusal::Access);
            return self.resolve_answer(qp, refusal.map(Answer::Packet));
        };
        let cell = region.block.memory().atomic_u64(offset as usize);
        let [first, second] = packet.operands;
        let old = if packet.kind == Kind::CompareAndSwap {
            match cell.compare_exchange(first, second, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) | Err(old) => old,
            }
        } else {
            cell.fetch_add(first, Ordering::AcqRel)
        };
        self.keep_atomic(qp, packet.psn, old);
        self.wake_watchers(host, key, offset, 8);
        let answer = self.atomic_packet(qp, packet.psn, old).map(Answer::Packet);
        self.resolve_answer(qp, answer);
    }

    /// Whether all segments are in live regions.
    pub(super) fn segs_alive(&self, host: u16, segs: &Segs) -> bool {
        let regions = &self.hosts[usize::from(host)].regions;
        segs.all().iter().all(|seg| {
            regions
                .find(seg.key)
                .is_some_and(|region| region.contains(seg.offset, u64::from(seg.length)))
        })
    }

    /// The cost of placing bytes into segments.
    pub(super) fn price_of_segs(
        &mut self,
        host: u16,
        segs: &Segs,
        offset: u64,
        bytes: u64,
    ) -> Cost {
        let mut parts = [(0, 0, 0); 4];
        let mut count = 0;
        // More than four segments are priced as four: the bytes of the others count in the last.
        segs.for_range(offset, bytes, |key, at, length| {
            if count < parts.len() {
                parts[count] = (key, at, length);
                count += 1;
            } else {
                parts[count - 1].2 += length;
            }
        });
        let mut cost = Cost::default();
        for &(key, at, length) in &parts[..count] {
            let base = self.hosts[usize::from(host)]
                .regions
                .find(key)
                .map_or(0, |region| region.base);
            let translation = self.touch_translation(host, key, at);
            // What a RECEIVE or a READ brings in is read by the core that waits for it: warm.
            let write = self.dma_write_payload(host, base + at, length, true);
            cost.engine += translation.engine + write.engine;
            cost.latency = cost.latency.max(translation.latency + write.latency);
        }
        cost
    }
}

/// Copies so that the last eight bytes become visible last: a thread that polls the end of a WRITE sees all of it. A
/// real thread may be looking (the conformance suite has one); simulated ones see a step's memory at one instant
/// anyway.
fn write_in_order(memory: &Memory, offset: usize, bytes: &[u8]) {
    let split = bytes.len().saturating_sub(8);
    memory.write(offset, &bytes[..split]);
    fence(Ordering::Release);
    memory.write(offset + split, &bytes[split..]);
}
