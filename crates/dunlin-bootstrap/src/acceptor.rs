//! The server's side of the port: what it offers, what strangers can hold of it, and how handshakes ended.

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

/// Clients that the system keeps in its queue until they are taken; it may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Lines of the log a minute about clients that were refused, of each level.
const LINES_PER_MINUTE: u32 = 30;
/// How long a server waits for what its own address stands for.
const LOOK_UP: Duration = Duration::from_secs(5);

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

    /// Where it listens, with the port that the system picked.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// How the handshakes so far ended.
    pub fn counters(&self) -> Counts {
        self.counters.read()
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
