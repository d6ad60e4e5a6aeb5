//! Counters of hosts, NICs and switches. The PCIe counters are those that ScaleRPC reads from the processor (§2.3,
//! §3.6.3).

/// Counters since the cluster was created; the difference of two snapshots is a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Cache lines that the NIC read from host memory (PCIeRdCur).
    pub pcie_read_lines: u64,
    /// Cache lines that the NIC wrote in part (RFO).
    pub partial_line_writes: u64,
    /// Cache lines that the NIC wrote whole (ItoM).
    pub whole_line_writes: u64,
    /// Lines written by the NIC that were not in the last-level cache and had to be allocated (PCIeItoM).
    pub allocating_writes: u64,
    /// Lines written by the NIC that were in the last-level cache.
    pub updating_writes: u64,
    /// Bytes over PCIe towards the host, headers included.
    pub pcie_up_bytes: u64,
    /// Bytes over PCIe towards the NIC, headers included.
    pub pcie_down_bytes: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Requests that were pushed to the NIC with their doorbell.
    pub pushed_elements: u64,
    /// Requests that the NIC fetched.
    pub fetched_elements: u64,
    /// Context lookups that missed.
    pub context_misses: u64,
    /// Context lookups that hit.
    pub context_hits: u64,
    /// Elements that had left the cache when the response arrived.
    pub element_misses: u64,
    /// Translation lookups that missed.
    pub translation_misses: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes sent on the wire, headers and gaps included.
    pub wire_bytes: u64,
    /// Requests started by the NIC.
    pub requests_started: u64,
    /// Messages received, RECEIVEs consumed and WRITEs alike.
    pub messages_received: u64,
    /// READs and atomics answered.
    pub requests_answered: u64,
    /// Packets that arrived before a missing one.
    pub out_of_sequence: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Number of times that a sender went back to an earlier packet.
    pub retransmissions: u64,
    /// Times the transport timer ran out.
    pub timeouts: u64,
    /// Messages refused because no RECEIVE was posted.
    pub receiver_not_ready: u64,
    /// Datagrams and UC messages dropped at the receiver.
    pub receiver_drops: u64,
    /// Packets dropped because the NIC's buffer was full.
    pub buffer_drops: u64,
    /// Times the NIC paused its switch.
    pub pauses_sent: u64,
    /// Times the NIC was paused.
    pub pauses_received: u64,
    /// Congestion notifications received.
    pub congestion_notifications: u64,
    /// Packets dropped by a fault rule.
    pub fault_drops: u64,
    /// Picoseconds in which cores of the host were busy.
    pub busy_ps: u64,
    /// Steps of threads of the host.
    pub steps: u64,
}

/// What a switch counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwitchCounters {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets dropped because the buffer was full.
    pub drops: u64,
    /// Packets marked (ECN).
    pub marks: u64,
    /// Pauses sent.
    pub pauses: u64,
    /// Maximum bytes in the buffer.
    pub buffer_bytes_max: u64,
}
