//! The thread that owns a server's datagram queue pair: all sessions of its clients stand on that one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_verbs::{thread, CompletionChannel, Device, EndpointAddress, VerbsError};

use super::outgoing::Outgoing;
use super::session::{Session, Tools};
use crate::channel::datagram::connect::provision;
use crate::channel::datagram::endpoint::{sessions_max, Block, Route, FIRST_RECEIVES};
use crate::channel::datagram::{Endpoint, Greeting};
use crate::channel::ChannelError;
use crate::server::connection::Context;
use crate::server::places::Places;
use crate::server::rounds::Rounds;
use crate::server::workers::Finished;

/// Datagrams taken before the responses leave.
const POLL_BUDGET: usize = 64;
/// A session that was silent for so long gives its place to a newcomer when there is no other: a client that died says no goodbye.
const SILENCE: Duration = Duration::from_secs(60);

/// What reaches a poller from other threads.
pub(super) enum Mail<D: Device> {
    Adopt(Box<Newcomer<D>>),
    Finished(Finished),
}

/// A session that was accepted.
pub(super) struct Newcomer<D: Device> {
    pub(super) id: u64,
    pub(super) number: u32,
    pub(super) cookie: u64,
    pub(super) theirs: Greeting,
    pub(super) route: Route<D>,
    /// RECEIVEs, unless those of an earlier session at the same place are there.
    pub(super) block: Option<Block<D>>,
}

/// The outside of a poller.
pub(super) struct PollerHandle<D: Device> {
    mail: Mutex<Vec<Mail<D>>>,
    has_mail: AtomicBool,
    pub(super) places: Mutex<Places>,
    pub(super) connections: AtomicUsize,
    /// Accepted and not adopted yet.
    pub(super) waiting: AtomicUsize,
    /// A newcomer found no place.
    pub(super) crowded: AtomicBool,
    pub(super) draining: AtomicBool,
    pub(super) ending: AtomicBool,
    pub(super) address: EndpointAddress,
    pub(super) packet_bytes: usize,
    pub(super) domain: D::ProtectionDomain,
    wake: D::CompletionChannel,
}

impl<D: Device> PollerHandle<D> {
    pub(super) fn new(endpoint: &Endpoint<D>) -> Arc<Self> {
        Arc::new(Self {
            mail: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            places: Mutex::new(Places::new(sessions_max(endpoint.device()))),
            connections: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            address: endpoint.address(),
            packet_bytes: endpoint.packet_bytes(),
            domain: endpoint.domain().clone(),
            wake: endpoint.wake().clone(),
        })
    }

    pub(super) fn send(&self, mail: Mail<D>) {
        self.mail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(mail);
        self.has_mail.store(true, Ordering::Release);
        self.wake.wake();
    }

    pub(super) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }
}

/// The inside.
pub(super) struct Poller<D: Device> {
    handle: Arc<PollerHandle<D>>,
    index: usize,
    context: Context,
    endpoint: Endpoint<D>,
    sessions: Vec<Option<Session>>,
    /// Sessions that datagrams have come for, one entry each.
    ready: VecDeque<u32>,
    outgoing: Outgoing,
    scratch: Box<[u8]>,
    longest: usize,
    usual: usize,
    /// The time of the last check.
    now: Instant,
    said_goodbye: bool,
}

impl<D: Device> Poller<D> {
    /// Makes the endpoint of a poller, with RECEIVEs for clients that are quicker than their adoption.
    pub(super) fn endpoint(
        device: &D,
        wake: &D::CompletionChannel,
    ) -> Result<Endpoint<D>, VerbsError> {
        let mut endpoint = Endpoint::new(device, wake)?;
        endpoint.keep_unclaimed();
        let bytes = endpoint.packet_bytes();
        let first = provision(device, endpoint.domain(), FIRST_RECEIVES, bytes)?;
        let added = endpoint.add(first);
        added.map_err(|error| VerbsError::Peer(error.to_string()))?;
        Ok(endpoint)
    }

    pub(super) fn new(
        handle: Arc<PollerHandle<D>>,
        index: usize,
        context: Context,
        endpoint: Endpoint<D>,
        longest: usize,
    ) -> Self {
        let packet_bytes = endpoint.packet_bytes();
        Self {
            handle,
            index,
            context,
            endpoint,
            sessions: Vec::new(),
            ready: VecDeque::new(),
            outgoing: Outgoing::new(packet_bytes),
            scratch: vec![0; packet_bytes].into(),
            longest,
            usual: 64,
            now: thread::now(),
            said_goodbye: false,
        }
    }

    /// Does something with a session, which ends when that fails.
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
        };
        if let Err(error) = action(session, &mut tools, &self.scratch) {
            self.end(number, &error);
        }
    }

    #[cold]
    fn take_mail(&mut self) -> usize {
        self.handle.has_mail.store(false, Ordering::Relaxed);
        let mail = {
            let mut held = self.handle.mail.lock();
            std::mem::take(&mut **held.as_mut().unwrap_or_else(|error| error.get_mut()))
        };
        let count = mail.len();
        for letter in mail {
            match letter {
                Mail::Adopt(newcomer) => self.adopt(*newcomer),
                Mail::Finished(Finished {
                    connection,
                    call,
                    outcome,
                }) => {
                    let number = connection as u32;
                    let session = self.sessions.get(number as usize);
                    let same = |session: &Session| session.id == connection;
                    // A client that left does not need its answer.
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
            cookie,
            theirs,
            route,
            block,
        } = newcomer;
        let limits = (self.endpoint.packet_bytes(), self.longest);
        let session = Session::new(id, number, &theirs, limits, self.now);
        let index = number as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(session);
        self.endpoint.enter_at(number, cookie);
        self.endpoint.join(number, route);
        let posted = block.map_or(Ok(()), |block| self.endpoint.provide(block));
        self.handle.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = posted {
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
        let violation = error.is_violation();
        if violation {
            tracing::warn!(connection = session.id, %error, "session ended");
        } else {
            tracing::debug!(connection = session.id, %error, "session ended");
        }
        self.endpoint.leave(number);
        let places = self.handle.places.lock();
        places
            .unwrap_or_else(PoisonError::into_inner)
            .give_back(number);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.context.counters.closed(violation);
    }

    fn end_all(&mut self, error: &ChannelError) {
        for number in 0..self.sessions.len() as u32 {
            self.end(number, error);
        }
    }

    /// Ends sessions of which nothing was heard for long.
    #[cold]
    fn make_places(&mut self) {
        let silent = |session: &Session| self.now.duration_since(session.heard) >= SILENCE;
        let all = self.sessions.iter().enumerate();
        let silent: Vec<u32> = all
            .filter(|(_, session)| session.as_ref().is_some_and(silent))
            .map(|(number, _)| number as u32)
            .collect();
        for number in silent {
            self.end(number, &ChannelError::peer_gone());
        }
    }

    /// Serves what has come for sessions, within the budget.
    #[inline]
    fn serve(&mut self) -> Result<usize, ChannelError> {
        let ready = &mut self.ready;
        let mut taken = self.endpoint.poll(|session| ready.push_back(session))?;
        if self.endpoint.has_unclaimed() {
            self.take_mail();
            let ready = &mut self.ready;
            self.endpoint.settle(|session| ready.push_back(session))?;
        }
        for _ in 0..POLL_BUDGET {
            let Some(number) = self.ready.pop_front() else {
                break;
            };
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
        Ok(taken)
    }
}

impl<D: Device> Rounds for Poller<D> {
    #[inline]
    fn pass(&mut self) -> usize {
        let mut work = 0;
        if self.handle.has_mail.load(Ordering::Relaxed) {
            work += self.take_mail();
        }
        let served = self.serve();
        let sent = self.outgoing.flush(&mut self.endpoint);
        match served.and_then(|taken| sent.map(|()| taken)) {
            Ok(taken) => work + taken,
            Err(error) => {
                self.end_all(&error);
                work
            }
        }
    }

    fn check(&mut self) {
        self.now = thread::now();
        if self.handle.crowded.swap(false, Ordering::Relaxed) {
            self.make_places();
        }
    }

    fn is_over(&mut self) -> bool {
        if self.is_ending() {
            return true;
        }
        if !self.handle.draining.load(Ordering::Relaxed) {
            return false;
        }
        if !self.said_goodbye {
            self.said_goodbye = true;
            for number in 0..self.sessions.len() as u32 {
                self.with(number, |session, tools, _| session.say_goodbye(tools));
            }
            if let Err(error) = self.outgoing.flush(&mut self.endpoint) {
                self.end_all(&error);
            }
        }
        let quiet = self.sessions.iter().flatten().all(Session::is_quiet);
        quiet && !self.has_work()
    }

    fn is_ending(&self) -> bool {
        self.handle.ending.load(Ordering::Acquire)
    }

    fn has_work(&mut self) -> bool {
        if self.handle.has_mail.load(Ordering::Acquire) || !self.ready.is_empty() {
            return true;
        }
        let ready = &mut self.ready;
        let polled = self.endpoint.poll(|session| ready.push_back(session));
        if let Err(error) = &polled {
            let error = error.clone();
            self.end_all(&error);
        }
        matches!(polled, Ok(arrived) if arrived > 0) || self.endpoint.has_unclaimed()
    }

    fn prepare_sleep(&mut self) -> bool {
        if let Err(error) = self.endpoint.prepare_sleep() {
            self.end_all(&error);
        }
        true
    }

    fn close(&mut self) {
        let mut open: Vec<u32> = Vec::new();
        for (number, session) in self.sessions.iter().enumerate() {
            if session.is_some() {
                open.push(number as u32);
            }
        }
        if let Some((&last, others)) = open.split_last() {
            for &number in others {
                self.with(number, |session, tools, _| session.say_goodbye(tools));
            }
            let _ = self.outgoing.flush(&mut self.endpoint);
            self.endpoint.signal_next();
            self.with(last, |session, tools, _| session.say_goodbye(tools));
            let _ = self.outgoing.flush(&mut self.endpoint);
            self.endpoint.finish();
        }
        self.end_all(&ChannelError::peer_gone());
    }
}
