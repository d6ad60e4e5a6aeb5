//! Handlers that read a request where it stands and write the answer where it leaves from: no message in between has
//! memory of its own.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use dunlin::{HandlerError, Peer, Responder};

use super::unary::{self, Room};
use crate::codec::{Codec, FormOf, Views};
use crate::context::Inherited;
use crate::method::Method;
use crate::observer::Observer;
use crate::wire::Header;
use crate::{MetadataMap, Status};

/// What a request without a header has.
static NO_METADATA: MetadataMap = MetadataMap::new();

/// A request of a method, lent for as long as its handler runs.
#[derive(Debug)]
pub struct RequestView<'a, M> {
    bytes: &'a [u8],
    metadata: &'a MetadataMap,
    deadline: Option<Instant>,
    connection: u64,
    peer: &'a Arc<Peer>,
    method: PhantomData<fn(M)>,
}

/// What a view of requests is for a codec.
type ViewOf<'a, M> = <<M as Method>::Codec as Views<<M as Method>::Request>>::View<'a>;

impl<'a, M: Method> RequestView<'a, M> {
    /// The message as it stands there. Each time it is read anew.
    ///
    /// # Errors
    /// `InvalidArgument` when the bytes are no message of the method: what a handler answers with `?`.
    #[inline]
    pub fn view(&self) -> Result<ViewOf<'a, M>, Status>
    where
        M::Codec: Views<M::Request>,
    {
        M::Codec::view(self.bytes).map_err(|error| unary::malformed::<M>(&error.to_string()))
    }

    /// The message, with memory of its own.
    ///
    /// # Errors
    /// As for [`RequestView::view`].
    pub fn message(&self) -> Result<M::Request, Status> {
        let mut message = M::Request::default();
        M::Codec::decode_into(&mut message, self.bytes)
            .map_err(|error| unary::malformed::<M>(&error.to_string()))?;
        Ok(message)
    }

    /// Metadata.
    pub fn metadata(&self) -> &'a MetadataMap {
        self.metadata
    }

    /// When the caller stops waiting, if it has said so.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Which connection of the server it came by.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Who the caller is, as far as the handshake has shown it.
    pub fn peer(&self) -> &'a Arc<Peer> {
        self.peer
    }
}

/// Where the answer to a request is written, once.
pub struct Reply<'a, M> {
    room: &'a mut (dyn Room + 'a),
    method: PhantomData<fn(M)>,
}

impl<M> std::fmt::Debug for Reply<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl<M: Method> Reply<'_, M> {
    /// Writes a response, or a view of one.
    #[inline]
    pub fn send(self, message: &(impl FormOf<M::Response, M::Codec> + ?Sized)) -> Sent {
        self.send_with(message, &NO_METADATA)
    }

    /// Writes a response with metadata.
    #[inline]
    pub fn send_with(
        self,
        message: &(impl FormOf<M::Response, M::Codec> + ?Sized),
        metadata: &MetadataMap,
    ) -> Sent {
        Sent(unary::write_message::<M>(self.room, message, metadata))
    }
}

/// A handler has written its answer. A status that it returns after that goes instead.
#[derive(Debug)]
#[must_use = "the handler returns it"]
pub struct Sent(Result<(), HandlerError>);

/// Runs a handler.
///
/// # Errors
/// What the responder says.
#[inline]
pub(super) fn serve<M: Method>(
    request: &dunlin::Request<'_>,
    responder: &mut Responder<'_>,
    observer: &Observer,
    handler: &impl Fn(RequestView<'_, M>, Reply<'_, M>) -> Result<Sent, Status>,
) -> Result<(), HandlerError> {
    let (header, bytes) = match unary::read::<M>(request.payload()) {
        Ok(read) => read,
        Err(answer) => return responder.write(&answer),
    };
    let deadline = header.as_ref().and_then(|header| header.deadline());
    let metadata = header
        .as_ref()
        .map_or(&NO_METADATA, |header| &header.metadata);
    let asked = RequestView {
        bytes,
        metadata,
        deadline,
        connection: request.connection(),
        peer: request.peer(),
        method: PhantomData,
    };
    let mut inherited = header.as_ref().map(|_| Inherited::of(metadata, deadline));
    let mut observed = observer.server(M::PATH, metadata, &mut inherited);
    let ended = {
        let _current = observed.enter();
        let _entered = inherited.map(Inherited::enter);
        let reply = Reply {
            room: responder,
            method: PhantomData,
        };
        handler(asked, reply)
    };
    observed.end(ended.as_ref().err());
    if let Some(header) = header {
        release(header);
    }
    match ended {
        Ok(Sent(written)) => written,
        Err(status) => unary::refuse(responder, &status),
    }
}

/// Out of line, as all that few requests need: the rest is short enough to stand around the handler then.
#[cold]
#[inline(never)]
fn release(header: Box<Header>) {
    drop(header);
}
