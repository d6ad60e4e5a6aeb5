//! What all channels over a connected queue pair share, whatever their message format: the send queue and its account,
//! long payloads by READ, one-sided operations, sleep and wake-ups, probes of a silent peer.
//!
//! Each side has an *inlet*, whose address only its peer knows: a few control words, one of which is the peer's request
//! to be woken, followed by what the channel's messages need. Nothing here waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use dunlin_link::{InFlight, SendQueue, SleepWord, Ticket};
use dunlin_verbs::{Aborter, Access, Device, QueuePair, RemoteAddress};

use super::buffers::{Buffer, BufferPool};
use super::ChannelError;
use crate::config::ChannelConfig;

mod connect;
mod long;
mod one_sided;
mod receives;
mod requests;
mod sleep;

pub(crate) use connect::CLASS_PARAMETER;
pub(in crate::channel) use connect::{Inlet, Peer, Receiving, UnconnectedCarrier};
use long::Fetch;
use one_sided::OneSidedWork;
use receives::Receives;

pub(crate) use one_sided::Finished;

/// Offset in an inlet of the number of the peer's latest sleep; a new number requests a wake-up.
pub(in crate::channel) const SLEEP_AT: usize = 64;

/// Number of entries of the send queue.
pub(in crate::channel) const SEND_REQUESTS: usize = 256;
/// One in this many WRITEs is signaled (FaSST's selective signaling), so that entries of the send queue are freed.
const SIGNAL_EVERY: usize = 64;
/// The id of work requests whose completion only frees entries.
pub(in crate::channel) const QUIET: u64 = u64::MAX;

/// The bit of an immediate that distinguishes a request for credits from a wake-up; the other bits are the median
/// coalescing degree.
pub(in crate::channel) const ASKS: u32 = 1 << 31;
/// The bit of an immediate that reports one-sided operations; the other bits are their median degree.
pub(in crate::channel) const REPORTS: u32 = 1 << 30;
/// The bit of an immediate that states where a message is; the other bits belong to the channel.
pub(in crate::channel) const NOTIFICATIONS: u32 = 1 << 29;

/// One side of a connected queue pair.
#[derive(Debug)]
pub(crate) struct Carrier<D: Device> {
    pub(crate) queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    /// The id of RECEIVEs. If it is not [`QUIET`], their completions go to a shared queue.
    receive_id: u64,
    /// The memory of RECEIVEs, if they have any.
    buffers: Option<Receives<D>>,
    wake: D::CompletionChannel,
    pub(super) inlet: D::Region,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    pub(super) config: ChannelConfig,
    pub(super) inline_bytes: usize,
    pub(super) peer_inlet: RemoteAddress,
    /// Maximum length of a payload that the peer accepts.
    peer_longest: usize,
    pub(super) sends: SendQueue,
    /// Something waits for an entry of the send queue.
    short: bool,
    /// Number of consecutive polls without a completion, and when the first of them read the clock.
    vain_looks: u32,
    stalled_since: Instant,
    /// Payloads whose READs wait for room in the send queue, and those whose READs are posted.
    fetches: VecDeque<Fetch<D>>,
    reading: VecDeque<InFlight<(u64, Buffer<D>)>>,
    sleep: SleepWord,
    /// The last request posted as a fence: its completion shows that all that was sent before has arrived.
    fence: Ticket,
    /// The last request that transferred something to the peer, until it is known to have arrived.
    pub(super) unconfirmed: Option<Ticket>,
    pub(super) broken: Option<ChannelError>,
    /// The degree that the peer reported with its request for credits.
    pub(super) asked: Option<u32>,
    /// The degree of one-sided operations that the peer reported.
    pub(super) reported: Option<u32>,
    one_sided: OneSidedWork<D>,
    /// The name of the last request of a ring that has completed, until the ring takes it (see
    /// [`crate::channel::rb2`]).
    pub(super) ring_completed: Option<u64>,
    /// The peer's queue pair is known to accept requests.
    pub(super) met: bool,
    /// When waiting for the peer's first message began, and when the peer is probed next: by the clock of the polling
    /// thread, which need not be the one that connected.
    waited_since: Option<Instant>,
    next_probe: Option<Instant>,
    /// Whether this side has dialled.
    pub(super) dialled: bool,
    /// The last probe, until it is known to have arrived.
    probe: Option<Ticket>,
    pub(super) device: D,
    pub(super) domain: D::ProtectionDomain,
}

impl<D: Device> Carrier<D> {
    /// Maximum length of a payload that the peer accepts.
    pub(crate) fn longest(&self) -> usize {
        self.peer_longest
    }

    /// Maximum number of bytes of one WRITE or READ.
    fn longest_verb(&self) -> usize {
        self.device.attributes().max_message_bytes
    }

    /// Maximum number of bytes of a one-sided operation.
    pub(crate) fn longest_operation(&self) -> usize {
        self.longest().min(self.longest_verb())
    }

    /// The limits of this side.
    pub(crate) fn config(&self) -> &ChannelConfig {
        &self.config
    }

    /// The channel to sleep on.
    pub(crate) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }

    /// The pool of export buffers.
    pub(crate) fn exports(&self) -> &Arc<BufferPool<D>> {
        &self.exports
    }

    /// Whether the channel is known to have failed. Called on the path of a call.
    #[inline]
    pub(crate) fn is_known_failed(&self) -> bool {
        self.broken.is_some() || self.queue_pair.is_known_failed()
    }

    /// Registers a region of this device for the peer of this channel only, with this subset of its access.
    pub(crate) fn register_again(
        &self,
        region: &D::Region,
        access: Access,
    ) -> Result<D::Region, ChannelError> {
        self.device
            .register_again(&self.domain, region, access)
            .map_err(ChannelError::memory)
    }

    /// Ends it from another thread; see [`QueuePair::aborter`].
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.queue_pair.aborter()
    }

    /// Whether the peer's queue pair is known to accept requests.
    pub(crate) fn is_met(&self) -> bool {
        self.met
    }

    /// Number of bytes that a work request can carry inline.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }
}
