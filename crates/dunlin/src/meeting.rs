//! Connects streams and rings, which are not part of the RPC, by `dunlin://host:port`: over the same handshake, with
//! the same versions, secrets and device selection. The two sides exchange offers of the ring's crate, which the
//! handshake carries without interpreting them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_bootstrap::{
    dial, Acceptor, AcceptorConfig, Address, AddressError, BootstrapError, Capability, ClientTls,
    DialConfig, OpenReply, OpenRequest, Refusal, Secret, ServerTls, StopHandle,
};
use dunlin_ring::ConfigError;
use dunlin_verbs::process::Owned;
use dunlin_verbs::{Device, EndpointAddress, PeerConfirmation, VerbsError, ENDPOINT_ADDRESS_BYTES};

/// Maximum number of connected streams or rings that wait for [`Listener::accept`]; more are refused.
const BACKLOG: usize = 128;
/// Time within which a client's device must confirm that the queue pair is the client's own.
const CONFIRMING: Duration = Duration::from_secs(2);
/// The parameter with the length of an offer.
const LENGTH: &str = "bytes";

/// Why two ends could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The handshake failed, or the port is not available.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Something else is served at that port.
    #[error("{address} has no {asked}, it speaks: {}; a stream or ring needs the port of a `Listener`, \
        a server of calls a `Client`", known.join(", "))]
    OtherService {
        /// The address.
        address: Address,
        /// The requested kind of service.
        asked: String,
        /// The kinds that are served.
        known: Vec<String>,
    },
    /// The two configurations differ, or the device does not support the ring.
    #[error(transparent)]
    Ring(#[from] ConfigError),
    /// No device can be used.
    #[error("no suitable device: {0}")]
    Device(String),
    /// The server's offer is invalid.
    #[error("invalid offer from the server: {0}")]
    Offer(&'static str),
    /// A system call failed.
    #[error("{call}: {source}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
    /// This process was created by `fork()` after the listener: the listener belongs to the parent.
    #[error("this process was forked after the listener was created: listen again in the child")]
    Forked,
    /// The listener accepts no more.
    #[error("the listener has stopped: {0}")]
    Ended(String),
}

/// Converts a server's refusal into an error for clients of streams and rings.
fn refused(error: BootstrapError) -> MeetError {
    match error {
        BootstrapError::Refused {
            address,
            refusal: Refusal::UnknownPreset { asked, known },
        } => MeetError::OtherService {
            address,
            asked,
            known,
        },
        other => other.into(),
    }
}

impl From<VerbsError> for MeetError {
    fn from(error: VerbsError) -> Self {
        Self::Device(error.to_string())
    }
}

/// The settings that both connecting and listening sides may have.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) secret: Option<Secret>,
    /// For the connecting side; the next field is for the listening side.
    pub(crate) client_tls: Option<ClientTls>,
    pub(crate) server_tls: Option<ServerTls>,
    pub(crate) device: Option<String>,
    pub(crate) timeout: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            secret: None,
            client_tls: None,
            server_tls: None,
            device: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The setters for these settings of a builder with a field `terms`.
macro_rules! settings_of_terms {
    () => {
        /// The secret that both sides must know.
        pub fn secret(mut self, secret: $crate::Secret) -> Self {
            self.terms.secret = Some(secret);
            self
        }

        /// Runs the handshake inside TLS 1.3, on the connecting side.
        #[cfg(feature = "tls")]
        pub fn client_tls(mut self, tls: $crate::ClientTls) -> Self {
            self.terms.client_tls = Some(tls);
            self
        }

        /// Runs the handshake inside TLS 1.3, on the listening side.
        #[cfg(feature = "tls")]
        pub fn server_tls(mut self, tls: $crate::ServerTls) -> Self {
            self.terms.server_tls = Some(tls);
            self
        }

        /// Time that each step of a handshake may take. 5 s by default.
        pub fn handshake_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.terms.timeout = timeout;
            self
        }
    };
}
pub(crate) use settings_of_terms;

/// Encodes an offer as the numbers of an open request: words of eight bytes by their positions.
fn to_numbers(offer: &[u8]) -> BTreeMap<String, u64> {
    let word = |(at, bytes): (usize, &[u8])| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        (format!("{at:02}"), u64::from_le_bytes(word))
    };
    let mut numbers: BTreeMap<_, _> = offer.chunks(8).enumerate().map(word).collect();
    numbers.insert(LENGTH.to_owned(), offer.len() as u64);
    numbers
}

/// Decodes the offer in these numbers, if it is one of `N` bytes.
fn from_numbers<const N: usize>(numbers: &BTreeMap<String, u64>) -> Result<[u8; N], &'static str> {
    if numbers.get(LENGTH) != Some(&(N as u64)) {
        return Err("it is of another kind or another release");
    }
    let mut offer = [0; N];
    for (at, bytes) in offer.chunks_mut(8).enumerate() {
        let word = numbers.get(&format!("{at:02}"));
        let word = word.ok_or("it is incomplete")?.to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
    Ok(offer)
}

/// A placeholder: the queue pairs are in the offer.
fn nowhere() -> EndpointAddress {
    EndpointAddress::decode(&[0; ENDPOINT_ADDRESS_BYTES])
}

/// Checks that a client's device confirms the queue pair as the client's own: nothing is created for a client on its
/// word alone.
///
/// # Errors
/// When it does not.
pub(crate) fn confirm<D: Device>(device: &D, peer: &EndpointAddress) -> Result<(), MeetError> {
    match device.confirm_peer(peer, CONFIRMING)? {
        PeerConfirmation::Confirmed { .. } => Ok(()),
        PeerConfirmation::Silent => Err(MeetError::Device(
            "the client's device does not respond".to_owned(),
        )),
    }
}

/// Connects to the listener at an address. `open` creates this end on the device of this name and returns its offer;
/// `join` connects it to the other side's offer. Both offers are of `N` bytes.
pub(crate) fn connect<T, U, const N: usize>(
    address: &str,
    kind: &str,
    terms: &Terms,
    capabilities: Vec<Capability>,
    open: impl FnOnce(&str) -> Result<(T, [u8; N]), MeetError>,
    join: impl FnOnce(T, &[u8; N]) -> Result<U, MeetError>,
) -> Result<(U, Chosen), MeetError> {
    let address: Address = address.parse()?;
    let config = DialConfig {
        secret: terms.secret.clone(),
        tls: terms.client_tls.clone(),
        capabilities,
        device: terms.device.clone(),
        timeout: terms.timeout,
    };
    let dialed = dial(&address, &config)?;
    let chosen = Chosen {
        device: dialed.device().to_owned(),
        why: dialed.why(),
    };
    let (end, offer) = open(&chosen.device)?;
    let asked = dialed.open(OpenRequest {
        device: String::new(),
        preset: kind.to_owned(),
        endpoint: nowhere(),
        parameters: to_numbers(&offer),
    });
    let reply = asked.map_err(refused)?;
    let theirs = from_numbers(&reply.parameters).map_err(MeetError::Offer)?;
    Ok((join(end, &theirs)?, chosen))
}

/// The chosen device, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) device: String,
    pub(crate) why: &'static str,
}

/// Accepts ends that others connect. Connected ends that have not been accepted wait in a queue, at most 128 of them; a
/// client beyond that is refused with the limit. Dropping the listener ends it; accepted ends continue to work. It
/// cannot be used in a process that was forked after its creation.
#[derive(Debug)]
pub struct Listener<T> {
    acceptor: Arc<Acceptor>,
    arrivals: Arc<Arrivals<T>>,
    stop: StopHandle,
    thread: Owned<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Arrivals<T> {
    line: Mutex<Line<T>>,
    news: Condvar,
}

#[derive(Debug)]
struct Line<T> {
    ready: VecDeque<T>,
    waker: Option<Waker>,
    ended: Option<String>,
}

impl<T> Arrivals<T> {
    fn lock(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut line: MutexGuard<'_, Line<T>>) {
        let waker = line.waker.take();
        let has_ended = line.ended.is_some();
        drop(line);
        match has_ended {
            true => self.news.notify_all(),
            false => self.news.notify_one(),
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Creates an end and queues it, if there is space.
    fn add(&self, make: impl FnOnce() -> Result<T, Refusal>) -> Result<(), Refusal> {
        let full = || Refusal::Limit {
            name: "connections waiting to be accepted".to_owned(),
            limit: BACKLOG as u64,
        };
        if self.lock().ready.len() >= BACKLOG {
            return Err(full());
        }
        let end = make()?;
        let mut line = self.lock();
        if line.ready.len() >= BACKLOG {
            return Err(full());
        }
        line.ready.push_back(end);
        self.tell(line);
        Ok(())
    }
}

impl<T: Send + 'static> Listener<T> {
    /// Listens at an address. `meet` creates this side's end on the device of this name, connects it to the client's
    /// offer, and returns its own offer.
    pub(crate) fn bind<const N: usize>(
        address: &str,
        kind: &'static str,
        terms: &Terms,
        capabilities: Vec<Capability>,
        meet: impl Fn(&str, &[u8; N]) -> Result<(T, [u8; N]), MeetError> + Send + Sync + 'static,
    ) -> Result<Self, MeetError> {
        let config = AcceptorConfig {
            secret: terms.secret.clone(),
            tls: terms.server_tls.clone(),
            capabilities,
            handshake_timeout: terms.timeout,
            ..AcceptorConfig::default()
        };
        let acceptor = Arc::new(Acceptor::bind(&address.parse()?, config)?);
        let arrivals = Arc::new(Arrivals {
            line: Mutex::new(Line {
                ready: VecDeque::new(),
                waker: None,
                ended: None,
            }),
            news: Condvar::new(),
        });
        let io = |call| move |source| MeetError::Io { call, source };
        let stop = StopHandle::new().map_err(io("creating an event"))?;
        let thread = std::thread::Builder::new().name("dunlin-accept".into());
        let (door, line, until) = (Arc::clone(&acceptor), Arc::clone(&arrivals), stop.clone());
        let thread = thread.spawn(move || {
            let ended = door.run(&until, |request, _| {
                let mut reply = None;
                line.add(|| {
                    let (end, offer) = admit(kind, &request, &meet)?;
                    reply = Some(OpenReply {
                        endpoint: nowhere(),
                        parameters: to_numbers(&offer),
                    });
                    Ok(end)
                })?;
                reply.ok_or(Refusal::Failed)
            });
            let mut line_now = line.lock();
            line_now.ended = Some(match ended {
                Ok(()) => "it was closed".to_owned(),
                Err(error) => error.to_string(),
            });
            line.tell(line_now);
        });
        Ok(Self {
            acceptor,
            arrivals,
            stop,
            thread: Owned::new(Some(thread.map_err(io("starting a thread"))?)),
        })
    }

    /// The address on which it listens, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.acceptor.local_address().clone()
    }

    /// Returns the next end that has connected; blocks until there is one.
    ///
    /// # Errors
    /// When the listener has failed.
    pub fn accept(&self) -> Result<T, MeetError> {
        self.thread.check().map_err(|_| MeetError::Forked)?;
        let mut line = self.arrivals.lock();
        loop {
            if let Some(end) = line.ready.pop_front() {
                return Ok(end);
            }
            if let Some(why) = &line.ended {
                return Err(MeetError::Ended(why.clone()));
            }
            let waited = self.arrivals.news.wait(line);
            line = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the next end that has connected, as a future for any executor. Only one task at a time may wait.
    ///
    /// # Errors
    /// As for [`Listener::accept`].
    pub async fn accept_async(&self) -> Result<T, MeetError> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for the next end that has connected. Only one task at a time may wait.
    ///
    /// # Errors
    /// As for [`Listener::accept`].
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<T, MeetError>> {
        self.thread.check().map_err(|_| MeetError::Forked)?;
        let mut line = self.arrivals.lock();
        if let Some(end) = line.ready.pop_front() {
            return Poll::Ready(Ok(end));
        }
        if let Some(why) = &line.ended {
            return Poll::Ready(Err(MeetError::Ended(why.clone())));
        }
        line.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Validates and executes a client's request.
fn admit<T, const N: usize>(
    kind: &'static str,
    request: &OpenRequest,
    meet: &impl Fn(&str, &[u8; N]) -> Result<(T, [u8; N]), MeetError>,
) -> Result<(T, [u8; N]), Refusal> {
    if request.preset != kind {
        return Err(Refusal::UnknownPreset {
            asked: request.preset.clone(),
            known: vec![kind.to_owned()],
        });
    }
    let theirs = from_numbers(&request.parameters).map_err(Refusal::rejected)?;
    meet(&request.device, &theirs).map_err(|error| Refusal::rejected(error.to_string()))
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        if !self.thread.is_here() {
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It ends with the stop; a panic in it was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_come_back_from_numbers() {
        let offer: [u8; 20] = std::array::from_fn(|at| at as u8);
        let mut numbers = to_numbers(&offer);
        assert_eq!(from_numbers::<20>(&numbers), Ok(offer));
        assert!(from_numbers::<24>(&numbers).is_err());
        numbers.remove("01");
        assert!(from_numbers::<20>(&numbers).is_err());
        numbers.insert(LENGTH.to_owned(), u64::MAX);
        assert!(from_numbers::<20>(&numbers).is_err());
    }
}
