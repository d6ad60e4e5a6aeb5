//! Names of a trace's tracks, slices and counters.

use dunlin_sim::{Activity, PacketKind, Part, SeenNic};

/// The counters of a NIC: name and value.
type Counter = (&'static str, fn(&SeenNic<'_>) -> u64);

/// Depths of its queues, and hits and misses of its caches since the cluster was made.
pub(super) const NIC_COUNTERS: [Counter; 12] = [
    ("queue: packets that have arrived", |nic| nic.arrived as u64),
    ("queue: queue pairs that send", |nic| nic.senders as u64),
    ("contexts: hits", |nic| nic.counters.context_hits),
    ("contexts: misses", |nic| nic.counters.context_misses),
    ("translations: hits", |nic| nic.translation_hits),
    ("translations: misses", |nic| {
        nic.counters.translation_misses
    }),
    ("elements: hits", |nic| nic.element_hits),
    ("elements: misses", |nic| nic.counters.element_misses),
    ("last-level cache: lines found", |nic| {
        nic.counters.updating_writes
    }),
    ("last-level cache: lines allocated", |nic| {
        nic.counters.allocating_writes
    }),
    ("retransmissions", |nic| nic.counters.retransmissions),
    ("packets dropped by faults", |nic| nic.counters.fault_drops),
];

/// A part of a host.
pub(super) fn part(part: Part) -> String {
    match part {
        Part::Core(core) => format!("core {core}"),
        Part::Engine(engine) => format!("NIC engine {engine}"),
        Part::Wire => "wire".to_owned(),
        Part::PcieUp => "PCIe to memory".to_owned(),
        Part::PcieDown => "PCIe to the NIC".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The name of what a part does.
pub(super) fn activity(activity: Activity<'_>) -> String {
    match activity {
        Activity::Thread { thread, name: "" } => format!("thread {}", thread.number()),
        Activity::Thread { name, .. } => name.to_owned(),
        Activity::Receive(kind) => format!("receive {}", packet(kind)),
        Activity::Request => "send a request".to_owned(),
        Activity::Answer => "send an answer".to_owned(),
        Activity::Bytes(bytes) => format!("{bytes} B"),
        other => format!("{other:?}"),
    }
}

fn packet(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Send => "SEND",
        PacketKind::Write => "WRITE",
        PacketKind::ReadRequest => "READ",
        PacketKind::ReadResponse => "READ response",
        PacketKind::CompareAndSwap => "compare and swap",
        PacketKind::FetchAndAdd => "fetch and add",
        PacketKind::AtomicResponse => "atomic response",
        PacketKind::Datagram => "datagram",
        PacketKind::Acknowledge => "acknowledgement",
        PacketKind::Refuse(_) => "refusal",
        PacketKind::Congestion => "congestion notification",
    }
}
