//! A ring channel: inbox, outbox and the queue pair between two of them.
//!
//! Each side registers one *inlet*, which only its peer may write: a control line with the peer's count of consumed lines, one with the
//! peer's wish to be woken, then the ring. Nobody waits in here: [`RingChannel::receive`] looks, [`RingChannel::flush`] writes,
//! and the drivers above decide when to look again or to sleep.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionQueue, ConnectAttributes, Device,
    EndpointAddress, Notify, Operation, Payload, Placement, PostErrorKind, QueuePair,
    QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest, Region, RemoteAddress,
    RemoteKey, Segment, SendFlags, SendRequest, Transport, VerbsError,
};

use super::buffers::{Buffer, BufferPool, Purpose};
use super::inbox::{Arrival, Inbox};
use super::line::{self, Descriptor, Header, Kind, LINE_BYTES};
use super::outbox::{Outbox, Piece};
use super::ChannelError;
use crate::config::ChannelConfig;

/// Offset in an inlet of the lines of the *other* ring that the peer has consumed.
const CONSUMED_AT: usize = 0;
/// Offset in an inlet of the number of the peer's latest sleep; a new number asks for a wake-up.
const SLEEP_AT: usize = 64;
/// Offset in an inlet of the ring; a page, so that lines are cache lines.
const RING_AT: usize = 4096;

/// Entries of the send queue.
const SEND_REQUESTS: usize = 256;
/// One in this many WRITEs is signaled (FaSST's selective signaling), so that entries of the send queue come back.
const SIGNAL_EVERY: u32 = 64;
/// RECEIVEs kept posted for wake-ups.
const RECEIVES: usize = 8;
/// How long a full send queue is waited for.
const RECLAIM: Duration = Duration::from_secs(2);
/// Ids of work requests whose completion means nothing but that entries came back.
const QUIET: u64 = u64::MAX;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const ADDRESS: &str = "inlet-address";
    pub(super) const KEY: &str = "inlet-key";
    pub(super) const LINES: &str = "ring-lines";
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
}

/// What two sides tell each other: numbers by name.
pub(crate) type Parameters = BTreeMap<String, u64>;

/// A READ that has completed.
#[derive(Debug)]
pub(crate) struct Fetched<D: Device> {
    /// What the caller named it.
    pub(crate) id: u64,
    /// The payload.
    pub(crate) buffer: Buffer<D>,
}

/// A READ under way.
#[derive(Debug)]
struct Fetch<D: Device> {
    id: u64,
    buffer: Buffer<D>,
    remote: RemoteAddress,
    posted: bool,
}

/// A channel whose peer is not known yet.
#[derive(Debug)]
pub(crate) struct UnconnectedRing<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    wake: D::CompletionChannel,
    inlet: D::Region,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    device: D,
    domain: D::ProtectionDomain,
    config: ChannelConfig,
    inline_bytes: usize,
}

/// One ring each way over one RC queue pair.
#[derive(Debug)]
pub(crate) struct RingChannel<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    wake: D::CompletionChannel,
    inlet: D::Region,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    /// Where batches stand that are too long to be inline: a copy of the peer's ring.
    staging: Option<D::Region>,
    inbox: Inbox,
    outbox: Outbox,
    config: ChannelConfig,
    inline_bytes: usize,
    peer_inlet: RemoteAddress,
    /// Longest payload that the peer takes in its ring, and at all.
    peer_eager_bytes: usize,
    peer_longest: usize,
    /// Lines of our inbox that the peer was told to be consumed by a WRITE of its own. Tags tell it too, but only when it
    /// reads them, and a peer that waits for room does not read.
    told_consumed: u64,
    /// Requests since the last signaled one.
    unsignaled: u32,
    /// Requests posted in all, how many of them are known to be done, and the signaled ones between, in order.
    posted: u64,
    retired: u64,
    signaled: VecDeque<u64>,
    fetches: Vec<Fetch<D>>,
    fetched: Vec<Fetched<D>>,
    /// The peer's sleep that we last answered with a wake-up, and our own latest one.
    woken: u64,
    sleep: u64,
    /// Whether the peer still has to wake us for our latest sleep, and which request told it so.
    asleep: bool,
    announcement: u64,
    /// The last request that brought the peer something, until it is known to have arrived.
    unconfirmed: Option<u64>,
    broken: Option<ChannelError>,
}

impl<D: Device> UnconnectedRing<D> {
    /// Makes the objects of one side. `wake` is raised when the peer wakes this channel.
    pub(crate) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        if attributes.placement != Placement::InOrder {
            return Err(VerbsError::Unsupported {
                device: attributes.name.clone(),
                what: "WRITEs placed in address order, which the preset plain relies on".into(),
            });
        }
        // A domain for each connection: no key of another connection is of any use here.
        let domain = device.create_protection_domain()?;
        let inlet = device.allocate_region(
            &domain,
            RING_AT + config.ring_bytes,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?;
        let entries = SEND_REQUESTS + RECEIVES;
        let completions = device.create_completion_queue(entries, Some(wake))?;
        let inline_bytes = attributes
            .max_inline_bytes
            .min(Outbox::batch_bytes(config.eager_bytes));
        let mut queue_pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: SEND_REQUESTS,
                receive_queue: ReceiveQueue::Own(RECEIVES),
                segments: 1,
                inline_bytes,
            },
        )?;
        queue_pair.to_init(Access::REMOTE_WRITE | Access::REMOTE_READ)?;
        Ok(Self {
            queue_pair,
            completions,
            wake: wake.clone(),
            inlet,
            exports: BufferPool::new(device, &domain, Purpose::Export),
            landings: BufferPool::new(device, &domain, Purpose::Landing),
            device: device.clone(),
            domain,
            config: config.clone(),
            inline_bytes,
        })
    }

    /// Where the peer reaches this side.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// What the peer must know beyond the address.
    pub(crate) fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let lines = self.config.ring_bytes / LINE_BYTES;
        [
            (parameter::ADDRESS, inlet.address),
            (parameter::KEY, u64::from(inlet.key.0)),
            (parameter::LINES, lines as u64),
            (parameter::EAGER, self.config.eager_bytes as u64),
            (parameter::LONGEST, self.config.max_message_bytes as u64),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    /// Joins this side to its peer.
    pub(crate) fn connect(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<RingChannel<D>, VerbsError> {
        let Self {
            mut queue_pair,
            completions,
            wake,
            inlet,
            config,
            ..
        } = self;
        let number = |name: &'static str, most: usize| {
            let value = parameters.get(name).copied().ok_or_else(|| {
                VerbsError::Peer(format!(
                    "it did not say its {name}: not a ring of this version"
                ))
            })?;
            usize::try_from(value)
                .ok()
                .filter(|&v| v <= most)
                .ok_or_else(|| VerbsError::Peer(format!("its {name} is {value}, more than {most}")))
        };
        let lines = number(parameter::LINES, 1 << 20)?;
        if !lines.is_power_of_two() || lines < 64 {
            return Err(VerbsError::Peer(format!(
                "its ring has {lines} lines: not a power of two"
            )));
        }
        let eager = number(parameter::EAGER, lines * LINE_BYTES / 4)?;
        if eager < line::DESCRIPTOR_BYTES {
            return Err(VerbsError::Peer(format!(
                "its eager-bytes is {eager}: not even a descriptor fits"
            )));
        }
        let longest = number(parameter::LONGEST, 1 << 30)?;
        let key = number(parameter::KEY, u32::MAX as usize)?;
        let address = number(parameter::ADDRESS, usize::MAX)?;
        let timeouts = ConnectAttributes {
            timeout_ns: 500_000_000,
            // A side that announces a sleep has a RECEIVE for its wake-up. Waiting for one that has not would block our sends.
            receiver_not_ready_retries: 0,
            ..Default::default()
        };
        queue_pair.to_ready_to_receive(Some(peer), timeouts)?;
        queue_pair.to_ready_to_send()?;
        for _ in 0..RECEIVES {
            let wake_up = ReceiveRequest {
                id: QUIET,
                segments: &[],
            };
            queue_pair
                .post_receive(&[wake_up])
                .map_err(|e| VerbsError::Peer(e.to_string()))?;
        }
        let eager = eager.min(config.eager_bytes);
        let staging = (self.inline_bytes < Outbox::batch_bytes(eager))
            .then(|| {
                let length = lines * LINE_BYTES;
                self.device
                    .allocate_region(&self.domain, length, Access::LOCAL_WRITE)
            })
            .transpose()?;
        Ok(RingChannel {
            inbox: Inbox::new(RING_AT, config.ring_bytes / LINE_BYTES, config.eager_bytes),
            outbox: Outbox::new(lines, eager),
            peer_inlet: RemoteAddress {
                address: address as u64,
                key: RemoteKey(key as u32),
            },
            peer_eager_bytes: eager,
            peer_longest: longest,
            queue_pair,
            completions,
            wake,
            inlet,
            exports: self.exports,
            landings: self.landings,
            staging,
            inline_bytes: self.inline_bytes,
            config,
            told_consumed: 0,
            unsignaled: 0,
            posted: 0,
            retired: 0,
            signaled: VecDeque::with_capacity(SEND_REQUESTS),
            fetches: Vec::new(),
            fetched: Vec::new(),
            woken: 0,
            sleep: 0,
            asleep: false,
            announcement: 0,
            unconfirmed: None,
            broken: None,
        })
    }
}

impl<D: Device> RingChannel<D> {
    /// Longest payload that goes into the ring.
    #[inline]
    pub(crate) fn eager_bytes(&self) -> usize {
        self.peer_eager_bytes
    }

    /// Longest payload that the peer takes.
    pub(crate) fn longest(&self) -> usize {
        self.peer_longest
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

    /// Where the queue pair stands.
    #[inline]
    pub(crate) fn state(&self) -> QueuePairState {
        self.queue_pair.state()
    }

    /// Makes room for a message with `payload` bytes, by flushing and by looking at the peer's count. `false`: not now.
    #[inline]
    pub(crate) fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        let lines = line::lines_for(payload);
        if !self.outbox.batch_fits(lines) {
            self.flush()?;
        }
        if self.outbox.room() >= lines {
            return Ok(true);
        }
        self.look_for_room(lines)
    }

    /// Whether a message with `payload` bytes will find room; unlike [`RingChannel::make_room`] it leaves the batch alone.
    #[inline]
    pub(crate) fn has_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        let lines = line::lines_for(payload);
        if self.outbox.room() >= lines {
            return Ok(true);
        }
        self.look_for_room(lines)
    }

    #[cold]
    fn look_for_room(&mut self, lines: usize) -> Result<bool, ChannelError> {
        self.flush()?;
        let told = self
            .inlet
            .memory()
            .atomic_u64(CONSUMED_AT)
            .load(Ordering::Acquire);
        // The tags may have brought a later count than this word; a count never goes back.
        if (told as u32).wrapping_sub(self.outbox.known_consumed() as u32) as i32 > 0 {
            self.outbox.peer_consumed(told as u32)?;
        }
        Ok(self.outbox.room() >= lines)
    }

    /// Puts a message into the batch. The caller has made room and keeps to [`RingChannel::eager_bytes`].
    #[inline]
    pub(crate) fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        let consumed = self.inbox.consumed();
        let header = Header {
            length: payload.len() as u32,
            handler,
            kind,
            call,
        };
        self.outbox.push(header, payload, consumed);
    }

    /// Puts the descriptor of a payload in `buffer` into the batch.
    pub(crate) fn push_long(&mut self, kind: Kind, handler: u16, call: u64, buffer: &Buffer<D>) {
        let remote = buffer.region().remote();
        let descriptor = Descriptor {
            address: remote.address,
            length: buffer.len() as u64,
            key: remote.key.0,
        };
        self.push(kind, handler, call, &descriptor.encode());
    }

    /// Writes the batch to the peer, and wakes it if it sleeps.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), ChannelError> {
        if self.outbox.is_flushed() {
            return Ok(());
        }
        self.reserve(4)?;
        let ring = self.peer_inlet.plus(RING_AT as u64);
        for Piece { offset, bytes } in self.outbox.pieces() {
            if bytes.is_empty() {
                continue;
            }
            let signal = self.unsignaled + 1 >= SIGNAL_EVERY;
            let flags = if signal {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            let write = Operation::Write {
                remote: ring.plus(offset as u64),
                immediate: None,
            };
            let posted = match &self.staging {
                Some(staging) if bytes.len() > self.inline_bytes => {
                    staging.memory().write(offset, bytes);
                    let segment = [Segment {
                        region: staging,
                        offset,
                        length: bytes.len(),
                    }];
                    let payload = Payload::Segments(&segment);
                    self.queue_pair
                        .post_send(&[SendRequest::new(QUIET, write, payload, flags)])
                }
                _ => {
                    let payload = Payload::Inline(bytes);
                    self.queue_pair
                        .post_send(&[SendRequest::new(QUIET, write, payload, flags)])
                }
            };
            if let Err(error) = posted {
                let error = ChannelError::queue_pair(error.to_string());
                self.broken = Some(error.clone());
                return Err(error);
            }
            self.posted += 1;
            if signal {
                self.unsignaled = 0;
                self.signaled.push_back(self.posted);
            } else {
                self.unsignaled += 1;
            }
        }
        self.outbox.written();
        self.unconfirmed = Some(self.posted);
        self.wake_if_asleep()
    }

    /// Wakes the peer if it announced a sleep that was not answered yet.
    #[inline]
    fn wake_if_asleep(&mut self) -> Result<(), ChannelError> {
        let sleep = self
            .inlet
            .memory()
            .atomic_u64(SLEEP_AT)
            .load(Ordering::Relaxed);
        if sleep != self.woken {
            self.wake_peer(sleep)?;
        }
        Ok(())
    }

    #[cold]
    fn wake_peer(&mut self, sleep: u64) -> Result<(), ChannelError> {
        self.woken = sleep;
        let operation = Operation::Write {
            remote: self.peer_inlet,
            immediate: Some(0),
        };
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        self.post(SendRequest::new(
            QUIET,
            operation,
            Payload::Inline(&[]),
            flags,
        ))
    }

    fn post(
        &mut self,
        request: SendRequest<'_, D::Region, D::AddressHandle>,
    ) -> Result<(), ChannelError> {
        self.reserve(1)?;
        self.queue_pair
            .post_send(&[request])
            .map_err(|e| ChannelError::queue_pair(e.to_string()))?;
        self.note_signaled();
        Ok(())
    }

    /// A signaled request was posted.
    fn note_signaled(&mut self) {
        self.posted += 1;
        self.unsignaled = 0;
        self.signaled.push_back(self.posted);
    }

    /// Whether `entries` more fit into the send queue.
    #[inline]
    fn has_entries(&self, entries: usize) -> bool {
        (self.posted - self.retired) as usize + entries <= SEND_REQUESTS
    }

    /// Makes sure that `entries` of the send queue are free. An RC peer that lives gives them back soon, so this waits for
    /// completions, within the retry time of the queue pair.
    #[inline]
    fn reserve(&mut self, entries: usize) -> Result<(), ChannelError> {
        if self.has_entries(entries) {
            return Ok(());
        }
        self.reclaim(entries)
    }

    #[cold]
    fn reclaim(&mut self, entries: usize) -> Result<(), ChannelError> {
        let started = Instant::now();
        loop {
            self.progress()?;
            if self.has_entries(entries) {
                return Ok(());
            }
            if started.elapsed() > RECLAIM {
                let words = "the peer lets no request complete".to_owned();
                return Err(self.fail(ChannelError::queue_pair(words)));
            }
            std::hint::spin_loop();
        }
    }

    /// Takes completions: entries that came back, READs that are done, wake-ups, failures.
    pub(crate) fn progress(&mut self) -> Result<(), ChannelError> {
        let mut completions = [Completion::EMPTY; 16];
        loop {
            let count = self
                .completions
                .poll(&mut completions)
                .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))?;
            for completion in &completions[..count] {
                self.complete(completion)?;
            }
            if count < completions.len() {
                break;
            }
        }
        if self.queue_pair.state() == QueuePairState::Error {
            let error = self.broken.clone().unwrap_or_else(ChannelError::peer_gone);
            return Err(self.fail(error));
        }
        self.post_fetches()
    }

    fn fail(&mut self, error: ChannelError) -> ChannelError {
        self.broken.get_or_insert(error).clone()
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), ChannelError> {
        if !completion.is_success() {
            let error = ChannelError::queue_pair(completion.status.to_string());
            return Err(self.fail(error));
        }
        match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteWithImmediate => {
                self.asleep = false;
                let wake_up = ReceiveRequest {
                    id: QUIET,
                    segments: &[],
                };
                self.queue_pair
                    .post_receive(&[wake_up])
                    .map_err(|e| ChannelError::queue_pair(e.to_string()))
            }
            _ => {
                // Requests complete in order, so this is the oldest signaled one, and all before it are done.
                if let Some(done) = self.signaled.pop_front() {
                    self.retired = done;
                }
                if completion.id != QUIET {
                    let found = self
                        .fetches
                        .iter()
                        .position(|f| f.posted && f.id == completion.id);
                    if let Some(index) = found {
                        let Fetch { id, buffer, .. } = self.fetches.remove(index);
                        self.fetched.push(Fetched { id, buffer });
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes the next message.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        let Some(Arrival {
            header,
            peer_consumed,
        }) = self.inbox.receive(self.inlet.memory())?
        else {
            return Ok(None);
        };
        // A tag may be older than the count that the peer wrote by itself.
        if peer_consumed.wrapping_sub(self.outbox.known_consumed() as u32) as i32 > 0 {
            self.outbox.peer_consumed(peer_consumed)?;
        }
        Ok(Some(header))
    }

    /// The payload of the message that was received last.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> &[u8] {
        self.inbox.payload(header)
    }

    /// Whether a message has begun to arrive.
    #[inline]
    pub(crate) fn has_arrival(&self) -> bool {
        self.inbox.has_arrival(self.inlet.memory())
    }

    /// Tells the peer what was consumed, once for each quarter of the ring (RB²'s lazy push).
    #[inline]
    pub(crate) fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        let untold = self.inbox.consumed() - self.told_consumed;
        if (untold as usize) < self.config.ring_bytes / LINE_BYTES / 4 {
            return Ok(());
        }
        self.told_consumed = self.inbox.consumed();
        let word = self.told_consumed.to_le_bytes();
        self.write_word(CONSUMED_AT, &word)?;
        // The peer may sleep for want of room rather than of messages.
        self.unconfirmed = Some(self.posted);
        self.wake_if_asleep()
    }

    fn write_word(&mut self, at: usize, word: &[u8]) -> Result<(), ChannelError> {
        let remote = self.peer_inlet.plus(at as u64);
        let operation = Operation::Write {
            remote,
            immediate: None,
        };
        let request =
            SendRequest::new(QUIET, operation, Payload::Inline(word), SendFlags::SIGNALED);
        self.post(request)
    }

    /// Starts to fetch the payload that `descriptor` names; it is found in [`RingChannel::take_fetched`] under `id`.
    ///
    /// # Errors
    /// When the descriptor is not one, or names more than this side takes.
    pub(crate) fn fetch(&mut self, id: u64, descriptor: &[u8]) -> Result<(), ChannelError> {
        if id == QUIET {
            return Err(ChannelError::violation("a call with a reserved number"));
        }
        let descriptor = Descriptor::decode(descriptor)
            .ok_or_else(|| ChannelError::violation("a long message without a descriptor"))?;
        let length = usize::try_from(descriptor.length)
            .ok()
            .filter(|&length| length <= self.config.max_message_bytes)
            .ok_or_else(|| ChannelError::violation("a message longer than agreed"))?;
        let buffer = self
            .landings
            .take(length)
            .map_err(|e| ChannelError::memory(e.to_string()))?;
        let remote = RemoteAddress {
            address: descriptor.address,
            key: RemoteKey(descriptor.key),
        };
        self.fetches.push(Fetch {
            id,
            buffer,
            remote,
            posted: false,
        });
        self.post_fetches()
    }

    /// Posts READs that wait for room in the send queue.
    fn post_fetches(&mut self) -> Result<(), ChannelError> {
        for i in 0..self.fetches.len() {
            if self.fetches[i].posted {
                continue;
            }
            if !self.has_entries(1) {
                break;
            }
            let fetch = &self.fetches[i];
            let length = fetch.buffer.len();
            let segment = [Segment {
                region: fetch.buffer.region(),
                offset: 0,
                length,
            }];
            let request = SendRequest::new(
                fetch.id,
                Operation::Read {
                    remote: fetch.remote,
                },
                Payload::Segments(&segment),
                SendFlags::SIGNALED,
            );
            match self.queue_pair.post_send(&[request]) {
                Ok(()) => {}
                Err(error) if matches!(error.kind, PostErrorKind::Full { .. }) => break,
                Err(error) => {
                    let error = ChannelError::queue_pair(error.to_string());
                    return Err(self.fail(error));
                }
            }
            self.note_signaled();
            self.fetches[i].posted = true;
        }
        Ok(())
    }

    /// Whether READs are under way or wait to be taken.
    #[inline]
    pub(crate) fn is_fetching(&self) -> bool {
        !self.fetches.is_empty() || !self.fetched.is_empty()
    }

    /// The next fetched payload.
    pub(crate) fn take_fetched(&mut self) -> Option<Fetched<D>> {
        self.fetched.pop()
    }

    /// Announces that this side is going to sleep: from now on the peer's next message comes with a wake-up. `true` when the announcement
    /// is known to have reached the peer; until then this side may not sleep, because a peer that has not heard of it wakes nobody.
    /// Then the caller looks once more for messages, for longer than a store takes to become visible, and only then sleeps on
    /// [`RingChannel::wake`].
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        // The wake-up for the last announcement may have come; one that comes later wakes us for nothing, once.
        self.progress()?;
        let unconfirmed = self
            .unconfirmed
            .is_some_and(|sent| sent > self.announcement);
        if !self.asleep || unconfirmed {
            if !self.asleep {
                self.sleep += 1;
                self.asleep = true;
            }
            // Signaled, and behind all messages: when it is done, they have arrived.
            let word = self.sleep.to_le_bytes();
            self.write_word(SLEEP_AT, &word)?;
            self.announcement = self.posted;
            self.progress()?;
        }
        let known = self.retired >= self.announcement;
        if known && self.unconfirmed.take().is_some() {
            // A message may have arrived later than it was posted, after the peer announced its sleep and looked in vain.
            self.wake_if_asleep()?;
        }
        self.completions
            .request_notify(Notify::Next)
            .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))?;
        Ok(known)
    }

    /// Ends the channel: the peer sees it.
    pub(crate) fn close(&mut self) {
        self.queue_pair.to_error();
    }
}
