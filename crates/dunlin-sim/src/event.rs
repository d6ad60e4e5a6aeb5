//! The event queue: what happens next, in virtual time.
//!
//! Time is in picoseconds, so that a NIC that carries out a verb every 8.3 ns keeps its rate. Simultaneous events are
//! ordered by the node that they happen to, then by the node that scheduled them, then by the order in which that one
//! did. No node's order depends on what others do at the same time, so a run depends on its seed alone, however its
//! nodes are divided.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::random::mix;

/// Virtual time in picoseconds since the cluster was made.
pub(crate) type Ps = u64;

/// Picoseconds in a nanosecond.
pub(crate) const NS: Ps = 1_000;

/// Time goes no further, 106 days: what is due later never happens, and what is planned until then has a time.
pub(crate) const HORIZON: Ps = Ps::MAX / 2;

/// So many nanoseconds after `now`, but not beyond the horizon.
pub(crate) fn after(now: Ps, nanoseconds: u64) -> Ps {
    now.saturating_add(nanoseconds.saturating_mul(NS))
        .min(HORIZON)
}

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
    /// So much of a packet that came in by this port is there that the rest follows without a gap.
    Gathered { switch: u16, port: u16, packet: u32 },
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
    /// A flow-control frame reaches a transmitter: stop a priority or let it go on.
    Pause {
        target: PauseTarget,
        priority: u8,
        stop: bool,
    },
    /// A thread takes its next step.
    Thread { thread: u32, stamp: u32 },
    /// The end of a time slice of a core.
    Slice { core: u32, stamp: u32 },
    /// A flow may raise its rate (DCQCN).
    Rate { host: u16, flow: u32, stamp: u32 },
    /// The next packet of a slowed flow may leave.
    Pace { host: u16, flow: u32, stamp: u32 },
}

/// Who is told to pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseTarget {
    /// The NIC of a host.
    Nic(u16),
    /// An egress port of a switch.
    Port(u16, u16),
}

/// Bit of the numbers of switches as nodes; hosts are nodes by their own numbers.
const SWITCH: u16 = 0x8000;

/// The node number of a switch, for the order of simultaneous events: behind all hosts.
pub(crate) fn switch_node(switch: u16) -> u16 {
    SWITCH | switch
}

/// Whether a node is a switch.
#[inline]
pub(crate) fn is_switch(node: u16) -> bool {
    node & SWITCH != 0
}

/// The number of a node among hosts or among switches.
#[inline]
pub(crate) fn number_of(node: u16) -> u16 {
    node & !SWITCH
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ps,
    /// The node that it happens to in the upper 16 bits, the one that scheduled it, the sequence of that one.
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

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Counts what it has scheduled. Wraps: simultaneous events alone are ordered by it.
    sequence: u32,
    taken: u64,
    digest: u64,
}

/// Events to come.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    /// Hosts, and switches behind them.
    nodes: Vec<Node>,
    hosts: u16,
}

impl EventQueue {
    pub(crate) fn new(hosts: usize, switches: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            nodes: vec![Node::default(); hosts + switches],
            hosts: hosts as u16,
        }
    }

    #[inline]
    fn node(&mut self, node: u16) -> &mut Node {
        let place = match is_switch(node) {
            true => self.hosts + number_of(node),
            false => node,
        };
        &mut self.nodes[usize::from(place)]
    }

    /// A node schedules an event of its own.
    #[inline]
    pub(crate) fn push(&mut self, at: Ps, node: u16, event: Event) {
        let order = self.order(node, node);
        self.insert(at, order, event);
    }

    /// The place among simultaneous events of what the node `by` schedules for another.
    #[inline]
    pub(crate) fn order(&mut self, by: u16, node: u16) -> u64 {
        let scheduling = self.node(by);
        scheduling.sequence = scheduling.sequence.wrapping_add(1);
        u64::from(node) << 48 | u64::from(by) << 32 | u64::from(scheduling.sequence)
    }

    /// Puts in an event that has its place.
    #[inline]
    pub(crate) fn insert(&mut self, at: Ps, order: u64, event: Event) {
        self.heap.push(Entry { at, order, event });
    }

    /// Time and place of the next event.
    pub(crate) fn next(&self) -> Option<(Ps, u64)> {
        self.heap.peek().map(|entry| (entry.at, entry.order))
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Ps, Event)> {
        let Entry { at, order, event } = self.heap.pop()?;
        let node = self.node((order >> 48) as u16);
        node.taken += 1;
        node.digest = mix(node.digest ^ at.rotate_left(17) ^ order);
        Some((at, event))
    }

    /// Events taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.nodes.iter().map(|node| node.taken).sum()
    }

    /// Digests of the events that each node has taken so far.
    pub(crate) fn digests(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().map(|node| node.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(mut queue: EventQueue) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop())
            .map(|(_, event)| match event {
                Event::Place { packet } => packet,
                _ => unreachable!("only placements were pushed"),
            })
            .collect()
    }

    fn place(packet: u32) -> Event {
        Event::Place { packet }
    }

    #[test]
    fn order_is_time_node_sequence() {
        let mut queue = EventQueue::new(3, 1);
        queue.push(5, 2, place(0));
        queue.push(5, 1, place(1));
        queue.push(5, 1, place(2));
        queue.push(5, switch_node(0), place(3));
        queue.push(4, switch_node(0), place(4));
        assert_eq!(packets(queue), [4, 1, 2, 0, 3]);
    }

    /// What two nodes schedule does not depend on which of them does so first.
    #[test]
    fn who_schedules_comes_before_when() {
        let mut queue = EventQueue::new(3, 0);
        for (by, packet) in [(2, 0), (1, 1), (2, 2), (1, 3)] {
            let order = queue.order(by, 0);
            queue.insert(5, order, place(packet));
        }
        assert_eq!(packets(queue), [1, 3, 0, 2]);
    }
}
