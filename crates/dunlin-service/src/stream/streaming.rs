//! The reading end of a stream.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::mux::{News, Side};
use super::pump;
use super::session::Session;
use crate::codec::{Codec, DecodeError, Encode};
use crate::observer::Observed;
use crate::tasks::block_on;
use crate::{Code, MetadataMap, Status};

/// A stream of received messages. Dropping it at the client cancels the call and stops its handler; dropping it at the
/// server discards what the client still sends.
#[must_use = "dropping it ends the stream"]
pub struct Streaming<T> {
    session: Arc<Session>,
    id: u64,
    side: Side,
    decode: fn(&mut T, &[u8]) -> Result<(), DecodeError>,
    ended: bool,
    trailers: Option<MetadataMap>,
    /// At the client only.
    observed: Observed,
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming")
            .field("stream", &self.id)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl<T: Default> Streaming<T> {
    pub(crate) fn new<C: Codec<T>>(session: Arc<Session>, id: u64, side: Side) -> Self {
        Self {
            session,
            id,
            side,
            decode: C::decode_into,
            ended: false,
            trailers: None,
            observed: Observed::default(),
        }
    }

    /// Sets the observer of the stream's end.
    pub(crate) fn observed(mut self, observed: Observed) -> Self {
        self.observed = observed;
        self
    }

    fn end(&mut self, status: Option<&Status>) {
        self.ended = true;
        self.observed.end(status);
    }

    /// Returns the next message; `None` if there are no more.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        poll_fn(|context| self.poll_message(context))
            .await
            .transpose()
    }

    /// Sends the only request of a client.
    pub(crate) fn say<R, C: Encode<R>>(&self, request: &R) -> Result<(), Status> {
        pump::send::<R, C>(&self.session, self.id, request)?;
        self.session.with(|mux| mux.half_close(self.id));
        Ok(())
    }

    /// Returns the metadata received with the end, once the end has been read.
    pub fn trailers(&mut self) -> Option<MetadataMap> {
        self.trailers.take()
    }

    /// Converts to a stream for blocking threads.
    pub fn blocking(self) -> BlockingStreaming<T> {
        BlockingStreaming(self)
    }

    /// Returns the head that precedes the server's first message, or the end if there is none.
    pub(crate) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<MetadataMap, Status>> {
        match self.session.with(|mux| mux.next(self.id, context.waker())) {
            None => Poll::Pending,
            Some(News::Head(metadata)) => Poll::Ready(Ok(metadata)),
            Some(News::End(status)) if status.code() != Code::Ok => {
                self.end(Some(&status));
                Poll::Ready(Err(status))
            }
            Some(_) => {
                let status = Status::internal("the server's stream has no head");
                self.end(Some(&status));
                Poll::Ready(Err(status))
            }
        }
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Status>>> {
        while !self.ended {
            match self.session.with(|mux| mux.next(self.id, context.waker())) {
                None => return Poll::Pending,
                Some(News::Head(_)) => {}
                Some(News::Message(bytes)) => {
                    let mut message = T::default();
                    let decoded = (self.decode)(&mut message, &bytes);
                    let decoded = decoded.map(|()| message);
                    return Poll::Ready(Some(decoded.map_err(|error| {
                        let words = format!("malformed message in the stream: {error}");
                        let status = Status::internal(words);
                        self.end(Some(&status));
                        status
                    })));
                }
                Some(News::End(status)) => {
                    if status.code() != Code::Ok {
                        self.end(Some(&status));
                        return Poll::Ready(Some(Err(status)));
                    }
                    self.end(None);
                    self.trailers = Some(status.metadata().clone());
                }
            }
        }
        Poll::Ready(None)
    }
}

impl<T: Default> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_message(context)
    }
}

impl<T> Drop for Streaming<T> {
    fn drop(&mut self) {
        self.session.with(|mux| match self.side {
            Side::Client => mux.release(self.id),
            Side::Server => mux.stop_reading(self.id),
        });
    }
}

/// [`Streaming`] for blocking threads.
#[derive(Debug)]
pub struct BlockingStreaming<T>(Streaming<T>);

impl<T: Default> Iterator for BlockingStreaming<T> {
    type Item = Result<T, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.message()).transpose()
    }
}
