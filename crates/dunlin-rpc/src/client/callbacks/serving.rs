//! The client's own server, as seen by the thread that keeps the client registered: the messages to the peer, and the
//! connections that are opened at its request.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_bootstrap::wire::{self, ClientOpen, Outcome, Proved};
use dunlin_bootstrap::{OpenReply, OpenRequest, Refusal};

use crate::call::callbacks::{Ask, Opened, Told};
use crate::error::CallError;
use crate::identity::SERVER_PARAMETER;

/// Opens a connection for the server.
type Open = dyn Fn(&OpenRequest) -> Result<OpenReply, Refusal> + Send + Sync;

/// The client's own server, for the thread that keeps the client registered.
pub(crate) struct Serving {
    device: String,
    open: Box<Open>,
    ending: AtomicBool,
    registered: AtomicBool,
    /// Its thread has ended, and the server was informed.
    over: AtomicBool,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("device", &self.device)
            .field("registered", &self.registered)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Serving {
    /// For a server on `device`, whose connections are made by `open`.
    pub(crate) fn new(
        device: String,
        open: impl Fn(&OpenRequest) -> Result<OpenReply, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            device,
            open: Box::new(open),
            ending: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Requests the end of the registration; its thread informs the server.
    pub(crate) fn begin_to_end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The client will not be registered again.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn set_registered(&self, is_registered: bool) {
        self.registered.store(is_registered, Ordering::Release);
    }

    /// The call that stays outstanding for as long as the client is registered.
    pub(crate) fn stay() -> Vec<u8> {
        Ask::STAY.encode()
    }

    /// The call that asks what to open.
    pub(crate) fn next() -> Vec<u8> {
        Ask::NEXT.encode()
    }

    /// The call that ends it.
    pub(crate) fn leave() -> Vec<u8> {
        Ask::Leave.encode()
    }

    /// Carries out the server's request, and returns the next one to send.
    ///
    /// # Errors
    /// When this client does not know the request.
    pub(crate) fn follow(&self, words: &[u8]) -> Result<Vec<u8>, CallError> {
        let unreadable = CallError::Unreadable;
        match Told::decode(words).map_err(unreadable)? {
            Told::Welcome => Ok(Self::next()),
            Told::Open { serial, request } => {
                let open = wire::parse_open(request);
                let open = open.map_err(|error| unreadable(error.to_string()))?;
                let ClientOpen::Open(request) = open.message else {
                    return Err(unreadable("callbacks: no connection to open".to_owned()));
                };
                let reply = self.open(request);
                let reply = reply.map_err(|error| unreadable(error.to_string()))?;
                let opened = Opened {
                    serial,
                    reply: &reply,
                };
                let opened = Some(opened);
                Ok(Ask::Next { opened }.encode())
            }
        }
    }

    /// Opens a connection, as a port would.
    fn open(&self, request: OpenRequest) -> Result<Vec<u8>, wire::ParseError> {
        let device = self.device.clone();
        let request = OpenRequest { device, ..request };
        let outcome = match self.is_ending() {
            true => Err(Refusal::ShuttingDown),
            false => (self.open)(&request),
        };
        let message = match outcome {
            Ok(mut reply) => {
                // It identifies the polling threads that would wait for themselves; those of the other side are
                // different ones.
                reply.parameters.remove(SERVER_PARAMETER);
                Outcome::Accepted(reply)
            }
            Err(refusal) => Outcome::Refused(refusal.trimmed()),
        };
        wire::encode_open_reply(&Proved {
            proof: None,
            message,
        })
    }
}
