//! Helpers for all behaviours: the active end, connected pairs, and bounded waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Segment, SendFlags,
    SendRequest, Transport, VerbsError,
};

/// Maximum time for a condition to become true before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A segment of the device's memory.
pub type Piece<'a, D> = Segment<'a, <D as Device>::Region>;
/// The device's address handle.
pub type Handle<D> = <D as Device>::AddressHandle;
/// A send request of the device.
pub type Request<'a, D> = SendRequest<'a, <D as Device>::Region, Handle<D>>;

/// Calls `attempt` until it returns something.
///
/// # Panics
/// When it returns nothing for [`PATIENCE`].
pub fn wait<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    patiently(attempt).unwrap_or_else(|| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Calls `attempt` until it returns something, or has returned nothing for [`PATIENCE`].
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = attempt();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        std::thread::yield_now();
    }
}

/// `length` bytes that depend on `seed` and position.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// A segment.
pub fn piece<R: crate::Region>(region: &R, offset: usize, length: usize) -> Segment<'_, R> {
    Segment {
        region,
        offset,
        length,
    }
}

/// Options of an endpoint; segments and inline bytes are limited by the device.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Options {
    pub transport: Transport,
    /// What peers may do through the endpoint.
    pub access: Access,
    pub send_requests: usize,
    pub receive_requests: usize,
    pub segments: usize,
    pub inline_bytes: usize,
    pub completions: usize,
    /// Whether the completion queue has a channel.
    pub channel: bool,
    pub attributes: ConnectAttributes,
    /// At the passive end: number of the shared receive queue, if any.
    pub shared: Option<u32>,
}

impl Options {
    /// Moderate options for `transport`.
    pub fn new(transport: Transport) -> Self {
        let all = Access::all();
        Self {
            transport,
            access: match transport {
                Transport::ReliableConnection => all,
                Transport::UnreliableConnection => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                Transport::UnreliableDatagram => Access::LOCAL_WRITE,
            },
            send_requests: 32,
            receive_requests: 32,
            segments: 4,
            inline_bytes: 64,
            completions: 128,
            channel: false,
            attributes: ConnectAttributes::default(),
            shared: None,
        }
    }
}

/// A queue pair with a completion queue for both directions.
#[derive(Debug)]
pub struct Endpoint<D: Device> {
    /// The queue pair.
    pub queue_pair: D::QueuePair,
    /// Its completion queue.
    pub completions: D::CompletionQueue,
    /// The channel of the completion queue.
    pub channel: Option<D::CompletionChannel>,
    inbox: VecDeque<Completion>,
}

impl<D: Device> Endpoint<D> {
    /// Creates an endpoint in state Init.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        options: &Options,
        shared: Option<&D::SharedReceiveQueue>,
    ) -> Result<Self, VerbsError> {
        let mut endpoint = Self::reset(device, domain, options, shared)?;
        endpoint.queue_pair.to_init(options.access)?;
        Ok(endpoint)
    }

    /// Creates an endpoint in state Reset.
    ///
    /// # Errors
    /// Those of the device.
    pub fn reset(
        device: &D,
        domain: &D::ProtectionDomain,
        options: &Options,
        shared: Option<&D::SharedReceiveQueue>,
    ) -> Result<Self, VerbsError> {
        let channel = if options.channel {
            Some(device.create_completion_channel()?)
        } else {
            None
        };
        let completions = device.create_completion_queue(options.completions, channel.as_ref())?;
        let attributes = device.attributes();
        let queue_pair = device.create_queue_pair(
            domain,
            &QueuePairConfig {
                transport: options.transport,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: options.send_requests.min(attributes.max_send_requests),
                receive_queue: match shared {
                    Some(queue) => ReceiveQueue::Shared(queue),
                    None => ReceiveQueue::Own(
                        options
                            .receive_requests
                            .min(attributes.max_receive_requests),
                    ),
                },
                segments: options.segments.min(attributes.max_segments),
                inline_bytes: options.inline_bytes.min(attributes.max_inline_bytes),
            },
        )?;
        Ok(Self {
            queue_pair,
            completions,
            channel,
            inbox: VecDeque::new(),
        })
    }

    /// Moves it from Init to ReadyToSend.
    ///
    /// # Errors
    /// Those of the device.
    pub fn connect(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        self.queue_pair.to_ready_to_receive(remote, attributes)?;
        self.queue_pair.to_ready_to_send()
    }

    /// Returns the next completion, if there is one now.
    ///
    /// # Panics
    /// When the queue has overrun.
    pub fn poll(&mut self) -> Option<Completion> {
        if self.inbox.is_empty() {
            let mut some = [Completion::EMPTY; 16];
            let count = self.completions.poll(&mut some).expect("no overrun");
            self.inbox.extend(&some[..count]);
        }
        self.inbox.pop_front()
    }

    /// Posts one signaled request.
    ///
    /// # Panics
    /// When it is refused.
    pub fn post(&mut self, id: u64, operation: Operation, segments: &[Piece<'_, D>]) {
        self.post_flagged(id, operation, segments, SendFlags::SIGNALED);
    }

    /// Posts one request.
    ///
    /// # Panics
    /// When it is refused.
    pub fn post_flagged(
        &mut self,
        id: u64,
        operation: Operation,
        segments: &[Piece<'_, D>],
        flags: SendFlags,
    ) {
        let request = Request::<D>::new(id, operation, Payload::Segments(segments), flags);
        self.queue_pair
            .post_send(&[request])
            .unwrap_or_else(|error| panic!("request {id} {operation:?} refused: {error}"));
    }

    /// Posts one RECEIVE.
    ///
    /// # Panics
    /// When it is refused.
    pub fn receive(&mut self, id: u64, segments: &[Piece<'_, D>]) {
        self.queue_pair
            .post_receive(&[ReceiveRequest { id, segments }])
            .unwrap_or_else(|error| panic!("RECEIVE {id} refused: {error}"));
    }
}
