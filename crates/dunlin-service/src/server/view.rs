//! Handlers that read a request in place and write the answer directly into the memory it is sent from, without a
//! message in between.

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

/// The metadata of a request without a header.
static NO_METADATA: MetadataMap = MetadataMap::new();

/// A request of a method, lent while its handler runs.
#[derive(Debug)]
pub struct RequestView<'a, M> {
    bytes: &'a [u8],
    metadata: &'a MetadataMap,
    deadline: Option<Instant>,
    connection: u64,
    peer: &'a Arc<Peer>,
    method: PhantomData<fn(M)>,
}

/// The view of requests in a method's codec.
type ViewOf<'a, M> = <<M as Method>::Codec as Views<<M as Method>::Request>>::View<'a>;

impl<'a, M: Method> RequestView<'a, M> {
    /// A view of the message, in place. It is decoded anew each time.
    ///
    /// # Errors
    /// `InvalidArgument` if the bytes are not a message of the method; a handler may return it with `?`.
    #[inline]
    pub fn view(&self) -> Result<ViewOf<'a, M>, Status>
    where
        M::Codec: Views<M::Request>,
    {
        M::Codec::view(self.bytes).map_err(|error| unary::malformed::<M>(&error.to_string()))
    }

    /// Decodes the message into memory of its own.
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

    /// When the caller stops waiting, if it sent a deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The server's number of the connection on which the request arrived.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// The identity of the caller, as far as the handshake has established it.
    pub fn peer(&self) -> &'a Arc<Peer> {
        self.peer
    }
}

/// The destination of the answer to a request; written once.
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

/// Shows that a handler has written its answer. If the handler then returns a status, that is sent instead.
#[derive(Debug)]
#[must_use = "the handler must return it"]
pub struct Sent(Result<(), HandlerError>);

/// Runs a handler.
///
/// # Errors
/// An error of the responder.
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

/// Out of line, as is everything that few requests need: the rest is then short enough to be inlined around the
/// handler.
#[cold]
#[inline(never)]
fn release(header: Box<Header>) {
    drop(header);
}
