//! Whose a connection is, and what it may do: looked up once, when the connection is made.

use std::sync::{Arc, Weak};

use dunlin_bootstrap::Peer;
use dunlin_verbs::{Access, EndpointAddress};

use super::callbacks::{CallableClient, CallableClients};
use super::rights::{Granted, RightsTable};
use crate::error::{FailureReason, WireFailure};
use crate::HandlerId;

/// See the module. Clones are the same.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Inner>);

/// How a connection came to its server.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The server's device that it is over.
    pub(crate) device: String,
    /// Where the client's end is.
    pub(crate) endpoint: Option<EndpointAddress>,
    /// The clients that the server calls, if it calls any.
    pub(crate) callable: Option<CallableClients>,
}

struct Inner {
    peer: Arc<Peer>,
    arrival: Arrival,
    granted: Option<(Granted, Arc<RightsTable>)>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Caller").field(&self.0.peer).finish()
    }
}

/// Whether the connection is still there that a request came by: [`super::Request::presence`]. A server notices within
/// a moment that a client's process has ended, and after some time that its host has. Requests that are being executed
/// hold their connection there.
#[derive(Clone, Debug)]
pub struct Presence(Weak<Inner>);

impl Presence {
    /// Whether it is.
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Caller {
    /// Of a server with these rights, if it has any.
    pub(super) fn new(peer: Peer, rights: Option<&Arc<RightsTable>>, arrival: Arrival) -> Self {
        let granted = rights.map(|rights| (rights.of(&peer), Arc::clone(rights)));
        let peer = Arc::new(peer);
        Self(Arc::new(Inner {
            peer,
            arrival,
            granted,
        }))
    }

    pub(crate) fn arrival(&self) -> &Arrival {
        &self.0.arrival
    }

    /// The way back to the client, if it has registered for being called.
    pub(super) fn callable(&self) -> Option<CallableClient> {
        self.arrival().callable.as_ref()?.find(self.peer())
    }

    #[inline]
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.0.peer
    }

    pub(super) fn presence(&self) -> Presence {
        Presence(Arc::downgrade(&self.0))
    }

    /// What it may do, where that is less than everything.
    #[inline]
    pub(super) fn granted(&self) -> Option<&Granted> {
        self.0.granted.as_ref().map(|(granted, _)| granted)
    }

    #[inline]
    pub(super) fn may_call(&self, id: HandlerId) -> bool {
        self.granted().is_none_or(|granted| granted.may_call(id))
    }

    /// What of a region's access it has; `None`: all.
    pub(super) fn access(&self, region: &[u8]) -> Option<Access> {
        self.granted().map(|granted| granted.access(region))
    }

    fn refusal(&self, number: u32, what: &str) -> WireFailure {
        let message = format!("{} has no right to {what}", self.0.peer);
        tracing::debug!(%message, "a client was refused");
        WireFailure::new(FailureReason::Forbidden, number, message)
    }

    /// What it hears of a call that it may not make.
    #[cold]
    pub(super) fn refuse_call(&self, id: HandlerId) -> WireFailure {
        let rights = self.0.granted.as_ref().map(|(_, rights)| rights);
        let name = rights.map_or_else(|| format!("handler {id}"), |rights| rights.name(id));
        self.refusal(id.into(), &format!("call {name}"))
    }

    /// What it hears that tells of what it has no right to do.
    #[cold]
    pub(super) fn refuse_notice(&self, region: &[u8]) -> WireFailure {
        let name = String::from_utf8_lossy(region);
        self.refusal(0, &format!("write the region '{name}'"))
    }

    /// What it hears of a region that it has no right to.
    #[cold]
    pub(super) fn refuse_region(&self, region: &[u8]) -> WireFailure {
        let name = String::from_utf8_lossy(region);
        let what = format!("read, write or do atomics on the region '{name}'");
        self.refusal(0, &what)
    }
}
