//! The capabilities and limits of a device. Code above the verbs layer may base decisions on nothing else.

use crate::queue_pair::Transport;

bitflags::bitflags! {
    /// The verbs that a transport of a device supports.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Verbs: u32 {
        /// Two-sided SEND, with and without immediate data.
        const SEND = 1;
        /// One-sided WRITE.
        const WRITE = 1 << 1;
        /// WRITE that also consumes a RECEIVE at the peer and delivers 32 bits of immediate data.
        const WRITE_WITH_IMMEDIATE = 1 << 2;
        /// One-sided READ.
        const READ = 1 << 3;
        /// Compare-and-swap and fetch-and-add on 8 bytes.
        const ATOMIC = 1 << 4;
        /// Receive queues that are shared by several queue pairs.
        const SHARED_RECEIVE = 1 << 5;
    }
}

/// The verbs that each transport of a device supports; a missing transport has none.
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
    /// Returns the verbs of `transport`; empty if the device does not have it.
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
    /// Ascending addresses: a byte becomes visible only after all bytes below it. Valid bytes and canaries work.
    InOrder,
    /// Any order until the completion: only a second WRITE shows that the first has arrived.
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

/// Limits and properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The device's name for display, such as `shm` or `mlx5_0`.
    pub name: String,
    /// Supported transports and their verbs.
    pub transports: TransportSet,
    /// The order in which the bytes of one WRITE become visible.
    pub placement: Placement,
    /// Whether each WRITE is a message of its own on a wire, so that one long WRITE costs less than two short ones.
    /// False where `post_send` itself stores into the peer's memory.
    pub writes_are_messages: bool,
    /// Small messages per second that the device can handle, half of them sent and half received, if known. A server
    /// bounds by it how much it lets arrive at once. `None` where messages cost the device itself nothing, or where the
    /// rate is not known.
    pub messages_per_second: Option<u64>,
    /// Whether the network never drops packets on its own, as with InfiniBand's credits and with shared memory: a
    /// datagram is then lost only through a failed host or cable, or a receiver without buffers. Ethernet may or may
    /// not be lossless, so this is false there.
    pub lossless: bool,
    /// Whether packets are processed by software, so that each waits for kernels and threads at both ends: round trips
    /// are then longer than the network's, and vary with the scheduler.
    pub packets_by_software: bool,
    /// Maximum number of queue pairs at a time.
    pub max_queue_pairs: usize,
    /// Maximum number of work requests in a send queue.
    pub max_send_requests: usize,
    /// Maximum number of work requests in a receive queue.
    pub max_receive_requests: usize,
    /// Maximum number of segments in a work request.
    pub max_segments: usize,
    /// Maximum number of payload bytes that a work request may carry inline.
    pub max_inline_bytes: usize,
    /// Maximum number of completions in a completion queue.
    pub max_completions: usize,
    /// Maximum number of regions registered at a time.
    pub max_regions: usize,
    /// Maximum number of bytes registered at a time, over all regions.
    pub max_registered_bytes: usize,
    /// Maximum message length in bytes, RC and UC.
    pub max_message_bytes: usize,
    /// Path MTU in bytes; also the maximum length of a datagram, without its routing header.
    pub mtu_bytes: usize,
    /// Maximum number of requests in a shared receive queue; zero if there are none.
    pub max_shared_receive_requests: usize,
    /// Whether completions carry a hardware timestamp.
    pub timestamps: bool,
    /// The best kind of pages that was available when the device was opened.
    pub page_kind: PageKind,
    /// Whether memory registered by [`crate::Device::register_raw`] may be the target of remote operations.
    pub raw_memory_remote: bool,
    /// Whether a grant is a mapping of the memory in the peer's process, instead of a key that a NIC checks with each
    /// access. A peer that was granted REMOTE_WRITE or REMOTE_ATOMIC can then also read **all** of the region. Its
    /// process keeps what it was granted until it unmaps the memory or ends, whatever becomes of the registration and
    /// of the connection, and registering the same memory for another peer ([`crate::Device::register_again`]) does not
    /// change that. So memory that one peer may write must hold nothing that it must not read, and memory that is
    /// registered for several peers in turn is accessible to all of them for as long as their processes live.
    pub grants_are_mappings: bool,
    /// Whether the device speaks RoCEv2 at the standard's UDP port, and so interoperates with devices of other kinds
    /// that do.
    pub speaks_roce: bool,
}

impl DeviceAttributes {
    /// Whether queue pairs are memory of a process or of a kernel, so that there is no NIC that could have too many of
    /// them or be sent too many messages.
    pub fn queue_pairs_by_software(&self) -> bool {
        self.packets_by_software || !self.writes_are_messages
    }
}
