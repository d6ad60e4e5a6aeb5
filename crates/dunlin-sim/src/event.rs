//! The event queue: what happens next, in virtual time.
//!
//! Time is in picoseconds, so that a NIC that carries out a verb every 8.3 ns keeps its rate. Simultaneous events are
//! ordered by node and then by the order in which they were scheduled, so a run depends on its seed alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::random::mix;

/// Virtual time in picoseconds since the cluster was made.
pub(crate) type Ps = u64;

/// Picoseconds in a nanosecond.
pub(crate) const NS: Ps = 1_000;

/// What can happen. Indices name entries of the world's tables; a `stamp` makes an event void when its object has moved
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell of a thread (`OUTSIDE`: of none) reaches the NIC: requests up to `rung` are known to it.
    Doorbell {
        qp: u32,
        stamp: u32,
        rung: u32,
        thread: u32,
    },
    /// A processing engine of a NIC is free for its next piece of work.
    Engine { host: u16, engine: u8 },
    /// The head of a packet reaches a switch by this port.
    Switch { switch: u16, port: u16, packet: u32 },
    /// A port of a switch has finished a packet.
    Port { switch: u16, port: u16 },
    /// A packet has arrived at a NIC.
    Arrive { host: u16, packet: u32 },
    /// The bytes of a packet become visible in host memory, or are read there.
    Place { packet: u32 },
    /// The held-back part of a packet becomes visible (NICs that place out of order).
    PlaceRest { packet: u32 },
    /// A packet that waited for its turn leaves its NIC.
    Emit { packet: u32 },
    /// A completion becomes visible in its queue.
    Complete { entry: u32 },
    /// The transport timer of a queue pair.
    Timer { qp: u32, stamp: u32 },
    /// The end of a receiver-not-ready pause.
    Resume { qp: u32, stamp: u32 },
    /// A flow-control frame reaches a transmitter: stop or go on.
    Pause { target: PauseTarget, stop: bool },
    /// A thread takes its next step.
    Thread { thread: u32, stamp: u32 },
    /// The end of a time slice of a core.
    Slice { core: u32, stamp: u32 },
    /// A flow may raise its rate (DCQCN).
    Rate { host: u16, flow: u32, stamp: u32 },
}

/// Who is told to pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseTarget {
    /// The NIC of a host.
    Nic(u16),
    /// An egress port of a switch.
    Port(u16, u16),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ps,
    /// Node in the upper 16 bits, sequence below.
    order: u64,
    event: Event,
}

impl Entry {
    /// Time and order as one number: the heap compares little else than this.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

impl PartialEq for Entry {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    /// Reversed: the heap gives its greatest, we want the earliest.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Events to come.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    sequence: u64,
    /// Events taken so far.
    pub(crate) taken: u64,
    /// Digest of all events taken so far: equal runs have equal digests.
    pub(crate) digest: u64,
}

impl EventQueue {
    #[inline]
    pub(crate) fn push(&mut self, at: Ps, node: u16, event: Event) {
        self.sequence += 1;
        let order = u64::from(node) << 48 | self.sequence & 0xffff_ffff_ffff;
        self.heap.push(Entry { at, order, event });
    }

    pub(crate) fn next_time(&self) -> Option<Ps> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Ps, Event)> {
        let entry = self.heap.pop()?;
        self.taken += 1;
        self.digest = mix(self.digest ^ entry.at.rotate_left(17) ^ entry.order);
        Some((entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_time_node_sequence() {
        let mut queue = EventQueue::default();
        let place = |packet| Event::Place { packet };
        queue.push(5, 2, place(0));
        queue.push(5, 1, place(1));
        queue.push(5, 1, place(2));
        queue.push(4, 9, place(3));
        let packets: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(_, event)| match event {
                Event::Place { packet } => packet,
                _ => unreachable!("only placements were pushed"),
            })
            .collect();
        assert_eq!(packets, [3, 1, 2, 0]);
    }
}
