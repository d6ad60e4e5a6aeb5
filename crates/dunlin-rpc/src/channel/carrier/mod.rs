//! What every channel over a connected queue pair stands on, whatever its messages look like: the send queue and its
//! account, long payloads by READ, one-sided operations, sleep and wake-ups, probes of a silent peer.
//!
//! Each side has an *inlet*, which only its peer is told of: a few control words, of which the peer's wish to be woken
//! is one, and behind them whatever the channel's messages need. Nobody waits in here.

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

pub(in crate::channel) use connect::{
    number, place, traffic_class, Arrivals, Inlet, Peer, UnconnectedCarrier,
};
use long::Fetch;
use one_sided::OneSidedWork;
use receives::Receives;

pub(crate) use one_sided::Finished;
pub(crate) use requests::PROBE_INTERVAL;

/// Offset in an inlet of the number of the peer's latest sleep; a new number asks for a wake-up.
pub(in crate::channel) const SLEEP_AT: usize = 64;

/// Entries of the send queue.
pub(in crate::channel) const SEND_REQUESTS: usize = 256;
/// One in this many WRITEs is signaled (FaSST's selective signaling), so that entries of the send queue come back.
const SIGNAL_EVERY: usize = 64;
/// Ids of work requests whose completion means nothing but that entries came back.
pub(in crate::channel) const QUIET: u64 = u64::MAX;

/// The bit of an immediate that tells a request for credits from a wake-up; the others are the median coalescing
/// degree.
pub(in crate::channel) const ASKS: u32 = 1 << 31;
/// The bit of an immediate that reports one-sided operations; the others are their median degree.
pub(in crate::channel) const REPORTS: u32 = 1 << 30;
/// The bit of an immediate that tells where a message is; the others are the channel's.
pub(in crate::channel) const NOTIFICATIONS: u32 = 1 << 29;

/// One side of a connected queue pair.
#[derive(Debug)]
pub(crate) struct Carrier<D: Device> {
    pub(crate) queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    /// The id of RECEIVEs. Another one than [`QUIET`]: their completions go to a queue that others share.
    receive_id: u64,
    /// Where RECEIVEs have memory.
    buffers: Option<Receives<D>>,
    wake: D::CompletionChannel,
    pub(super) inlet: D::Region,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    pub(super) config: ChannelConfig,
    pub(super) inline_bytes: usize,
    pub(super) peer_inlet: RemoteAddress,
    /// Longest payload that the peer takes.
    peer_longest: usize,
    pub(super) sends: SendQueue,
    /// Something waits for an entry of the send queue.
    short: bool,
    /// Looks for their completions in vain, in a row, and when the first of them was that looked at the clock.
    vain_looks: u32,
    stalled_since: Instant,
    /// Payloads whose READs wait for room in the send queue, and those whose READs are posted.
    fetches: VecDeque<Fetch<D>>,
    reading: VecDeque<InFlight<(u64, Buffer<D>)>>,
    sleep: SleepWord,
    /// The last request that was posted to show, when it is done, that all that was sent before has arrived.
    fence: Ticket,
    /// The last request that brought the peer something, until it is known to have arrived.
    pub(super) unconfirmed: Option<Ticket>,
    pub(super) broken: Option<ChannelError>,
    /// The peer asked for credits and reported this degree.
    pub(super) asked: Option<u32>,
    /// The peer reported this degree of one-sided operations.
    pub(super) reported: Option<u32>,
    one_sided: OneSidedWork<D>,
    /// The peer's queue pair is known to take requests.
    pub(super) met: bool,
    /// Since when the peer's first word is waited for: by the clock of whoever polls, who need not be who joined.
    waited_since: Option<Instant>,
    /// This side has dialled.
    pub(super) dialled: bool,
    /// The last probe, while it is not known to have arrived.
    probe: Option<Ticket>,
    next_probe: Instant,
    pub(super) device: D,
    pub(super) domain: D::ProtectionDomain,
}

impl<D: Device> Carrier<D> {
    /// Longest payload that the peer takes.
    pub(crate) fn longest(&self) -> usize {
        self.peer_longest
    }

    /// Bytes that one WRITE or READ takes along at most.
    fn longest_verb(&self) -> usize {
        self.device.attributes().max_message_bytes
    }

    /// Bytes of a one-sided operation at most.
    pub(crate) fn longest_operation(&self) -> usize {
        self.longest().min(self.longest_verb())
    }

    /// The limits of this side.
    pub(crate) fn config(&self) -> &ChannelConfig {
        &self.config
    }

    /// What to sleep on.
    pub(crate) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }

    /// Where export buffers come from.
    pub(crate) fn exports(&self) -> &Arc<BufferPool<D>> {
        &self.exports
    }

    /// An export buffer for a payload of `length` bytes.
    pub(crate) fn export(&self, length: usize) -> Result<Buffer<D>, ChannelError> {
        self.exports
            .take(length)
            .map_err(|e| ChannelError::memory(e.to_string()))
    }

    /// Whether `buffer` was exported by this channel.
    pub(crate) fn owns(&self, buffer: &Buffer<D>) -> bool {
        buffer.is_of(&self.exports)
    }

    /// Whether the channel is known to be of no more use. The path of a call asks.
    #[inline]
    pub(crate) fn is_known_failed(&self) -> bool {
        self.broken.is_some() || self.queue_pair.is_known_failed()
    }

    /// Registers a region of this device for the peer of this channel alone, with this access of what it has.
    pub(crate) fn register_again(
        &self,
        region: &D::Region,
        access: Access,
    ) -> Result<D::Region, ChannelError> {
        self.device
            .register_again(&self.domain, region, access)
            .map_err(|e| ChannelError::memory(e.to_string()))
    }

    /// What ends it from another thread; see [`QueuePair::aborter`].
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.queue_pair.aborter()
    }

    /// Whether the peer's queue pair is known to take requests.
    pub(crate) fn is_met(&self) -> bool {
        self.met
    }

    /// Bytes that a work request carries inside itself.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }
}
