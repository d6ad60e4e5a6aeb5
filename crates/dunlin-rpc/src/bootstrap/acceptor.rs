//! The server's side of the port: the accept loop, and the limits on what strangers can hold of it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::address::Address;
use super::counters::{Counters, Counts, Ending};
use super::error::BootstrapError;
use super::handshake;
use super::limits;
use super::message::{OpenReply, OpenRequest};
use super::pending::{Pending, Place};
use super::refusal::Refusal;
use super::secret::Secret;
use super::selection::Capability;
use super::stop::StopHandle;
use super::wire::{self, MAX_FRAME};

/// How long the loop leaves the port alone after the system had no file descriptor or memory for a connection.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What a server offers, and what it allows to strangers.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// What clients have to know, if anything.
    pub secret: Option<Secret>,
    /// The devices that clients may be connected over.
    pub capabilities: Vec<Capability>,
    /// Which device's network interface has an address of this host: of devices that would do equally well, a client gets
    /// the one where it came in. `None`: the first.
    pub device_at: Option<fn(IpAddr) -> Option<String>>,
    /// Time from the TCP connection to the open request; the reply has as long again to go out. 5 s.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once, each of which has a thread. A newcomer above it takes the place of a client
    /// that has connected and said nothing, if there is one, and is refused as busy otherwise. 64.
    pub max_pending: u32,
    /// Largest frame that is read, in bytes. 16 KiB, which also is the most.
    pub max_frame: usize,
}

impl Default for AcceptorConfig {
    fn default() -> Self {
        Self {
            secret: None,
            capabilities: Vec::new(),
            device_at: None,
            handshake_timeout: Duration::from_secs(5),
            max_pending: 64,
            max_frame: MAX_FRAME,
        }
    }
}

/// A bound port. Clients are taken while [`Acceptor::run`] runs; before that they wait in the system's queue.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    local: Address,
    config: AcceptorConfig,
    counters: Counters,
}

impl Acceptor {
    /// Binds the port. Port 0 lets the system pick one; [`Acceptor::local_address`] says which.
    ///
    /// # Errors
    /// When the address is not known, not of this host or in use, or a limit of the configuration is broken.
    pub fn bind(address: &Address, mut config: AcceptorConfig) -> Result<Self, BootstrapError> {
        limits::check_capabilities(&config.capabilities).map_err(BootstrapError::Limit)?;
        config.max_frame = config.max_frame.min(MAX_FRAME);
        let wrong = |source: io::Error| match source.kind() {
            ErrorKind::AddrInUse => BootstrapError::AddressInUse {
                address: address.clone(),
            },
            _ => BootstrapError::Io {
                call: "binding the port",
                source,
            },
        };
        let all = super::dial::resolve(address)?;
        let listener = TcpListener::bind(&*all).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let local = listener.local_addr().map_err(wrong)?.into();
        Ok(Self {
            listener,
            local,
            config,
            counters: Counters::default(),
        })
    }

    /// Where it listens, with the port that the system picked.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// How the handshakes so far ended.
    pub fn counters(&self) -> Counts {
        self.counters.read()
    }

    /// Takes clients until stopped, in the caller's thread; asleep while there are none. `on_open` is called on
    /// the thread of the handshake, for a client that has proved itself, with the server's own device in
    /// [`OpenRequest::device`]. That a client gets the reply is not certain: if it never shows up on the queue pair,
    /// the caller has to give up on it.
    ///
    /// Returns when all handshakes have ended: those that wait for their client are cut short. From the stop on the
    /// port refuses connections, also those that the system had queued, and another server may take it.
    ///
    /// # Errors
    /// When the system cannot wait for the port.
    pub fn run(
        &self,
        stop: &StopHandle,
        on_open: impl Fn(OpenRequest) -> Result<OpenReply, Refusal> + Send + Sync,
    ) -> Result<(), BootstrapError> {
        let pending = Pending::default();
        thread::scope(|scope| loop {
            let stream = match self.next(stop) {
                Ok(Some(stream)) => stream,
                outcome => {
                    self.close();
                    pending.hurry();
                    return outcome.map(|_| ());
                }
            };
            self.counters.accepted.fetch_add(1, Relaxed);
            let place = match pending.enter(self.config.max_pending, stream) {
                Ok(place) => place,
                Err(stream) => {
                    self.turn_away(&stream);
                    continue;
                }
            };
            let client = Arc::clone(&place.client);
            let on_open = &on_open;
            let handshake = move || self.handshake(&place, stop, on_open);
            let thread = thread::Builder::new().name("dunlin-bootstrap".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, handshake) {
                tracing::warn!(%error, "no thread for a handshake");
                self.turn_away(&client.stream);
            }
        })
    }

    /// Clients that come now are refused by the system; without this they would wait in its queue until their own
    /// patience ends, for as long as the server answers what it has accepted.
    fn close(&self) {
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "the port could not be closed");
        }
    }

    /// The next client, or none once stopped.
    fn next(&self, stop: &StopHandle) -> Result<Option<TcpStream>, BootstrapError> {
        loop {
            if stop.is_stopped() {
                return Ok(None);
            }
            match self.listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => self.wait(stop, true)?,
                    // The client was gone before it was taken.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.counters.accept_failed.fetch_add(1, Relaxed);
                        tracing::warn!(%error, "a client could not be taken");
                        self.wait(stop, false)?;
                    }
                },
            }
        }
    }

    /// Sleeps until there is a client or a stop; without the port, until a stop or for the pause.
    fn wait(&self, stop: &StopHandle, port: bool) -> Result<(), BootstrapError> {
        let event = stop.event();
        let mut both = [
            PollFd::new(&event, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        let (sources, limit) = if port {
            (&mut both[..], None)
        } else {
            (&mut both[..1], Some(&PAUSE))
        };
        match poll(sources, limit) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(BootstrapError::Io {
                call: "waiting for the port",
                source: error.into(),
            }),
        }
    }

    /// Says that the server is busy, without waiting for anything.
    fn turn_away(&self, stream: &TcpStream) {
        let refusal = Refusal::Busy {
            limit: self.config.max_pending,
        };
        self.counters.count(&Ending::Refused(refusal.clone()));
        if stream.set_nonblocking(true).is_ok() {
            // So few bytes fit into the buffer of a new connection.
            handshake::refuse_at_once(stream, refusal);
        }
    }

    fn handshake(
        &self,
        place: &Place<'_>,
        stop: &StopHandle,
        on_open: &(impl Fn(OpenRequest) -> Result<OpenReply, Refusal> + Sync),
    ) {
        let guarded = |request| {
            catch_unwind(AssertUnwindSafe(|| on_open(request))).unwrap_or_else(|_| {
                tracing::error!("opening a connection panicked");
                Err(Refusal::Failed)
            })
        };
        let ending = handshake::serve(&place.client, &self.config, stop, guarded);
        match &ending {
            Ending::Version { theirs } => {
                tracing::info!(ours = wire::VERSION, theirs, "a client of another version");
            }
            Ending::Refused(refusal) => tracing::info!(%refusal, "a client was refused"),
            ending => tracing::debug!(?ending, "a handshake ended"),
        }
        self.counters.count(&ending);
    }
}
