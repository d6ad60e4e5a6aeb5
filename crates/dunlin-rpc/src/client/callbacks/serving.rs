//! The client's end: a server without a port, which the client's own server calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use dunlin_bootstrap::wire::{self, ClientOpen, Outcome, Proved};
use dunlin_bootstrap::{OpenRequest, Peer, Refusal};

use crate::call::callbacks::{Ask, Opened, Told};
use crate::client::Client;
use crate::error::{CallError, ServeError};
use crate::server::identity::SERVER_PARAMETER;
use crate::server::{LocalAcceptor, LocalServer, ServerStatistics};

/// A server of a client's, for calls by the server that the client is connected to. Made by
/// [`crate::ServerBuilder::serve_to`]. When the client's connection is lost it is made anew, and the client registered
/// again, until this is dropped or the client closed; the other side knows it as another
/// [`crate::CallableClient`] then. Dropping it ends it at once: the other side's calls end with an error.
///
/// It keeps the client's connection, also when all clones of the client are dropped.
#[derive(Debug)]
pub struct CallbackServer {
    serving: Arc<Serving>,
    local: LocalServer,
}

/// What the thread that keeps the client registered has of it.
#[derive(Debug)]
pub(crate) struct Serving {
    acceptor: LocalAcceptor,
    device: String,
    /// Who calls.
    peer: Peer,
    ending: AtomicBool,
    registered: AtomicBool,
    /// Its thread has ended, and the server was told.
    over: AtomicBool,
}

impl CallbackServer {
    /// Registers the client and keeps it so. `device` is the acceptor's.
    ///
    /// # Errors
    /// When the server does not call clients, or not this one, or calls it already.
    pub(crate) fn start(
        client: &Client,
        acceptor: LocalAcceptor,
        (device, peer): (String, Peer),
    ) -> Result<Self, ServeError> {
        let serving = Arc::new(Serving {
            acceptor: acceptor.clone(),
            device,
            peer,
            ending: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let local = LocalServer::new(acceptor);
        client.keep_callable(&serving)?;
        Ok(Self { serving, local })
    }

    /// Whether the server knows at the moment that it may call this client, as far as is known here.
    pub fn is_registered(&self) -> bool {
        self.serving.registered.load(Ordering::Acquire)
    }

    /// The server's connections now.
    pub fn connections(&self) -> usize {
        self.local.connections()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        self.local.statistics()
    }
}

impl Drop for CallbackServer {
    fn drop(&mut self) {
        self.serving.ending.store(true, Ordering::Release);
    }
}

impl Serving {
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Nobody will register the client any more.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn set_registered(&self, is_registered: bool) {
        self.registered.store(is_registered, Ordering::Release);
    }

    /// The call that stands for as long as the client is registered.
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

    /// Does what the server says, and what to ask it next.
    ///
    /// # Errors
    /// When it says nothing that this client knows.
    pub(crate) fn follow(&self, words: &[u8]) -> Result<Vec<u8>, CallError> {
        let unreadable = CallError::Unreadable;
        match Told::decode(words).map_err(unreadable)? {
            Told::Welcome => Ok(Self::next()),
            Told::Open { serial, request } => {
                let open = wire::parse_open(request);
                let open = open.map_err(|error| unreadable(error.to_string()))?;
                let ClientOpen::Open(request) = open.message else {
                    return Err(unreadable("callbacks: nothing is to be opened".to_owned()));
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
            false => self.acceptor.open(&request, self.peer.clone()),
        };
        let message = match outcome {
            Ok(mut reply) => {
                // It says which polling threads would wait for themselves; those of the other side are other ones.
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
