//! Requests and responses: a message, its metadata, and for requests a timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::Peer;

use crate::MetadataMap;

/// A message and its metadata, for the server.
#[derive(Clone, Debug, Default)]
pub struct Request<T> {
    metadata: MetadataMap,
    /// For a received request: when its caller stops waiting.
    deadline: Option<Instant>,
    timeout: Option<Duration>,
    connection: u64,
    peer: Option<Arc<Peer>>,
    message: T,
}

impl<T> Request<T> {
    /// Creates a request without metadata or timeout.
    pub const fn new(message: T) -> Self {
        Self {
            metadata: MetadataMap::new(),
            deadline: None,
            timeout: None,
            connection: 0,
            peer: None,
            message,
        }
    }

    /// The message.
    #[inline]
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, mutable.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// Returns the message and drops the rest.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The metadata.
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The metadata, mutable.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// Limits the time that the call may take; the limit is sent to the server. Without one the client's deadline
    /// applies, which is not sent to the server. A call made by a handler ends no later than the call being handled.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// At the server: when the caller stops waiting, if it sent a deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// At the server: the number of the connection on which the request arrived.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// At the server: the identity of the caller, as far as the handshake has established it.
    pub fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// Replaces the message, keeping the rest.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Request<U> {
        Request {
            metadata: self.metadata,
            deadline: self.deadline,
            timeout: self.timeout,
            connection: self.connection,
            peer: self.peer,
            message: change(self.message),
        }
    }

    /// The time left until the earlier of the timeout that was set and the deadline of a received request.
    pub(crate) fn time_left(&self, now: Instant) -> Option<Duration> {
        let until = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        match (self.timeout, until) {
            (Some(timeout), Some(until)) => Some(timeout.min(until)),
            (timeout, until) => timeout.or(until),
        }
    }

    /// Marks the request as received on this connection from this peer.
    #[inline]
    pub(crate) fn receive(&mut self, connection: u64, peer: &Arc<Peer>) -> &mut T {
        self.connection = connection;
        // Usually it is the same peer as for the last request; its reference count is then left unchanged.
        if self
            .peer
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, peer))
        {
            self.peer = Some(Arc::clone(peer));
        }
        self.deadline = None;
        self.timeout = None;
        self.metadata.clear();
        &mut self.message
    }

    pub(crate) fn set_header(&mut self, metadata: MetadataMap, deadline: Option<Instant>) {
        self.metadata = metadata;
        self.deadline = deadline;
    }

    pub(crate) fn has_header(&self) -> bool {
        !self.metadata.is_empty() || self.deadline.is_some() || self.timeout.is_some()
    }
}

/// A message and its metadata, for the client.
#[derive(Clone, Debug, Default)]
pub struct Response<T> {
    metadata: MetadataMap,
    message: T,
}

impl<T> Response<T> {
    /// Creates a response without metadata.
    pub const fn new(message: T) -> Self {
        Self::with_metadata(message, MetadataMap::new())
    }

    pub(crate) const fn with_metadata(message: T, metadata: MetadataMap) -> Self {
        Self { metadata, message }
    }

    /// The message.
    #[inline]
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, mutable.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// Returns the message and drops the rest.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The metadata.
    #[inline]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The metadata, mutable.
    #[inline]
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// Replaces the message, keeping the metadata.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Response<U> {
        Response::with_metadata(change(self.message), self.metadata)
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}

/// Types that can be sent as a request: a message, or a [`Request`] with one.
pub trait IntoRequest<T> {
    /// Converts to a request.
    fn into_request(self) -> Request<T>;
}

impl<T> IntoRequest<T> for T {
    fn into_request(self) -> Request<T> {
        Request::new(self)
    }
}

impl<T> IntoRequest<T> for Request<T> {
    fn into_request(self) -> Request<T> {
        self
    }
}

/// Types that can be sent as a stream of requests: a stream of messages, or a [`Request`] with one.
pub trait IntoStreamingRequest {
    /// The type of the stream.
    type Stream: futures_core::Stream<Item = Self::Message> + Send + 'static;
    /// The type of its messages.
    type Message;

    /// Converts to a request.
    fn into_streaming_request(self) -> Request<Self::Stream>;
}

impl<S: futures_core::Stream + Send + 'static> IntoStreamingRequest for S {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Request<S> {
        Request::new(self)
    }
}

impl<S: futures_core::Stream + Send + 'static> IntoStreamingRequest for Request<S> {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Request<S> {
        self
    }
}
