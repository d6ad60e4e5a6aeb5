//! The poller that owns a datagram queue pair, which all sessions of its clients use.

mod rounds;
#[cfg(all(test, not(loom)))]
mod tests;
mod zones;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_verbs::{thread, Device, EndpointAddress, VerbsError};

use super::outgoing::Outgoing;
use super::session::{Session, Tools};
use crate::admission::DatagramShare;
use crate::channel::datagram::endpoint::{sessions_max, Block, Route, Stock};
use crate::channel::datagram::spare::Spare;
use crate::channel::datagram::written::Zone;
use crate::channel::datagram::{Endpoint, Greeting, Protocol};
use crate::channel::pool::block_bytes;
use crate::channel::ChannelError;
use crate::config::DatagramBatches;
use crate::server::caller::Caller;
use crate::server::connection::Context;
use crate::server::connection_ids::place_of;
use crate::server::deadlines::Deadlines;
use crate::server::dispatch::Finished;
use crate::server::mailbox::{Mail, Mailbox};
use crate::server::places::Places;
use crate::server::threads::HasMailbox;

/// Number of datagrams taken before the responses are sent.
const POLL_BUDGET: usize = 64;
/// The same on devices on which a SEND is a copy: waiting saves no doorbell, and the client can go on meanwhile.
const POLL_BUDGET_OF_MEMORY: usize = 8;
/// A session that was silent for this long loses its place to a new client if there is no other place: a client that
/// died goes unnoticed if the device does not report it.
const SILENCE: Duration = Duration::from_secs(60);
/// Time between the failure of a queue pair and the attempt to make the next one, and between attempts: most likely the
/// port is down.
const RENEWAL: Duration = Duration::from_millis(100);

/// Id of the poller's queue pair among the connections of its mailbox: no session has this id.
const QUEUE_PAIR: u64 = 0;

/// An accepted session.
pub(super) struct Newcomer<D: Device> {
    pub(super) id: u64,
    pub(super) number: u32,
    pub(super) protocol: Protocol,
    pub(super) cookie: u64,
    /// The address of the queue pair that the client was told.
    pub(super) told: EndpointAddress,
    pub(super) theirs: Greeting,
    pub(super) deadlines: Deadlines,
    pub(super) caller: Caller,
    pub(super) route: Route<D>,
    /// RECEIVEs, unless those of an earlier session at the same place still exist.
    pub(super) block: Option<Block<D>>,
    /// The zone into which its requests are written, if they are written.
    pub(super) zone: Option<Box<Zone<D>>>,
}

/// The places of sessions, and their memory.
pub(super) struct SessionSlots<D: Device> {
    pub(super) places: Places,
    /// Number of sessions for which there are RECEIVEs, posted or on their way.
    pub(super) provided: usize,
    /// Allocates the memory of the RECEIVEs.
    pub(super) stock: Stock<D>,
}

/// Number of sessions beyond the existing ones for which RECEIVEs are kept: clients that come and go need no
/// registration.
const SPARE: usize = 2;

/// The part of a poller that other threads use.
pub(super) struct PollerHandle<D: Device> {
    pub(super) mailbox: Mailbox<Newcomer<D>, D::CompletionChannel>,
    pub(super) session_slots: Mutex<SessionSlots<D>>,
    /// Number of clients accepted and not adopted yet.
    pub(super) waiting: AtomicUsize,
    /// Set when a new client found no place.
    pub(super) crowded: AtomicBool,
    /// The address of the queue pair; `None` between its failure and the next one.
    address: Mutex<Option<EndpointAddress>>,
    pub(super) packet_bytes: usize,
    pub(super) domain: D::ProtectionDomain,
}

impl<D: Device> PollerHandle<D> {
    pub(super) fn new(endpoint: &Endpoint<D>) -> Arc<Self> {
        let mailbox = Mailbox::new(endpoint.wake().clone());
        mailbox.owns(QUEUE_PAIR, endpoint.aborter());
        Arc::new(Self {
            mailbox,
            session_slots: Mutex::new(SessionSlots {
                places: Places::new(sessions_max(endpoint.device())),
                provided: 0,
                stock: Stock::new(),
            }),
            waiting: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            address: Mutex::new(Some(endpoint.address())),
            packet_bytes: endpoint.packet_bytes(),
            domain: endpoint.domain().clone(),
        })
    }

    pub(super) fn session_slots(&self) -> MutexGuard<'_, SessionSlots<D>> {
        self.session_slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the queue pair; `None` while it is being replaced.
    pub(super) fn address(&self) -> Option<EndpointAddress> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when the queue pair was replaced.
    fn renewed(&self, endpoint: &Endpoint<D>) {
        self.mailbox.owns(QUEUE_PAIR, endpoint.aborter());
        self.set_address(Some(endpoint.address()));
    }

    fn set_address(&self, address: Option<EndpointAddress>) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

impl<D: Device> HasMailbox for PollerHandle<D> {
    type Newcomer = Newcomer<D>;
    type Wake = D::CompletionChannel;

    fn mailbox(&self) -> &Mailbox<Newcomer<D>, D::CompletionChannel> {
        &self.mailbox
    }
}

/// The part of a poller that its thread owns.
pub(super) struct Poller<D: Device> {
    handle: Arc<PollerHandle<D>>,
    index: usize,
    context: Context,
    endpoint: Endpoint<D>,
    sessions: Vec<Option<Session>>,
    /// Zones of sessions whose requests are written, with their numbers.
    zones: Vec<(u32, Box<Zone<D>>)>,
    /// Sessions for which datagrams have come, one entry for each datagram.
    ready: VecDeque<u32>,
    outgoing: Outgoing,
    scratch: Box<[u8]>,
    budget: usize,
    /// Memory for long requests.
    spare: Spare,
    longest: usize,
    usual: usize,
    /// Total number of requests and of datagrams that have come, modulo 2^32, for the scheduler.
    requests: u32,
    datagrams: u32,
    share: Arc<DatagramShare>,
    /// The time of the last check.
    now: Instant,
    said_goodbye: bool,
    /// When a new queue pair is to be made, if the current one has failed.
    renewal: Option<Instant>,
    /// Whether memory of sessions that have ended is to be released.
    leaving: bool,
}

impl<D: Device> Poller<D> {
    /// Makes the endpoint of a poller, with RECEIVEs for clients that send before they are adopted.
    pub(super) fn endpoint(
        device: &D,
        wake: &D::CompletionChannel,
        batches: &DatagramBatches,
    ) -> Result<Endpoint<D>, VerbsError> {
        let mut endpoint = Endpoint::new(device, wake, batches)?;
        endpoint.keep_unclaimed();
        let first = endpoint.take_block()?;
        let added = endpoint.add(first);
        added.map_err(|error| VerbsError::Peer(error.to_string()))?;
        Ok(endpoint)
    }

    pub(super) fn new(
        handle: Arc<PollerHandle<D>>,
        index: usize,
        context: Context,
        endpoint: Endpoint<D>,
        (longest, eager): (usize, usize),
        share: Arc<DatagramShare>,
    ) -> Self {
        let packet_bytes = endpoint.packet_bytes();
        Self {
            handle,
            index,
            context,
            sessions: Vec::new(),
            zones: Vec::new(),
            ready: VecDeque::new(),
            outgoing: Outgoing::new(packet_bytes, &share),
            scratch: vec![0; packet_bytes.max(block_bytes(eager))].into(),
            budget: match endpoint.device().attributes().writes_are_messages {
                true => POLL_BUDGET,
                false => POLL_BUDGET_OF_MEMORY,
            },
            endpoint,
            spare: Spare::default(),
            longest,
            usual: 64,
            requests: 0,
            datagrams: 0,
            share,
            now: thread::now(),
            said_goodbye: false,
            renewal: None,
            leaving: false,
        }
    }

    /// Runs a function on a session, which ends if that fails.
    #[inline]
    fn with(
        &mut self,
        number: u32,
        action: impl FnOnce(&mut Session, &mut Tools<'_, D>, &[u8]) -> Result<(), ChannelError>,
    ) {
        let Some(Some(session)) = self.sessions.get_mut(number as usize) else {
            return;
        };
        let mut tools = Tools {
            endpoint: &mut self.endpoint,
            outgoing: &mut self.outgoing,
            context: &self.context,
            poller: self.index,
            draining: self.said_goodbye,
            usual: &mut self.usual,
            requests: &mut self.requests,
        };
        if let Err(error) = action(session, &mut tools, &self.scratch) {
            self.end(number, &error);
        }
    }

    #[cold]
    fn take_mail(&mut self) -> usize {
        let mail = self.handle.mailbox.take();
        let count = mail.len();
        for item in mail {
            match item {
                Mail::Adopt(newcomer) => self.adopt(*newcomer),
                Mail::Finished(Finished {
                    connection,
                    call,
                    outcome,
                }) => {
                    let number = place_of(connection);
                    let session = self.sessions.get(number as usize);
                    let same = |session: &Session| session.id == connection;
                    // A client that has left needs no answer.
                    if session.and_then(Option::as_ref).is_some_and(same) {
                        self.with(number, |session, tools, _| {
                            session.finished(call, outcome, tools)
                        });
                    }
                }
            }
        }
        count
    }

    fn adopt(&mut self, newcomer: Newcomer<D>) {
        let Newcomer {
            id,
            number,
            protocol,
            cookie,
            told,
            theirs,
            deadlines,
            caller,
            route,
            block,
            zone,
        } = newcomer;
        let limits = (self.endpoint.room_for(theirs.packet_bytes), self.longest);
        let session = Session::new(
            (id, number),
            protocol,
            (&theirs, deadlines, caller),
            limits,
            (self.now, &self.spare),
        );
        let index = number as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(session);
        self.zones.extend(zone.map(|zone| (number, zone)));
        self.endpoint.enter_at(number, cookie);
        self.endpoint.join(number, route);
        let posted = block.map_or(Ok(()), |block| self.endpoint.provide(block));
        self.handle.waiting.fetch_sub(1, Ordering::Relaxed);
        // A queue pair that has failed keeps its address until there is a new one.
        let is_there = told == self.endpoint.address() && self.renewal.is_none();
        let known = posted.and_then(|()| match is_there {
            true => Ok(()),
            false => Err(ChannelError::queue_pair(
                "it failed in the meantime".to_owned(),
            )),
        });
        if let Err(error) = known {
            self.end(number, &error);
        } else if self.said_goodbye {
            self.with(number, |session, tools, _| session.say_goodbye(tools));
        }
    }

    #[cold]
    fn end(&mut self, number: u32, error: &ChannelError) {
        let Some(session) = self.sessions[number as usize].take() else {
            return;
        };
        let id = session.id;
        self.context.ended(id, error);
        self.zones.retain(|(other, _)| *other != number);
        self.endpoint.leave(number);
        let mut session_slots = self.handle.session_slots();
        session_slots.places.give_back(number);
        while session_slots.provided > session_slots.places.clients() + SPARE {
            session_slots.provided -= 1;
            self.endpoint.retire();
            self.leaving = true;
        }
        drop(session_slots);
        self.handle.mailbox.left(id);
    }

    fn end_all(&mut self, error: &ChannelError) {
        for number in 0..self.sessions.len() as u32 {
            self.end(number, error);
        }
    }

    /// Handles the failure of the queue pair, as when its port goes down while it sends. All its sessions are lost; new
    /// clients are refused until there is another queue pair.
    #[cold]
    fn fail(&mut self, error: &ChannelError) {
        self.end_all(error);
        if self.renewal.is_none() {
            tracing::warn!(%error, "the datagram queue pair failed and is being recreated");
            self.handle.set_address(None);
            self.renewal = Some(thread::now() + RENEWAL);
        }
    }

    /// Replaces the queue pair when it is time.
    #[cold]
    fn renew(&mut self) {
        let now = thread::now();
        if self.renewal.is_none_or(|due| now < due) {
            return;
        }
        self.ready.clear();
        self.outgoing.clear();
        match self.endpoint.renew() {
            Ok(()) => {
                self.renewal = None;
                self.handle.renewed(&self.endpoint);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot recreate the datagram queue pair yet");
                self.renewal = Some(now + RENEWAL);
            }
        }
    }

    /// Releases memory of sessions that have ended: as datagrams consume its RECEIVEs, or, if there is no session at
    /// all, at once by replacing the queue pair.
    #[cold]
    fn give_back(&mut self) {
        let handle = Arc::clone(&self.handle);
        // New clients wait meanwhile, and are told the new queue pair.
        let mut session_slots = handle.session_slots();
        if self.endpoint.has_leaving() && session_slots.places.clients() == 0 {
            self.ready.clear();
            self.outgoing.clear();
            match self.endpoint.renew() {
                Ok(()) => handle.renewed(&self.endpoint),
                Err(error) => {
                    tracing::warn!(%error,
                        "cannot recreate the datagram queue pair: memory of ended sessions is not released");
                    self.leaving = false;
                    return;
                }
            }
        }
        self.leaving = self.endpoint.has_leaving();
        if !self.leaving {
            session_slots.stock.left(self.endpoint.blocks());
        }
    }

    /// Checks the sessions for deadlines that have passed, and ends those whose clients no longer exist, if the device
    /// reports that, and, if a new client has found no place, those that have been silent for long.
    #[cold]
    fn check_sessions(&mut self) {
        let is_crowded = self.handle.crowded.swap(false, Ordering::Relaxed);
        for number in 0..self.sessions.len() as u32 {
            let Some(session) = &self.sessions[number as usize] else {
                continue;
            };
            session.expire(self.now);
            let is_silent = || self.now.duration_since(session.heard) >= SILENCE;
            if self.endpoint.is_gone(number) || is_crowded && is_silent() {
                self.end(number, &ChannelError::peer_gone());
            }
        }
    }

    /// Serves what has arrived for sessions, within the budget.
    #[inline]
    fn serve(&mut self) -> Result<usize, ChannelError> {
        // First, so that a question about a request that is already here is not answered as if the request were lost.
        let written = self.serve_zones();
        let ready = &mut self.ready;
        let mut taken = written + self.endpoint.poll(|session| ready.push_back(session))?;
        if self.endpoint.has_unclaimed() {
            self.take_mail();
            let ready = &mut self.ready;
            self.endpoint.settle(|session| ready.push_back(session))?;
        }
        for _ in 0..self.budget {
            if self.outgoing.is_full() {
                self.outgoing.flush(&mut self.endpoint)?;
                if self.outgoing.is_full() {
                    break;
                }
            }
            let Some(number) = self.ready.pop_front() else {
                break;
            };
            taken += self.serve_zone_of(number);
            // The session may have ended, and its datagrams with it.
            let Some(length) = self.endpoint.take(number, &mut self.scratch)? else {
                continue;
            };
            taken += 1;
            let now = self.now;
            self.with(number, |session, tools, bytes| {
                session.heard = now;
                session.take(&bytes[..length], tools)
            });
        }
        if taken > 0 {
            self.datagrams = self.datagrams.wrapping_add(taken as u32);
            self.share.came(self.requests, self.datagrams);
        }
        Ok(taken)
    }
}
