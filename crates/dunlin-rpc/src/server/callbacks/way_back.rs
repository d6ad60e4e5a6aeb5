//! The way back to one client: requests for connections, handed to the client as it asks for them.
//!
//! A thread that wants a connection waits for it; it must not be a polling thread of the server, since those deliver
//! the client's answer. No lock is held while a call is answered or a thread is woken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use dunlin_bootstrap::wire::{self, ClientOpen, Outcome, Proved};
use dunlin_bootstrap::{OpenReply, OpenRequest, Refusal};
use dunlin_verbs::{thread, EndpointAddress};

use crate::call::callbacks::Told;
use crate::client::Opener;
use crate::error::ConnectError;
use crate::identity::SERVER_PARAMETER;
use crate::server::{HandlerError, OwnedResponder};

/// The longest that a waiting thread sleeps at a time, which bounds the cost of a lost wake-up.
const LOOK: Duration = Duration::from_millis(100);

/// Device name sent to the client in a request for a connection: it has only one device for that, and this is not a
/// name of any.
const DEVICE: &str = "-";

/// See the module.
pub(super) struct WayBack {
    state: Mutex<State>,
    /// No connections are opened any more.
    gone: AtomicBool,
    /// Time limit for a connection if the caller does not give one.
    patience: Duration,
    /// The address of the client's end of a connection.
    peer: Option<EndpointAddress>,
}

#[derive(Default)]
struct State {
    /// The client's call that is answered when the client has gone or is no longer called.
    stay: Option<OwnedResponder>,
    /// The client's call that is answered with what is to be opened.
    next: Option<OwnedResponder>,
    /// Whether the client has been told that it is registered.
    welcomed: bool,
    serial: u32,
    wanted: BTreeMap<u32, Wanted>,
}

/// A connection that a thread waits for.
struct Wanted {
    /// The request to the client, until it is sent.
    request: Option<Vec<u8>>,
    /// The client's reply.
    outcome: Option<Outcome<OpenReply>>,
    waiter: Waker,
}

impl std::fmt::Debug for WayBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WayBack")
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

impl WayBack {
    pub(super) fn new(patience: Duration, peer: Option<EndpointAddress>) -> Self {
        Self {
            state: Mutex::default(),
            gone: AtomicBool::new(false),
            patience,
            peer,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        thread::lock(&self.state)
    }

    /// Keeps the client's call `Stay`: the client is there until it is answered. Returns `false` if it has gone
    /// already; otherwise `waker` is woken when it may have gone.
    pub(super) fn stay(&self, responder: OwnedResponder, waker: &Waker) -> bool {
        let mut state = self.lock();
        if self.is_gone() {
            // Nothing else would answer it: the way back was closed before.
            drop(state);
            refuse(responder);
            return false;
        }
        let former = state.stay.replace(responder);
        drop(state);
        drop(former);
        !self.has_ended(waker)
    }

    /// Whether the client has gone; if not, `waker` is woken when it may have.
    pub(super) fn has_ended(&self, waker: &Waker) -> bool {
        let state = self.lock();
        let stay = state.stay.as_ref();
        stay.is_none_or(|stay| stay.poll_ended(&Context::from_waker(waker)).is_ready())
    }

    /// Takes the client's call that asks what to open next.
    pub(super) fn next(&self, responder: OwnedResponder) {
        let mut state = self.lock();
        if self.is_gone() {
            drop(state);
            return refuse(responder);
        }
        if !state.welcomed {
            state.welcomed = true;
            drop(state);
            return responder.reply(Told::Welcome.encode());
        }
        let former = state.next.replace(responder);
        self.hand_out(state);
        if let Some(former) = former {
            refuse(former);
        }
    }

    /// Takes the outcome of opening a connection.
    ///
    /// # Errors
    /// If `reply` is not a reply of a server.
    pub(super) fn opened(&self, serial: u32, reply: &[u8]) -> Result<(), String> {
        let reply = wire::parse_open_reply(reply).map_err(|error| error.to_string())?;
        let mut state = self.lock();
        // The thread that wanted it may have given up.
        let waiter = state.wanted.get_mut(&serial).map(|wanted| {
            wanted.outcome = Some(reply.message);
            wanted.waiter.clone()
        });
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }

    /// Asks the client for a wanted connection, if there is one and the client's call is here.
    fn hand_out(&self, mut state: MutexGuard<'_, State>) {
        if state.next.is_none() {
            return;
        }
        let mut wanted = state.wanted.iter_mut();
        let Some((serial, request)) =
            wanted.find_map(|(serial, wanted)| Some((*serial, wanted.request.take()?)))
        else {
            return;
        };
        let next = state.next.take();
        drop(state);
        let request = &request;
        if let Some(next) = next {
            next.reply(Told::Open { serial, request }.encode());
        }
    }

    /// Closes the way back: the client has gone, or is no longer called.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        self.gone.store(true, Ordering::Release);
        let (stay, next) = (state.stay.take(), state.next.take());
        let waiters: Vec<Waker> = state.wanted.values().map(|w| w.waiter.clone()).collect();
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
        stay.into_iter().chain(next).for_each(refuse);
    }

    /// Waits for the client's reply.
    fn wait(&self, serial: u32, until: Instant) -> Result<Outcome<OpenReply>, ConnectError> {
        loop {
            let mut state = self.lock();
            let wanted = state.wanted.get_mut(&serial);
            if let Some(outcome) = wanted.and_then(|wanted| wanted.outcome.take()) {
                return Ok(outcome);
            }
            drop(state);
            if self.is_gone() {
                return Err(ConnectError::CallerGone);
            }
            let left = until.saturating_duration_since(thread::now());
            if left.is_zero() {
                return Err(ConnectError::CallerSilent {
                    after: self.patience,
                });
            }
            thread::park(left.min(LOOK));
        }
    }
}

fn refuse(responder: OwnedResponder) {
    responder.fail(HandlerError::new(
        0,
        "the server no longer calls this client",
    ));
}

impl Opener for WayBack {
    fn open(
        &self,
        request: OpenRequest,
        until: Option<Instant>,
    ) -> Result<OpenReply, ConnectError> {
        let patience = thread::now() + self.patience;
        let until = until.map_or(patience, |until| until.min(patience));
        let asked = Proved {
            proof: None,
            message: ClientOpen::Open(OpenRequest {
                device: DEVICE.to_owned(),
                ..request
            }),
        };
        let request = wire::encode_open(&asked)
            .map_err(|error| ConnectError::Refused(Refusal::rejected(error.to_string())))?;
        let mut state = self.lock();
        if self.is_gone() {
            return Err(ConnectError::CallerGone);
        }
        state.serial = state.serial.wrapping_add(1);
        let serial = state.serial;
        let wanted = Wanted {
            request: Some(request),
            outcome: None,
            waiter: thread::waker(),
        };
        state.wanted.insert(serial, wanted);
        self.hand_out(state);
        let outcome = self.wait(serial, until);
        self.lock().wanted.remove(&serial);
        match outcome? {
            Outcome::Accepted(mut reply) => {
                // Which threads may not wait for it is decided on this side, not by what a client says.
                reply.parameters.remove(SERVER_PARAMETER);
                Ok(reply)
            }
            Outcome::Refused(refusal) => Err(ConnectError::Refused(refusal)),
        }
    }

    fn peer(&self) -> Option<EndpointAddress> {
        self.peer
    }

    fn is_local(&self) -> bool {
        false
    }
}
