//! The client's end of callbacks: a server without a port, which is called by the server that the client is connected
//! to.

use std::sync::Arc;

use dunlin_bootstrap::Peer;

use crate::client::{Client, Serving};
use crate::error::ServeError;
use crate::server::{LocalAcceptor, LocalServer, ServerStatistics};

/// A client's own server, for calls by the server that the client is connected to. Made by
/// [`crate::ServerBuilder::serve_to`]. When the client's connection is lost, it is made again and the client registered
/// again, until this is dropped or the client closed; on the other side the client is then a new
/// [`crate::CallableClient`]. Dropping this ends it at once: the other side's calls end with an error.
///
/// It keeps the client's connection open, even after all clones of the client are dropped.
#[derive(Debug)]
pub struct CallbackServer {
    serving: Arc<Serving>,
    local: LocalServer,
}

impl CallbackServer {
    /// Registers the client and keeps it registered. `device` is the acceptor's.
    ///
    /// # Errors
    /// If the server does not call clients, refuses this one, or calls it already.
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

    /// Whether the client is registered at the server at present, as far as this side knows.
    pub fn is_registered(&self) -> bool {
        self.serving.is_registered()
    }

    /// Number of connections of this server at present.
    pub fn connections(&self) -> usize {
        self.local.connections()
    }

    /// What this server has counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        self.local.statistics()
    }
}

impl Drop for CallbackServer {
    fn drop(&mut self) {
        self.serving.begin_to_end();
    }
}
