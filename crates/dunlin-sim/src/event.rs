//! The event queue: what happens next, in virtual time.
//!
//! Time is in picoseconds, so that a NIC that carries out a verb every 8.3 ns keeps its exact rate. Simultaneous events
//! are ordered by the node that they happen to, then by the node that scheduled them, then by the order in which that
//! one did. No node's order depends on what others do at the same time, so a run depends on its seed alone, however its
//! nodes are divided.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::random::mix;

/// Virtual time in picoseconds since the cluster was created.
pub(crate) type Ps = u64;

/// Picoseconds in a nanosecond.
pub(crate) const NS: Ps = 1_000;

/// End of virtual time, 106 days. Events due later never happen, but every event that is planned until then has a time.
pub(crate) const HORIZON: Ps = Ps::MAX / 2;

/// The time `nanoseconds` after `now`, at most the horizon.
pub(crate) fn after(now: Ps, nanoseconds: u64) -> Ps {
    now.saturating_add(nanoseconds.saturating_mul(NS))
        .min(HORIZON)
}

/// All kinds of events. Indices name entries of the world's tables; a `stamp` makes an event void when its object has
/// moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell of a thread (`OUTSIDE` if none) reaches the NIC, which then knows requests up to `rung`.
    Doorbell {
        qp: u32,
        stamp: u32,
        rung: u32,
        thread: u32,
    },
    /// A processing engine of a NIC is ready for its next piece of work.
    Engine { host: u16, engine: u8 },
    /// The head of a packet reaches a switch at this port.
    Switch { switch: u16, port: u16, packet: u32 },
    /// Enough of a packet from this port has arrived for the rest to follow without a gap.
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
    /// A flow-control frame reaches a transmitter: pause or resume a priority.
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

/// The receiver of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseTarget {
    /// The NIC of a host.
    Nic(u16),
    /// An egress port of a switch.
    Port(u16, u16),
}

/// Bit that marks node numbers of switches; hosts have their own numbers as nodes.
const SWITCH: u16 = 0x8000;

/// The node number of a switch, which orders simultaneous events: switches come after all hosts.
pub(crate) fn switch_node(switch: u16) -> u16 {
    SWITCH | switch
}

/// Whether a node is a switch.
#[inline]
pub(crate) fn is_switch(node: u16) -> bool {
    node & SWITCH != 0
}

/// The number of a node among the hosts or among the switches.
#[inline]
pub(crate) fn number_of(node: u16) -> u16 {
    node & !SWITCH
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ps,
    /// The node that the event happens to in the upper 16 bits, then the node that scheduled it, then that node's
    /// sequence number.
    order: u64,
    event: Event,
}

impl Entry {
    /// Time and order as one number, so that the heap needs few comparisons.
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
    /// Reversed: the heap returns its greatest element, and the earliest is needed.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// State of a node in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Number of events that it has scheduled. Wraps: it orders simultaneous events only.
    sequence: u32,
    taken: u64,
    digest: u64,
}

/// Future events, ordered.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    /// Hosts, then switches.
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

    /// Schedules an event of a node for itself.
    #[inline]
    pub(crate) fn push(&mut self, at: Ps, node: u16, event: Event) {
        let order = self.order(node, node);
        self.insert(at, order, event);
    }

    /// The order among simultaneous events of one that the node `by` schedules for another.
    #[inline]
    pub(crate) fn order(&mut self, by: u16, node: u16) -> u64 {
        let scheduling = self.node(by);
        scheduling.sequence = scheduling.sequence.wrapping_add(1);
        u64::from(node) << 48 | u64::from(by) << 32 | u64::from(scheduling.sequence)
    }

    /// Inserts an event that has its order.
    #[inline]
    pub(crate) fn insert(&mut self, at: Ps, order: u64, event: Event) {
        self.heap.push(Entry { at, order, event });
    }

    /// Time and order of the next event.
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

    /// Number of events taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.nodes.iter().map(|node| node.taken).sum()
    }

    /// Digest of the events taken so far, for each node.
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

    /// The order of two nodes' events does not depend on which of them scheduled first.
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
