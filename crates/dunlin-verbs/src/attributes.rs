//! What a device can do and what it cannot: the only thing that code above may decide from.

use crate::queue_pair::Transport;

bitflags::bitflags! {
    /// The verbs that a transport of a device carries out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Verbs: u32 {
        /// Two-sided SEND, with and without immediate data.
        const SEND = 1;
        /// One-sided WRITE.
        const WRITE = 1 << 1;
        /// WRITE that also consumes a RECEIVE at the peer and delivers 32 bits.
        const WRITE_WITH_IMMEDIATE = 1 << 2;
        /// One-sided READ.
        const READ = 1 << 3;
        /// Compare-and-swap and fetch-and-add on 8 bytes.
        const ATOMIC = 1 << 4;
        /// Receive queues that several queue pairs share.
        const SHARED_RECEIVE = 1 << 5;
    }
}

/// What each transport of a device can carry; an absent transport has no verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSet {
    /// Reliable connection.
    pub rc: Verbs,
    /// Unreliable connection.
    pub uc: Verbs,
    /// Unreliable datagram.
    pub ud: Verbs,
}

impl TransportSet {
    /// The verbs of `transport`; empty when the device does not have it.
    pub fn verbs(&self, transport: Transport) -> Verbs {
        match transport {
            Transport::ReliableConnection => self.rc,
            Transport::UnreliableConnection => self.uc,
            Transport::UnreliableDatagram => self.ud,
        }
    }
}

/// The order in which the bytes of one WRITE become visible to a core that polls the target (RB² §IV-A, design §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Ascending addresses: a byte is seen only after all bytes below it. Valid bytes and canaries work.
    InOrder,
    /// Any order until the completion: only a second WRITE tells that the first has arrived.
    Unordered,
}

/// The pages that back a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageKind {
    /// Ordinary 4 KiB pages.
    Base,
    /// 4 KiB pages that the kernel may merge into huge ones.
    Transparent,
    /// Reserved huge pages.
    Huge,
}

impl std::fmt::Display for PageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PageKind::Base => "4 KiB",
            PageKind::Transparent => "transparent huge",
            PageKind::Huge => "huge",
        })
    }
}

/// The limits and habits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The device's name for people, such as `shm` or `mlx5_0`.
    pub name: String,
    /// Transports and their verbs.
    pub transports: TransportSet,
    /// Visibility order of the bytes of one WRITE.
    pub placement: Placement,
    /// Whether each WRITE is a message of its own on a wire, so that one long WRITE costs less than two short ones. Not
    /// so where `post_send` itself stores into the peer's memory.
    pub writes_are_messages: bool,
    /// Small messages that the device takes a second, half of them in and half out, where that is known: what a server
    /// lets come at once is measured by it. `None` where messages cost the device nothing of its own, or nobody has
    /// said.
    pub messages_per_second: Option<u64>,
    /// Whether what carries its packets drops none of its own accord, as InfiniBand's credits and shared memory do not:
    /// a datagram then is lost with a host, a cable or a receiver without room only. Not known of Ethernet, so not so
    /// there.
    pub lossless: bool,
    /// Whether software makes its packets, so that each waits for kernels and threads at both ends: round trips are
    /// longer than the network's then, and vary with the scheduler.
    pub packets_by_software: bool,
    /// Queue pairs at once.
    pub max_queue_pairs: usize,
    /// Work requests a send queue holds at most.
    pub max_send_requests: usize,
    /// Work requests a receive queue holds at most.
    pub max_receive_requests: usize,
    /// Segments of one work request at most.
    pub max_segments: usize,
    /// Payload bytes that a work request may carry inside itself.
    pub max_inline_bytes: usize,
    /// Completions a completion queue holds at most.
    pub max_completions: usize,
    /// Regions registered at once.
    pub max_regions: usize,
    /// Bytes registered at once, over all regions.
    pub max_registered_bytes: usize,
    /// Bytes of one message at most, RC and UC.
    pub max_message_bytes: usize,
    /// Path MTU in bytes; also the largest datagram, without its routing header.
    pub mtu_bytes: usize,
    /// Requests of a shared receive queue at most; zero when there are none.
    pub max_shared_receive_requests: usize,
    /// Whether completions carry a hardware timestamp.
    pub timestamps: bool,
    /// The best pages this device found when it was opened.
    pub page_kind: PageKind,
    /// Whether [`crate::Device::register_raw`] memory may be the target of remote operations.
    pub raw_memory_remote: bool,
    /// Whether a grant is a mapping of the memory in the peer's process, instead of a key that a NIC checks with each
    /// access. A peer that was granted REMOTE_WRITE or REMOTE_ATOMIC can then also read **all** of the region, its
    /// process keeps what it was granted until it unmaps the memory or ends, whatever becomes of the registration and
    /// of the connection, and a registration of the same memory for somebody else ([`crate::Device::register_again`])
    /// does not change that. So memory that one peer may write must hold nothing that it must not read, and memory that
    /// is registered for several peers in turn is all of theirs for as long as their processes live.
    pub grants_are_mappings: bool,
    /// Whether it speaks RoCEv2 at the standard's UDP port, where devices of all kinds that do so find each other.
    pub speaks_roce: bool,
}

impl DeviceAttributes {
    /// Whether queue pairs are memory of processes or of a kernel, so that there is no NIC that has too many of them,
    /// or that is to be kept from too many messages.
    pub fn queue_pairs_by_software(&self) -> bool {
        self.packets_by_software || !self.writes_are_messages
    }
}
