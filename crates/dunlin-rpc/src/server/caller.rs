//! The client behind a connection, and its rights: determined once, when the connection is made.

use std::sync::{Arc, Weak};

use dunlin_bootstrap::Peer;
use dunlin_verbs::{Access, EndpointAddress};

use super::callbacks::{CallableClient, CallableClients};
use super::rights::{Granted, RightsTable};
use crate::error::{FailureReason, WireFailure};
use crate::HandlerId;

/// See the module. Clones are the same caller.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Inner>);

/// How a connection reached its server.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The server's device that it uses.
    pub(crate) device: String,
    /// The address of the client's end.
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

/// Tells whether the connection on which a request arrived still exists: [`super::Request::presence`]. A server notices
/// almost at once that a client's process has ended, and after some time that its host has failed. Requests that are
/// being executed keep their connection in existence.
#[derive(Clone, Debug)]
pub struct Presence(Weak<Inner>);

impl Presence {
    /// Whether the connection still exists.
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Caller {
    /// Makes the caller for a connection of a server with these rights, if it has any.
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

    /// The client, for calling it, if it has registered to be called.
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

    /// The caller's rights, if they are restricted.
    #[inline]
    pub(super) fn granted(&self) -> Option<&Granted> {
        self.0.granted.as_ref().map(|(granted, _)| granted)
    }

    #[inline]
    pub(super) fn may_call(&self, id: HandlerId) -> bool {
        self.granted().is_none_or(|granted| granted.may_call(id))
    }

    /// The access that the caller has to a region; `None` means all.
    pub(super) fn access(&self, region: &[u8]) -> Option<Access> {
        self.granted().map(|granted| granted.access(region))
    }

    fn refusal(&self, number: u32, what: &str) -> WireFailure {
        let message = format!("{} has no right to {what}", self.0.peer);
        tracing::debug!(%message, "refused a client");
        WireFailure::new(FailureReason::Forbidden, number, message)
    }

    /// The error for a call that it may not make.
    #[cold]
    pub(super) fn refuse_call(&self, id: HandlerId) -> WireFailure {
        let rights = self.0.granted.as_ref().map(|(_, rights)| rights);
        let name = rights.map_or_else(|| format!("handler {id}"), |rights| rights.name(id));
        self.refusal(id.into(), &format!("call {name}"))
    }

    /// The error for a notification without the right to write the region.
    #[cold]
    pub(super) fn refuse_notice(&self, region: &[u8]) -> WireFailure {
        let name = String::from_utf8_lossy(region);
        self.refusal(0, &format!("write the region '{name}'"))
    }

    /// The error for a region that it may not attach.
    #[cold]
    pub(super) fn refuse_region(&self, region: &[u8]) -> WireFailure {
        let name = String::from_utf8_lossy(region);
        let what = format!("read, write or perform atomics on the region '{name}'");
        self.refusal(0, &what)
    }
}
