//! The server's side of the port: what it offers, what strangers can hold of it, and how handshakes ended.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use dunlin_verbs::RateLimit;

use crate::address::Address;
use crate::certificate::TlsFailure;
use crate::counters::{Counters, Counts, Ending};
use crate::dialed::Time;
use crate::error::BootstrapError;
use crate::handshake;
use crate::limits;
use crate::message::{OpenReply, OpenRequest};
use crate::openers::Openers;
use crate::peer::Peer;
use crate::pending::Client;
use crate::port::{Job, Port};
use crate::refusal::Refusal;
use crate::resolve::resolve;
use crate::secret::Secret;
use crate::selection::Capability;
use crate::stop::StopHandle;
use crate::tls::ServerTls;
use crate::wire::{self, MAX_FRAME};

/// Clients that the system keeps in its queue until they are taken; it may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Lines of the log a minute about clients that were refused, of each level.
const LINES_PER_MINUTE: u32 = 30;
/// How long a server waits for what its own address stands for.
const LOOK_UP: Duration = Duration::from_secs(5);

/// What a server offers, and what it allows to strangers.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// What clients have to know, if anything.
    pub secret: Option<Secret>,
    /// The certificate of the server, and whether clients need one: then the handshake runs in TLS 1.3, and in nothing
    /// else.
    pub tls: Option<ServerTls>,
    /// The devices that clients may be connected over.
    pub capabilities: Vec<Capability>,
    /// Which device's network interface has an address of this host: of devices that would do equally well, a client
    /// gets the one where it came in. `None`: the first.
    pub device_at: Option<fn(IpAddr) -> Option<String>>,
    /// Time from the TCP connection to the open request. 5 s.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; of the file descriptors that the process may have a quarter at most. 1024. A
    /// newcomer above it takes the place of a client who keeps the server waiting: one that has said nothing for 100
    /// ms, or whose open request has not come 250 ms after it was taken, of the address that has the most places. While
    /// there is none, newcomers wait in the system's queue. Who had to leave is told that the server is busy, and
    /// [`crate::dial`] comes again; who has sent his open request, with the proof that is asked for, stays.
    pub max_pending: u32,
    /// Largest frame that is read, in bytes. 16 KiB, which also is the most.
    pub max_frame: usize,
}

impl Default for AcceptorConfig {
    fn default() -> Self {
        Self {
            secret: None,
            tls: None,
            capabilities: Vec::new(),
            device_at: None,
            handshake_timeout: Duration::from_secs(5),
            max_pending: 1024,
            max_frame: MAX_FRAME,
        }
    }
}

/// A bound port. Clients are taken while [`Acceptor::run`] runs; before that they wait in the system's queue.
#[derive(Debug)]
pub struct Acceptor {
    pub(crate) listener: TcpListener,
    local: Address,
    pub(crate) config: AcceptorConfig,
    pub(crate) counters: Counters,
    warnings: RateLimit,
    notes: RateLimit,
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
        let all = resolve(address, Time::of(LOOK_UP))?;
        let listener = TcpListener::bind(&*all).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        rustix::net::listen(&listener, BACKLOG).map_err(|errno| wrong(errno.into()))?;
        config.max_pending = config.max_pending.clamp(1, places());
        let local = listener.local_addr().map_err(wrong)?.into();
        Ok(Self {
            listener,
            local,
            config,
            counters: Counters::default(),
            warnings: RateLimit::per_minute(LINES_PER_MINUTE),
            notes: RateLimit::per_minute(LINES_PER_MINUTE),
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
    /// a thread of its own, several at once, for a client that has proved itself, with the server's own device in
    /// [`OpenRequest::device`], and who the client is. That a client gets the reply is not certain: if it never shows up on the queue pair,
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
        on_open: impl Fn(OpenRequest, Peer) -> Result<OpenReply, Refusal> + Send + Sync,
    ) -> Result<(), BootstrapError> {
        let openers = Openers::new();
        let open = |job: Box<Job>| {
            let Job { client, request } = *job;
            let peer = client.known(self.config.secret.is_some());
            let outcome = catch_unwind(AssertUnwindSafe(|| on_open(request, peer)));
            self.answer(
                client,
                outcome.unwrap_or_else(|_| {
                    tracing::error!("opening a connection panicked");
                    Err(Refusal::Failed)
                }),
            );
        };
        thread::scope(|scope| {
            let ended = Port::new(self, stop, &|| openers.len())
                .and_then(|port| port.run(|job| openers.submit(scope, &open, job)));
            self.close();
            openers.close();
            ended
        })
    }

    /// Clients that come now are refused by the system; without this they would wait in its queue until their own
    /// patience ends, for as long as the server answers what it has accepted.
    fn close(&self) {
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "the port could not be closed");
        }
    }

    /// Tells a client the outcome, which ends its handshake.
    pub(crate) fn answer(&self, mut client: Client, outcome: Result<OpenReply, Refusal>) {
        let Client {
            stream, transcript, ..
        } = &mut client;
        let ending = handshake::answer(stream, &self.config, transcript, outcome);
        self.note(client.peer, &ending);
    }

    /// Says that a handshake has ended where somebody may have to know, and counts it: who has seen the count finds the
    /// line in the log. What strangers can cause is said at a bounded rate.
    pub(crate) fn note(&self, peer: SocketAddr, ending: &Ending) {
        match ending {
            Ending::Refused(
                refusal @ (Refusal::WrongSecret
                | Refusal::SecretRequired
                | Refusal::SecretUnexpected
                | Refusal::TlsRequired
                | Refusal::TlsUnexpected),
            ) => {
                if let Some(suppressed) = self.warnings.pass() {
                    tracing::warn!(%peer, %refusal, suppressed, "a client could not authenticate itself");
                }
            }
            Ending::Tls(failure) => {
                if let Some(suppressed) = self.warnings.pass() {
                    let said = match failure {
                        TlsFailure::Refused(_) => {
                            "a client does not trust this server's certificate"
                        }
                        _ => "a client could not authenticate itself by TLS",
                    };
                    tracing::warn!(%peer, %failure, suppressed, "{said}");
                }
            }
            Ending::Version { theirs } => {
                if let Some(suppressed) = self.notes.pass() {
                    let ours = wire::VERSION;
                    tracing::info!(%peer, ours, theirs, suppressed, "a client of another version");
                }
            }
            Ending::Refused(refusal) => {
                if let Some(suppressed) = self.notes.pass() {
                    tracing::info!(%peer, %refusal, suppressed, "a client was refused");
                }
            }
            ending => tracing::debug!(%peer, ?ending, "a handshake ended"),
        }
        self.counters.count(ending);
    }

    /// Counts a client that the system could not hand over.
    pub(crate) fn failed(&self, error: &io::Error) {
        self.counters.accept_failed.fetch_add(1, Relaxed);
        if let Some(suppressed) = self.warnings.pass() {
            tracing::warn!(%error, suppressed, "a client could not be taken");
        }
    }
}

/// Handshakes that leave most file descriptors to those who are connected.
fn places() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.current.unwrap_or(u64::MAX) / 4;
    u32::try_from(most).unwrap_or(u32::MAX).max(16)
}
