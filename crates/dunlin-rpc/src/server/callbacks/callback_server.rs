//! The client's end: a server without a port, which the client's own server calls.

use std::sync::Arc;

use dunlin_bootstrap::Peer;

use crate::client::{Client, Serving};
use crate::error::ServeError;
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
        let opens = acceptor.clone();
        let open = move |request: &_| opens.open(request, peer.clone());
        let serving = Arc::new(Serving::new(device, open));
        let local = LocalServer::new(acceptor);
        client.keep_callable(&serving)?;
        Ok(Self { serving, local })
    }

    /// Whether the server knows at the moment that it may call this client, as far as is known here.
    pub fn is_registered(&self) -> bool {
        self.serving.is_registered()
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
        self.serving.begin_to_end();
    }
}
