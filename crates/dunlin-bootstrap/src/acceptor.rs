//! The server's side of the port: what it offers, the resources that unauthenticated clients can hold, and how
//! handshakes ended.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use dunlin_verbs::RateLimit;

use crate::address::Address;
use crate::certificate::TlsFailure;
use crate::checks::check_capabilities;
use crate::config::AcceptorConfig;
use crate::counters::{Counters, Counts, Ending};
use crate::error::BootstrapError;
use crate::handshake;
use crate::message::OpenReply;
use crate::pending::Client;
use crate::refusal::Refusal;
use crate::resolve::resolve;
use crate::time::Time;
use crate::wire::{self, MAX_FRAME};

/// Maximum number of clients that the system queues before they are accepted; it may allow fewer
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Maximum number of log lines per minute about refused clients, for each level.
const LINES_PER_MINUTE: u32 = 30;
/// Time that a server waits for the lookup of its own address.
const LOOK_UP: Duration = Duration::from_secs(5);

/// A bound port. Clients are accepted while [`Acceptor::run`] runs; before that they wait in the system's queue.
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
    /// Binds the port. With port 0 the system picks one, which [`Acceptor::local_address`] returns.
    ///
    /// # Errors
    /// When the address is unknown, not of this host or in use, or a limit of the configuration is violated.
    pub fn bind(address: &Address, mut config: AcceptorConfig) -> Result<Self, BootstrapError> {
        check_capabilities(&config.capabilities).map_err(BootstrapError::Limit)?;
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

    /// The address on which it listens, with the port that the system picked.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// Counts of the handshakes so far, by how they ended.
    pub fn counters(&self) -> Counts {
        self.counters.read()
    }

    /// Sends the outcome to a client, which ends its handshake.
    pub(crate) fn answer(&self, mut client: Client, outcome: Result<OpenReply, Refusal>) {
        let Client {
            stream, transcript, ..
        } = &mut client;
        let ending = handshake::answer(stream, &self.config, transcript, outcome);
        self.note(client.peer, &ending);
    }

    /// Logs the end of a handshake if it may matter to an operator, and counts it: once the count is visible, so is the
    /// line in the log. Messages that unauthenticated clients can cause are rate-limited.
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
                    tracing::warn!(%peer, %refusal, suppressed, "a client failed to authenticate");
                }
            }
            Ending::Tls(failure) => {
                if let Some(suppressed) = self.warnings.pass() {
                    let said = match failure {
                        TlsFailure::Refused(_) => "a client rejected this server's certificate",
                        _ => "a client failed to authenticate by TLS",
                    };
                    tracing::warn!(%peer, %failure, suppressed, "{said}");
                }
            }
            Ending::Version { theirs } => {
                if let Some(suppressed) = self.notes.pass() {
                    let ours = wire::VERSION;
                    tracing::info!(%peer, ours, theirs, suppressed, "a client speaks another version of the bootstrap");
                }
            }
            Ending::Refused(refusal) => {
                if let Some(suppressed) = self.notes.pass() {
                    tracing::info!(%peer, %refusal, suppressed, "refused a client");
                }
            }
            ending => tracing::debug!(%peer, ?ending, "handshake ended"),
        }
        self.counters.count(ending);
    }

    /// Counts a client that the system could not accept.
    pub(crate) fn failed(&self, error: &io::Error) {
        self.counters.accept_failed.fetch_add(1, Relaxed);
        if let Some(suppressed) = self.warnings.pass() {
            tracing::warn!(%error, suppressed, "cannot handle a client");
        }
    }
}

/// Number of handshakes that leaves most file descriptors to established connections.
fn places() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.current.unwrap_or(u64::MAX) / 4;
    u32::try_from(most).unwrap_or(u32::MAX).max(16)
}
