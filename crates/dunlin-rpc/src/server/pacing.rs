//! Servers that change turns in step (ScaleRPC §4.2): the handler with which the time server answers, and the thread
//! with which another server follows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_bootstrap::{Address, Secret};
use dunlin_verbs::thread;

use super::handler::Execution;
use crate::admission::grouping::pace::{Exchange, Pace, PaceAnswer};
use crate::client::Client;
use crate::error::{CallError, ConnectError, ServeError};
use crate::preset::Preset;
use crate::HandlerId;

/// Id of the built-in handler that answers with the time. Servers cannot register a handler of their own under it.
pub(super) const TIME: HandlerId = HandlerId::MAX - 2;

/// Interval at which a follower asks (§4.2: once in every 100 ms).
const EVERY: Duration = Duration::from_millis(100);
/// Number of requests each time, of which the one with the shortest round trip counts: the others were delayed in one
/// of the directions.
const QUESTIONS: usize = 4;
/// Time limit of a follower for an answer, and for a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// The handler, which answers with the state of the pace.
pub(super) fn handler(pace: Pace) -> Execution {
    Execution::Inline(Arc::new(move |_, reply| {
        let came = thread::now();
        reply.write(&pace.answer(came, thread::now()).encode())
    }))
}

impl Pace {
    /// Synchronises this pace with that of the server that `client` is connected to: asks four times, uses the answer
    /// with the shortest round trip, and returns that time. [`crate::ServerBuilder::follow`] does this ten times a
    /// second, as in the paper; in between, clocks drift.
    ///
    /// # Errors
    /// If no answer comes; [`CallError::UnknownHandler`] if the server has no pace, [`CallError::Unreadable`] if its
    /// rotation is different, or if the client uses the preset `scalerpc`, whose requests wait for their slot while
    /// answers do not.
    pub fn synchronize(&self, client: &Client) -> Result<Duration, CallError> {
        if client.info().preset == Preset::ScaleRpc {
            let words = "a client with the preset scalerpc has to wait for its turn to send: use another preset";
            return Err(CallError::Unreadable(words.to_owned()));
        }
        let mut best: Option<Exchange> = None;
        for _ in 0..QUESTIONS {
            let asked_ns = self.own_ns(thread::now());
            let answer = client.call_within(PATIENCE, TIME, &[])?;
            let answered_ns = self.own_ns(thread::now());
            let words = || CallError::Unreadable("not an answer of a time server".to_owned());
            let exchange = Exchange {
                asked_ns,
                answered_ns,
                answer: PaceAnswer::decode(&answer).ok_or_else(words)?,
            };
            let shorter = |best: &Exchange| exchange.under_way_ns() < best.under_way_ns();
            if best.as_ref().is_none_or(shorter) {
                best = Some(exchange);
            }
        }
        let best = best.ok_or(CallError::Closed)?;
        self.learn(&best).map_err(CallError::Unreadable)?;
        Ok(Duration::from_nanos(best.under_way_ns().unsigned_abs()))
    }
}

/// The thread that asks the time server.
pub(super) struct Follower {
    stopped: Arc<Stopped>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the thread must end, and the connection on which it may be waiting.
#[derive(Default)]
struct Stopped {
    is: AtomicBool,
    client: Mutex<Option<Client>>,
}

impl Stopped {
    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        pace: Pace,
        server: Address,
        secret: Option<Secret>,
    ) -> Result<Self, ServeError> {
        let stopped = Arc::<Stopped>::default();
        let told = Arc::clone(&stopped);
        let thread = std::thread::Builder::new()
            .name("dunlin-pace".into())
            .spawn(move || follow(&pace, &server, secret.as_ref(), &told))?;
        Ok(Self {
            stopped,
            thread: Some(thread),
        })
    }

    /// Tells the thread to end, and aborts its call; it may go on connecting for up to a second.
    pub(super) fn stop(&self) {
        self.stopped.is.store(true, Ordering::Release);
        if let Some(client) = self.stopped.client().take() {
            client.close();
        }
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that synchronizes with the time server panicked");
        }
    }
}

/// Asks until the server ends. While the time server cannot be reached, turns follow the last estimate.
fn follow(pace: &Pace, server: &Address, secret: Option<&Secret>, stopped: &Stopped) {
    let mut told = false;
    while !stopped.is.load(Ordering::Acquire) {
        let known = stopped.client().clone();
        let asked = match known {
            Some(client) => pace.synchronize(&client).map_err(|error| error.to_string()),
            None => match reach(server, secret) {
                Ok(client) => {
                    *stopped.client() = Some(client);
                    continue;
                }
                Err(error) => Err(error.to_string()),
            },
        };
        match asked {
            Ok(_) => told = false,
            Err(error) => {
                *stopped.client() = None;
                let is_over = stopped.is.load(Ordering::Acquire);
                if !is_over && !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, %server, "no answer from the time server: turns follow the last known time");
                }
            }
        }
        std::thread::park_timeout(EVERY);
    }
    *stopped.client() = None;
}

fn reach(server: &Address, secret: Option<&Secret>) -> Result<Client, ConnectError> {
    let mut builder = Client::builder()
        .preset(Preset::Plain)
        .connect_timeout(PATIENCE)
        .deadline(PATIENCE);
    if let Some(secret) = secret {
        builder = builder.secret(secret.clone());
    }
    builder.connect(&server.to_string())
}
