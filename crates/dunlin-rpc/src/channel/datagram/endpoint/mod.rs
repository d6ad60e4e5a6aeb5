//! A datagram queue pair and the sessions that use it. Nothing here waits: what finds no entry in the send queue stays
//! with its sender.

mod arrivals;
mod sending;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_verbs::{
    thread, Aborter, Access, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Notify,
    QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, Transport, Verbs, VerbsError,
};

use super::packet::{Head, Packet, Room};
use super::receives::Receives;
pub(crate) use super::receives::{Block, Stock};
pub(crate) use super::sends::Route;
use super::sends::{self, Sends};
use super::{BESIDE_CALLS, CALLS, PACKET_BYTES_MAX, PACKET_BYTES_MIN};
use crate::channel::ChannelError;
use crate::config::{DatagramBatches, MESSAGES, REST};

/// Maximum number of RECEIVEs of a queue pair: they limit its sessions.
const RECEIVES_MAX: usize = 16 << 10;
// The number of a session has 16 bits in a datagram.
const _: () = assert!(RECEIVES_MAX <= u16::MAX as usize);
/// Number of RECEIVEs before the first session: clients may send their first datagram before theirs are posted.
pub(crate) const FIRST_RECEIVES: usize = receives_of_session();

/// An endpoint of a client. Its sessions belong to one thread, so the lock is uncontended on the path of a call; other
/// threads take it to close a session.
pub(crate) type Shared<D> = Arc<Mutex<Endpoint<D>>>;

/// How long an endpoint that ends waits for its last datagrams to be sent.
const FINISH: Duration = Duration::from_millis(100);

/// A session's place at an endpoint.
#[derive(Debug)]
struct Place<D: Device> {
    /// The cookie that its peer must send. `None`: the place is free.
    cookie: Option<u64>,
    route: Option<Route<D>>,
    /// Datagrams that have arrived: place and length.
    arrived: VecDeque<(u64, u32)>,
}

/// A datagram queue pair.
#[derive(Debug)]
pub(crate) struct Endpoint<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    wake: D::CompletionChannel,
    receives: Receives<D>,
    stock: Stock<D>,
    sends: Sends<D>,
    places: Vec<Place<D>>,
    packet_bytes: usize,
    /// Maximum number of messages in a datagram.
    messages: u8,
    broken: Option<ChannelError>,
    /// Number of sessions that there are RECEIVEs for.
    provided: usize,
    /// Since when the send queue has been full without a completed SEND.
    full_since: Option<Instant>,
    /// Sessions whose datagrams arrived while the send queue was polled for room: reported by the next poll.
    missed: Vec<u32>,
    /// Number of datagrams without a session.
    strange: u64,
    /// Datagrams without a session as yet, while new sessions may be about to be entered: place, length, head.
    unclaimed: Vec<(u64, u32, Head, Option<u32>)>,
    keeps_unclaimed: bool,
    /// Packets of several sessions that are to be sent together: the first `gathered_count` of them, each with its
    /// session.
    gathered: Vec<(u32, Packet)>,
    gathered_count: usize,
    /// Number of polls for room in the send queue that are to fail, to simulate a device with slow SENDs.
    #[cfg(test)]
    pub(crate) vain_looks: usize,
    domain: D::ProtectionDomain,
    device: D,
}

/// Number of RECEIVEs of one session.
pub(crate) const fn receives_of_session() -> usize {
    CALLS + BESIDE_CALLS
}

/// Maximum number of sessions of a queue pair of this device.
pub(crate) fn sessions_max<D: Device>(device: &D) -> usize {
    let receives = device.attributes().max_receive_requests.min(RECEIVES_MAX);
    receives.saturating_sub(FIRST_RECEIVES) / receives_of_session()
}

/// Maximum size of datagrams of this device.
pub(crate) fn packet_bytes<D: Device>(device: &D) -> usize {
    device.attributes().mtu_bytes.min(PACKET_BYTES_MAX) & !7
}

/// A queue pair that is ready to send, and its completion queue.
fn queue_pair<D: Device>(
    device: &D,
    domain: &D::ProtectionDomain,
    wake: &D::CompletionChannel,
    packet_bytes: usize,
) -> Result<(D::QueuePair, D::CompletionQueue), VerbsError> {
    let receives = FIRST_RECEIVES + sessions_max(device) * receives_of_session();
    let completions = device.create_completion_queue(receives + sends::ENTRIES, Some(wake))?;
    let mut queue_pair = device.create_queue_pair(
        domain,
        &QueuePairConfig {
            transport: Transport::UnreliableDatagram,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: sends::ENTRIES,
            receive_queue: ReceiveQueue::Own(receives),
            segments: 1,
            inline_bytes: sends::inline_bytes(device, packet_bytes),
        },
    )?;
    queue_pair.to_init(Access::empty())?;
    queue_pair.to_ready_to_receive(None, ConnectAttributes::default())?;
    queue_pair.to_ready_to_send()?;
    Ok((queue_pair, completions))
}

impl<D: Device> Endpoint<D> {
    /// Creates an endpoint that is ready to send. `wake` is raised when a datagram arrives, if that was requested.
    ///
    /// # Errors
    /// When the device has no datagrams, or a limit is reached.
    pub(crate) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        batches: &DatagramBatches,
    ) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        let packet_bytes = packet_bytes(device);
        let has_datagrams = attributes.transports.ud.contains(Verbs::SEND);
        if !has_datagrams || packet_bytes < PACKET_BYTES_MIN || sessions_max(device) == 0 {
            return Err(VerbsError::Unsupported {
                device: attributes.name.clone(),
                what: format!(
                    "datagrams (UD SEND of at least {PACKET_BYTES_MIN} bytes), which this preset requires: use another \
                     preset"
                ),
            });
        }
        let domain = device.create_protection_domain()?;
        let (queue_pair, completions) = queue_pair(device, &domain, wake, packet_bytes)?;
        Ok(Self {
            sends: Sends::new(device, &domain, packet_bytes, batches)?,
            receives: Receives::new(packet_bytes, batches.receives),
            queue_pair,
            completions,
            wake: wake.clone(),
            places: Vec::new(),
            packet_bytes,
            messages: u8::try_from(batches.messages).unwrap_or(MESSAGES),
            broken: None,
            stock: Stock::new(),
            provided: 0,
            full_since: None,
            missed: Vec::new(),
            strange: 0,
            unclaimed: Vec::new(),
            keeps_unclaimed: false,
            gathered: Vec::new(),
            gathered_count: 0,
            #[cfg(test)]
            vain_looks: 0,
            domain,
            device: device.clone(),
        })
    }

    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    pub(crate) fn domain(&self) -> &D::ProtectionDomain {
        &self.domain
    }

    /// Its address for peers.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// Ends it from another thread; see [`QueuePair::aborter`].
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.queue_pair.aborter()
    }

    /// Maximum size of a datagram that it accepts.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// Limits on a datagram to a peer that accepts `theirs` bytes in one.
    pub(crate) fn room_for(&self, theirs: usize) -> Room {
        Room {
            bytes: theirs.min(self.packet_bytes),
            messages: self.messages,
        }
    }

    /// The channel to sleep on.
    pub(crate) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }

    /// Number of sessions that there are RECEIVEs for.
    pub(crate) fn provided(&self) -> usize {
        self.provided
    }

    /// Registers what one more session needs.
    ///
    /// # Errors
    /// When the device has no memory.
    pub(crate) fn take_block(&mut self) -> Result<Block<D>, VerbsError> {
        let places = receives_of_session();
        self.stock
            .take(&self.device, &self.domain, places, self.packet_bytes)
    }

    /// Posts RECEIVEs for one more session: those of a block, or the missing ones of a block that was being retired.
    pub(crate) fn provide(&mut self, block: Block<D>) -> Result<(), ChannelError> {
        self.provided += 1;
        // What such a block has posted stays in the queue, which has no room for more blocks than there are sessions.
        match self.receives.take_back() {
            true => self.receives.post_all(&mut self.queue_pair),
            false => self.add(block),
        }
    }

    /// Posts the RECEIVEs of a block.
    pub(crate) fn add(&mut self, block: Block<D>) -> Result<(), ChannelError> {
        self.receives.add(block);
        self.receives.post_all(&mut self.queue_pair)
    }

    /// From now on one session fewer has RECEIVEs.
    pub(crate) fn retire(&mut self) {
        self.provided = self.provided.saturating_sub(1);
        self.receives.retire();
    }

    /// Number of blocks of RECEIVEs that it holds.
    pub(crate) fn blocks(&self) -> usize {
        self.receives.blocks()
    }

    /// Whether retired blocks wait for datagrams to use up their RECEIVEs.
    pub(crate) fn has_leaving(&self) -> bool {
        self.receives.has_leaving()
    }

    /// Takes a free place for a session, if there is one, with the cookie that its peer must send.
    pub(crate) fn enter(&mut self, cookie: u64) -> Option<u32> {
        let free = self.places.iter().position(|place| place.cookie.is_none());
        let number = match free {
            Some(number) => number,
            None if self.places.len() < sessions_max(&self.device) => self.places.len(),
            None => return None,
        };
        self.enter_at(number as u32, cookie);
        Some(number as u32)
    }

    /// Takes the place of this number.
    pub(crate) fn enter_at(&mut self, number: u32, cookie: u64) {
        let index = number as usize;
        while self.places.len() <= index {
            self.places.push(Place {
                cookie: None,
                route: None,
                arrived: VecDeque::with_capacity(receives_of_session()),
            });
        }
        self.places[index].cookie = Some(cookie);
    }

    /// Sets the address of the session's peer.
    pub(crate) fn join(&mut self, number: u32, route: Route<D>) {
        self.places[number as usize].route = Some(route);
    }

    /// Frees the place; what arrived for the session is discarded.
    pub(crate) fn leave(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        place.cookie = None;
        place.route = None;
        while let Some((id, _)) = self.places[number as usize].arrived.pop_front() {
            // A failed endpoint does not need it.
            let _ = self.receives.give_back(id, &mut self.queue_pair);
        }
    }

    #[cold]
    fn fail(&mut self, why: String) -> ChannelError {
        let error = ChannelError::queue_pair(why);
        self.broken.get_or_insert(error).clone()
    }

    /// Replaces a failed queue pair by a new one with the same RECEIVEs and another address. Sessions must have left.
    ///
    /// # Errors
    /// When the device cannot create it; the endpoint remains failed.
    pub(crate) fn renew(&mut self) -> Result<(), VerbsError> {
        let (queue_pair, completions) =
            queue_pair(&self.device, &self.domain, &self.wake, self.packet_bytes)?;
        self.queue_pair = queue_pair;
        self.completions = completions;
        self.sends.forget();
        self.full_since = None;
        self.missed.clear();
        self.unclaimed.clear();
        self.gathered_count = 0;
        self.receives.reclaim();
        let posted = self.receives.post_all(&mut self.queue_pair);
        self.broken = posted.as_ref().err().cloned();
        posted.map_err(|error| VerbsError::Peer(error.to_string()))
    }

    /// Whether the device has reported that the session's peer is gone.
    #[inline]
    pub(crate) fn is_gone(&self, session: u32) -> bool {
        let route = self.places[session as usize].route.as_ref();
        route.is_some_and(|route| D::is_gone(&route.handle))
    }

    /// Number of datagrams so far that had no session.
    #[cfg(test)]
    pub(crate) fn strange(&self) -> u64 {
        self.strange
    }

    /// Whether it has failed.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some() || self.queue_pair.state() == QueuePairState::Error
    }

    /// Makes the next SEND signaled, so that [`Endpoint::finish`] knows when it has been sent.
    pub(crate) fn signal_next(&mut self) {
        self.sends.signal_next();
    }

    /// Waits for a short time until what was posted has been sent.
    pub(crate) fn finish(&mut self) {
        let started = thread::now();
        while !self.sends.are_done() && thread::now().duration_since(started) < FINISH {
            if self.poll(|_| {}).is_err() {
                return;
            }
            thread::idle(REST, false);
        }
    }

    /// Requests an event for the next datagram; the caller polls once more before it sleeps.
    pub(crate) fn prepare_sleep(&mut self) -> Result<(), ChannelError> {
        self.completions
            .request_notify(Notify::Next)
            .map_err(|error| self.fail(error.to_string()))
    }
}
