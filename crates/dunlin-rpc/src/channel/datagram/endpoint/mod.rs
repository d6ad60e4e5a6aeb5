//! A datagram queue pair and the sessions that use it. Nobody waits in here: what finds no entry in the send queue
//! stays with its sender.

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

/// RECEIVEs of a queue pair at most: they bound its sessions.
const RECEIVES_MAX: usize = 16 << 10;
// The number of a session is 16 bits of a datagram.
const _: () = assert!(RECEIVES_MAX <= u16::MAX as usize);
/// RECEIVEs before the first session: clients may send their first datagram before theirs are posted.
pub(crate) const FIRST_RECEIVES: usize = receives_of_session();

/// An endpoint of a client. Its sessions are those of one thread, so the lock has no rivals on the way of a call;
/// others take it to close a session.
pub(crate) type Shared<D> = Arc<Mutex<Endpoint<D>>>;

/// How long an endpoint that ends waits for its last datagrams to leave.
const FINISH: Duration = Duration::from_millis(100);

/// A session's place at an endpoint.
#[derive(Debug)]
struct Place<D: Device> {
    /// What its peer must say. `None`: the place is free.
    cookie: Option<u64>,
    route: Option<Route<D>>,
    /// Datagrams that are here: the place of each, and its bytes.
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
    /// Messages that go into a datagram at most.
    messages: u8,
    broken: Option<ChannelError>,
    /// Sessions that there are RECEIVEs for.
    provided: usize,
    /// Since when the send queue has had no room, and no SEND has completed.
    full_since: Option<Instant>,
    /// Sessions whose datagrams came while room was looked for: news for the next poll.
    missed: Vec<u32>,
    /// Datagrams that were nobody's.
    strange: u64,
    /// Those that are nobody's yet, where sessions may be on their way to us by another road: place, bytes, head.
    unclaimed: Vec<(u64, u32, Head, Option<u32>)>,
    keeps_unclaimed: bool,
    /// Packets of several sessions that are to leave together: the first `gathered_count` of them, each with its
    /// session.
    gathered: Vec<(u32, Packet)>,
    gathered_count: usize,
    /// Looks for room in the send queue that are still to find none: a device whose SENDs take their time.
    #[cfg(test)]
    pub(crate) vain_looks: usize,
    domain: D::ProtectionDomain,
    device: D,
}

/// RECEIVEs of one session.
pub(crate) const fn receives_of_session() -> usize {
    CALLS + BESIDE_CALLS
}

/// Sessions that a queue pair of this device can have.
pub(crate) fn sessions_max<D: Device>(device: &D) -> usize {
    let receives = device.attributes().max_receive_requests.min(RECEIVES_MAX);
    receives.saturating_sub(FIRST_RECEIVES) / receives_of_session()
}

/// Datagrams of this device are so long at most.
pub(crate) fn packet_bytes<D: Device>(device: &D) -> usize {
    device.attributes().mtu_bytes.min(PACKET_BYTES_MAX) & !7
}

/// A queue pair that is ready to send, and where its completions go.
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
    /// Makes one, ready to send. `wake` is raised when a datagram comes to who has asked for that.
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
                    "datagrams (UD SEND of at least {PACKET_BYTES_MIN} bytes), which this preset stands on: use another preset"
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

    /// Where peers reach it.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// What ends it from another thread; see [`QueuePair::aborter`].
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.queue_pair.aborter()
    }

    /// Longest datagram that it takes.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// What goes into a datagram to a peer that takes so many bytes in one.
    pub(crate) fn room_for(&self, theirs: usize) -> Room {
        Room {
            bytes: theirs.min(self.packet_bytes),
            messages: self.messages,
        }
    }

    /// What to sleep on.
    pub(crate) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }

    /// Sessions that there are RECEIVEs for.
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

    /// Posts RECEIVEs for one more session: those of a block, or what is missing of one that was to go.
    pub(crate) fn provide(&mut self, block: Block<D>) -> Result<(), ChannelError> {
        self.provided += 1;
        // What such a block has posted stays in the queue, which has room for no more blocks than there are sessions.
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

    /// One session fewer has RECEIVEs from now on.
    pub(crate) fn retire(&mut self) {
        self.provided = self.provided.saturating_sub(1);
        self.receives.retire();
    }

    /// Blocks of RECEIVEs that it holds.
    pub(crate) fn blocks(&self) -> usize {
        self.receives.blocks()
    }

    /// Whether blocks wait for datagrams to use up their RECEIVEs before they go.
    pub(crate) fn has_leaving(&self) -> bool {
        self.receives.has_leaving()
    }

    /// A place for a session that nobody has, if there is one, with what its peer must say.
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

    /// Says where the session's peer is.
    pub(crate) fn join(&mut self, number: u32, route: Route<D>) {
        self.places[number as usize].route = Some(route);
    }

    /// The place is free again; what came for the session is thrown away.
    pub(crate) fn leave(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        place.cookie = None;
        place.route = None;
        while let Some((id, _)) = self.places[number as usize].arrived.pop_front() {
            // An endpoint that is broken has no use for it.
            let _ = self.receives.give_back(id, &mut self.queue_pair);
        }
    }

    #[cold]
    fn fail(&mut self, why: String) -> ChannelError {
        let error = ChannelError::queue_pair(why);
        self.broken.get_or_insert(error).clone()
    }

    /// Another queue pair in the place of one that failed, with the same RECEIVEs: its address is another. Sessions
    /// must have left.
    ///
    /// # Errors
    /// When the device does not make it; the endpoint is as broken as before.
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

    /// Whether the device has heard that the session's peer is no more.
    #[inline]
    pub(crate) fn is_gone(&self, session: u32) -> bool {
        let route = self.places[session as usize].route.as_ref();
        route.is_some_and(|route| D::is_gone(&route.handle))
    }

    /// Datagrams so far that were nobody's.
    #[cfg(test)]
    pub(crate) fn strange(&self) -> u64 {
        self.strange
    }

    /// Whether it has failed.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some() || self.queue_pair.state() == QueuePairState::Error
    }

    /// The next datagram is sent so that [`Endpoint::finish`] knows when it is gone.
    pub(crate) fn signal_next(&mut self) {
        self.sends.signal_next();
    }

    /// Waits until what was sent has left, for a short time.
    pub(crate) fn finish(&mut self) {
        let started = thread::now();
        while !self.sends.are_done() && thread::now().duration_since(started) < FINISH {
            if self.poll(|_| {}).is_err() {
                return;
            }
            thread::idle(REST, false);
        }
    }

    /// Asks for an event when the next datagram comes; who asks looks once more before it sleeps.
    pub(crate) fn prepare_sleep(&mut self) -> Result<(), ChannelError> {
        self.completions
            .request_notify(Notify::Next)
            .map_err(|error| self.fail(error.to_string()))
    }
}
