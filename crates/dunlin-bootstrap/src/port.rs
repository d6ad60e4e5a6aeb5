//! The loop at the port: accepts clients, reads their messages as they arrive, and hands authenticated clients over to
//! be opened. It never blocks on one client, which costs it only a socket and the bytes of one frame.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{self, epoll, EventfdFlags, Timespec};
use rustix::io::Errno;

use crate::acceptor::Acceptor;
use crate::counters::Ending;
use crate::error::BootstrapError;
use crate::handshake;
use crate::message::OpenRequest;
use crate::openers::Openers;
use crate::pending::{Client, Pending};
use crate::refusal::Refusal;
use crate::stop::StopHandle;
use crate::stream::{First, Progress, StreamError};
use crate::transport::Transport;

/// Time for which the loop stops accepting after the system had no file descriptor or memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that it waits for a client to become late when none can be accepted.
const CROWDED: Duration = Duration::from_millis(10);
/// Number of clients accepted before existing ones are polled again.
const ACCEPTED_AT_ONCE: usize = 64;
/// One extra newcomer is read per this number of places, while the clients of one origin keep the others from being
/// opened.
const PLACES_PER_EXTRA: usize = 4;
/// Maximum number of events of one wait.
const EVENTS: usize = 256;
/// Event numbers of the listener and of the stop; clients have the numbers of their places.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// An authenticated client and its open request.
pub(crate) struct Job {
    pub(crate) client: Client,
    pub(crate) request: OpenRequest,
}

/// The loop.
pub(crate) struct Port<'a> {
    acceptor: &'a Acceptor,
    stop: &'a StopHandle,
    /// The threads that open connections for authenticated clients.
    openers: &'a Openers<Box<Job>>,
    pending: Pending,
    epoll: OwnedFd,
    /// Until when newcomers stay in the system's queue.
    resting: Option<Instant>,
    /// Released to accept newcomers for which there is no other descriptor.
    spare: Option<OwnedFd>,
}

fn spare_descriptor() -> Option<OwnedFd> {
    event::eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn waiting(errno: Errno) -> BootstrapError {
    BootstrapError::Io {
        call: "waiting for connections to the port",
        source: errno.into(),
    }
}

impl<'a> Port<'a> {
    pub(crate) fn new(
        acceptor: &'a Acceptor,
        stop: &'a StopHandle,
        openers: &'a Openers<Box<Job>>,
    ) -> Result<Self, BootstrapError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
        let watch = |file, name| {
            let data = epoll::EventData::new_u64(name);
            epoll::add(&epoll, file, data, epoll::EventFlags::IN).map_err(waiting)
        };
        watch(acceptor.listener.as_fd(), LISTENER)?;
        watch(stop.event(), STOP)?;
        Ok(Self {
            acceptor,
            stop,
            openers,
            pending: Pending::default(),
            epoll,
            resting: None,
            spare: spare_descriptor(),
        })
    }

    /// Runs until stopped. `open` has a client's connection opened, or returns the job.
    pub(crate) fn run(
        mut self,
        open: impl Fn(Box<Job>) -> Result<(), Box<Job>>,
    ) -> Result<(), BootstrapError> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.stop.is_stopped() {
            let timeout = self.timeout(Instant::now());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(waiting(errno)),
            }
            let mut newcomers = false;
            for event in &events {
                match event.data.u64() {
                    LISTENER => newcomers = true,
                    STOP => {}
                    id => self.hear(id, &open),
                }
            }
            let now = Instant::now();
            while let Some(client) = self.pending.expired(now, self.handshake_timeout()) {
                match client.choice {
                    None => self.acceptor.note(client.peer, &Ending::TooSlow),
                    Some(_) => self.acceptor.answer(client, Err(Refusal::TooSlow)),
                }
            }
            if self.resting.is_some_and(|until| until <= now) {
                self.listen(None)?;
            }
            if newcomers && self.resting.is_none() {
                if let Some(pause) = self.accept() {
                    self.listen(Some(now + pause))?;
                }
            }
        }
        for client in self.pending.take_all() {
            match client.choice {
                None => self.acceptor.note(client.peer, &Ending::Closed),
                Some(_) => self.acceptor.answer(client, Err(Refusal::ShuttingDown)),
            }
        }
        Ok(())
    }

    fn handshake_timeout(&self) -> Duration {
        self.acceptor.config.handshake_timeout
    }

    /// Time until the next action if no events occur.
    fn timeout(&self, now: Instant) -> Option<Timespec> {
        let expiry = self.pending.next_expiry(self.handshake_timeout());
        let next = expiry.into_iter().chain(self.resting).min()?;
        // Rounded up: waking too early would make the loop spin.
        let left = next.saturating_duration_since(now) + Duration::from_micros(1);
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    /// Leaves newcomers in the system's queue until then, or accepts them again.
    fn listen(&mut self, resting: Option<Instant>) -> Result<(), BootstrapError> {
        let flags = match resting {
            None => epoll::EventFlags::IN,
            Some(_) => epoll::EventFlags::empty(),
        };
        self.resting = resting;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::modify(&self.epoll, &self.acceptor.listener, data, flags).map_err(waiting)
    }

    /// Accepts newcomers; returns for how long to leave the others in the queue.
    fn accept(&mut self) -> Option<Duration> {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.make_room() {
                return Some(CROWDED);
            }
            let (stream, peer) = match self.acceptor.listener.accept() {
                Ok(newcomer) => newcomer,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return None,
                    // The client disconnected before it was accepted.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => {
                        self.acceptor.failed(&error);
                        // Freeing one descriptor may be enough.
                        let is_better = self.evict() || self.turn_away_with_spare(&error);
                        return (!is_better).then_some(PAUSE);
                    }
                },
            };
            self.acceptor.counters.accepted.fetch_add(1, Relaxed);
            // A failure only costs latency.
            let _ = stream.set_nodelay(true);
            let client = Client::new(stream, peer);
            if let Err(error) = client.stream.tcp().set_nonblocking(true) {
                self.acceptor.failed(&error);
                continue;
            }
            let id = self.pending.add(client);
            let watched = self.pending.get(id).map(|client| {
                let data = epoll::EventData::new_u64(id);
                epoll::add(
                    &self.epoll,
                    client.stream.tcp(),
                    data,
                    epoll::EventFlags::IN,
                )
            });
            if let Some(Err(errno)) = watched {
                self.acceptor.failed(&errno.into());
                self.pending.remove(id);
            }
        }
        None
    }

    /// Accepts a newcomer for which there is no descriptor, using the spare one, to tell it so. Returns `false` if
    /// there is no spare.
    fn turn_away_with_spare(&mut self, error: &io::Error) -> bool {
        let (Some(refusal), Some(spare)) = (Refusal::exhausted(error), self.spare.take()) else {
            return false;
        };
        drop(spare);
        if let Ok((stream, peer)) = self.acceptor.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                handshake::refuse_at_once(&mut Transport::Plain(stream), refusal.clone());
            }
            self.acceptor.note(peer, &Ending::Refused(refusal));
        }
        self.spare = spare_descriptor();
        self.spare.is_some()
    }

    /// Number of places, for clients that are read from and clients that are being opened.
    fn limit(&self) -> usize {
        self.acceptor.config.max_pending as usize
    }

    /// Returns whether there is a place for one more.
    fn make_room(&mut self) -> bool {
        self.pending.len() + self.openers.len() < self.limit() || self.evict() || self.hears_more()
    }

    /// Whether one more client is read from although all places are taken. An unauthenticated newcomer cannot displace
    /// a client that waits to be opened, so its request has to be read first; this helps if one origin has most of
    /// those that wait.
    fn hears_more(&self) -> bool {
        self.pending.len() < self.limit().div_ceil(PLACES_PER_EXTRA) && self.openers.has_one_most()
    }

    /// Displaces a client that keeps the server waiting, if there is one. Clients that wait for the server are never
    /// displaced here.
    fn evict(&mut self) -> bool {
        let Some(mut client) = self.pending.evict(Instant::now()) else {
            return false;
        };
        let refusal = self.busy();
        if client.choice.is_some() {
            self.acceptor.answer(client, Err(refusal));
        } else {
            handshake::refuse_at_once(&mut client.stream, refusal.clone());
            self.acceptor.note(client.peer, &Ending::Refused(refusal));
        }
        true
    }

    fn busy(&self) -> Refusal {
        Refusal::Busy {
            limit: self.acceptor.config.max_pending,
        }
    }

    /// Has the connection of an authenticated client opened. If other authenticated clients hold all places, it
    /// displaces the newest one of the origin with most of them; if it is of that origin itself, it has to try again.
    fn submit(&self, job: Box<Job>, open: &impl Fn(Box<Job>) -> Result<(), Box<Job>>) {
        if self.openers.len() >= self.limit() {
            let Some(evicted) = self.openers.evict_for(job.client.origin()) else {
                return self.acceptor.answer(job.client, Err(self.busy()));
            };
            self.acceptor.answer(evicted.client, Err(self.busy()));
        }
        if let Err(job) = open(job) {
            let resource = "memory or threads".to_owned();
            let refusal = Refusal::Exhausted { resource };
            self.acceptor.answer(job.client, Err(refusal));
        }
    }

    /// Continues in TLS with a client that has started it. Returns `false` if the client is gone.
    fn begin_tls(&mut self, id: u64) -> bool {
        let Some(mut client) = self.pending.remove(id) else {
            return false;
        };
        let Some(tls) = &self.acceptor.config.tls else {
            let refusal = Refusal::TlsUnexpected;
            // The refusal is sent without TLS, from which the client can tell what is wrong.
            handshake::refuse_at_once(&mut client.stream, refusal.clone());
            self.acceptor.note(client.peer, &Ending::Refused(refusal));
            return false;
        };
        match client.into_tls(tls) {
            Ok(client) => {
                self.pending.put_back(id, client);
                true
            }
            Err(error) => {
                self.acceptor.failed(&error);
                false
            }
        }
    }

    /// Reads what a client has sent so far.
    fn hear(&mut self, id: u64, open: &impl Fn(Box<Job>) -> Result<(), Box<Job>>) {
        loop {
            // Removed since the event.
            let Some(client) = self.pending.get(id) else {
                return;
            };
            let first = match client.choice {
                None => First::Hello,
                Some(_) => First::Anything,
            };
            let max_frame = self.acceptor.config.max_frame;
            let frame = match client.incoming.read(&mut client.stream, first, max_frame) {
                Ok(Progress::Nothing) => return,
                Ok(Progress::Some) => continue,
                Ok(Progress::Frame(frame)) => Ok(frame),
                Err(StreamError::BeginsTls) if !client.stream.is_tls() => {
                    if self.begin_tls(id) {
                        continue;
                    }
                    return;
                }
                Err(error) => Err(error),
            };
            let acceptor = self.acceptor;
            if client.choice.is_none() {
                let greeted = frame.map_err(Ending::from).and_then(|frame| {
                    let Client {
                        stream, transcript, ..
                    } = &mut *client;
                    handshake::greet(stream, &frame, &acceptor.config, self.stop, transcript)
                });
                match greeted {
                    Ok(choice) => client.choice = Some(choice),
                    Err(ending) => {
                        acceptor.note(client.peer, &ending);
                        self.pending.remove(id);
                        return;
                    }
                }
                continue;
            }
            let Some(mut client) = self.pending.remove(id) else {
                return;
            };
            // Its events would no longer have a place. A failure means that the stream is not watched, which is fine,
            // too.
            let _ = epoll::delete(&self.epoll, client.stream.tcp());
            let heard = match frame {
                Ok(frame) => {
                    let transcript = &mut client.transcript;
                    handshake::hear(&frame, &acceptor.config, self.stop, transcript)
                }
                Err(StreamError::TooLong) => Err(Ending::Refused(Refusal::Malformed)),
                Err(error) => Err(error.into()),
            };
            match heard {
                Ok(request) => self.submit(Box::new(Job { client, request }), open),
                Err(Ending::Refused(refusal)) => acceptor.answer(client, Err(refusal)),
                Err(ending) => acceptor.note(client.peer, &ending),
            }
            return;
        }
    }
}
