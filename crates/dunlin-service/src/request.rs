//! What travels with a message: metadata, and how long the call may take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::Peer;

use crate::MetadataMap;

/// A message and what travels with it to the server.
#[derive(Clone, Debug, Default)]
pub struct Request<T> {
    metadata: MetadataMap,
    /// Of a request that came: when its caller stops waiting.
    deadline: Option<Instant>,
    timeout: Option<Duration>,
    connection: u64,
    peer: Option<Arc<Peer>>,
    message: T,
}

impl<T> Request<T> {
    /// A message without anything else.
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

    /// The message, to change.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Metadata.
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// Metadata, to change.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// How long the call may take; the server learns of it. Without one it is the client's deadline, of which the
    /// server does not learn. A call that a handler makes ends no later than the call that it handles.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// At the server: when the caller stops waiting, if it has said so.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// At the server: which connection of it the request came by.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// At the server: who the caller is, as far as the handshake has shown it.
    pub fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// The same for another message.
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

    /// The sooner of what was set and of what the request itself has to keep.
    pub(crate) fn time_left(&self, now: Instant) -> Option<Duration> {
        let until = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        match (self.timeout, until) {
            (Some(timeout), Some(until)) => Some(timeout.min(until)),
            (timeout, until) => timeout.or(until),
        }
    }

    /// As one that has come.
    #[inline]
    pub(crate) fn receive(&mut self, connection: u64, peer: &Arc<Peer>) -> &mut T {
        self.connection = connection;
        // Mostly it is whom the last one came from: its count is left alone then.
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

/// A message and what travels with it to the client.
#[derive(Clone, Debug, Default)]
pub struct Response<T> {
    metadata: MetadataMap,
    message: T,
}

impl<T> Response<T> {
    /// A message without anything else.
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

    /// The message, to change.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Metadata.
    #[inline]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// Metadata, to change.
    #[inline]
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// The same for another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Response<U> {
        Response::with_metadata(change(self.message), self.metadata)
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}

/// What can be sent: a message, or a [`Request`] with one.
pub trait IntoRequest<T> {
    /// The request.
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

/// What can be sent as a stream: a stream of messages, or a [`Request`] with one.
pub trait IntoStreamingRequest {
    /// The stream.
    type Stream: futures_core::Stream<Item = Self::Message> + Send + 'static;
    /// What it brings.
    type Message;

    /// The request.
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
