//! The loop at the port: takes clients, hears them as their words come, and has those that have proved themselves
//! opened. It waits for nobody: a client costs it a socket and the bytes of one frame.

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

/// How long the loop leaves the port alone after the system had no file descriptor or memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// How long it waits for somebody to be late when nobody can be taken.
const CROWDED: Duration = Duration::from_millis(10);
/// Clients that are taken before those who are there are heard again.
const ACCEPTED_AT_ONCE: usize = 64;
/// For so many places one newcomer is heard beyond them, while clients of one origin keep the others from being opened.
const PLACES_PER_EXTRA: usize = 4;
/// Events of one wait.
const EVENTS: usize = 256;
/// What events of the listener and of the stop are called; clients have the numbers of their places.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A client that has proved itself, and what it wants.
pub(crate) struct Job {
    pub(crate) client: Client,
    pub(crate) request: OpenRequest,
}

/// The loop.
pub(crate) struct Port<'a> {
    acceptor: &'a Acceptor,
    stop: &'a StopHandle,
    /// Those who open connections for clients that have proved themselves.
    openers: &'a Openers<Box<Job>>,
    pending: Pending,
    epoll: OwnedFd,
    /// Until when newcomers stay in the system's queue.
    resting: Option<Instant>,
    /// For newcomers for whom there is no descriptor otherwise.
    spare: Option<OwnedFd>,
}

fn spare_descriptor() -> Option<OwnedFd> {
    event::eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn waiting(errno: Errno) -> BootstrapError {
    BootstrapError::Io {
        call: "waiting for the port",
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

    /// Runs until stopped. `open` has a client opened, or gives it back.
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

    /// How long there is nothing to do if nobody comes or speaks.
    fn timeout(&self, now: Instant) -> Option<Timespec> {
        let expiry = self.pending.next_expiry(self.handshake_timeout());
        let next = expiry.into_iter().chain(self.resting).min()?;
        // Not a moment too early, or it would go round and round.
        let left = next.saturating_duration_since(now) + Duration::from_micros(1);
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    /// Leaves newcomers in the system's queue until then, or looks for them.
    fn listen(&mut self, resting: Option<Instant>) -> Result<(), BootstrapError> {
        let flags = match resting {
            None => epoll::EventFlags::IN,
            Some(_) => epoll::EventFlags::empty(),
        };
        self.resting = resting;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::modify(&self.epoll, &self.acceptor.listener, data, flags).map_err(waiting)
    }

    /// Takes newcomers; says for how long to leave the others where they are.
    fn accept(&mut self) -> Option<Duration> {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.make_room() {
                return Some(CROWDED);
            }
            let (stream, peer) = match self.acceptor.listener.accept() {
                Ok(newcomer) => newcomer,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return None,
                    // The client was gone before it was taken.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => {
                        self.acceptor.failed(&error);
                        // Perhaps one descriptor less is enough.
                        let is_better = self.evict() || self.turn_away_with_spare(&error);
                        return (!is_better).then_some(PAUSE);
                    }
                },
            };
            self.acceptor.counters.accepted.fetch_add(1, Relaxed);
            // Only a delay is lost when it fails.
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

    /// Takes a newcomer for whom there is no descriptor with the one that is kept for that, to say so. `false`: there
    /// is none kept.
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

    /// Places that there are, of those who are heard and those who are opened.
    fn limit(&self) -> usize {
        self.acceptor.config.max_pending as usize
    }

    /// Whether there is a place for one more.
    fn make_room(&mut self) -> bool {
        self.pending.len() + self.openers.len() < self.limit() || self.evict() || self.hears_more()
    }

    /// Whether one more is heard although all places are taken. A newcomer that has proved nothing takes no place in
    /// line, so it has to be heard first; that is of use where one origin has most of the line.
    fn hears_more(&self) -> bool {
        self.pending.len() < self.limit().div_ceil(PLACES_PER_EXTRA) && self.openers.has_one_most()
    }

    /// Has one leave who keeps the server waiting, if there is one. Who waits for the server is not among them.
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

    /// Has a client opened that has proved itself. Where others that have done so hold all places, the newest of the
    /// origin with most of the line makes room for it; if it is of that origin itself, it has to come again.
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

    /// Goes on in TLS with a client that has begun it. `false`: the client is gone.
    fn begin_tls(&mut self, id: u64) -> bool {
        let Some(mut client) = self.pending.remove(id) else {
            return false;
        };
        let Some(tls) = &self.acceptor.config.tls else {
            let refusal = Refusal::TlsUnexpected;
            // It is no TLS, by which the client sees what is wrong.
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

    /// Hears what a client has said by now.
    fn hear(&mut self, id: u64, open: &impl Fn(Box<Job>) -> Result<(), Box<Job>>) {
        loop {
            // Gone since the event.
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
            // Its event would have no place any more. It fails when the stream is not watched, which is as well.
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
