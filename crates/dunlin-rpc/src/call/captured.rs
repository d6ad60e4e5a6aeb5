//! A captured call, and the protocol by which clients request captured calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{versioned, HandlerId};

/// The handler that answers with [`CapturedCalls`]; servers cannot use this id for a handler of their own.
pub const CAPTURE: HandlerId = HandlerId::MAX - 4;

/// Version of requests and answers.
const VERSION: u8 = 1;

/// A call as the server's handler saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CapturedCall {
    /// The number of the call: calls of a server are numbered from 0 in the order in which they ended, while any client
    /// captures.
    pub number: u64,
    /// When the handler started, since 1970 by the server's clock.
    pub began: Duration,
    /// The time from then until its response was handed over.
    pub took: Duration,
    /// The server's number for the connection.
    pub connection: u64,
    /// The caller's identity, as far as the handshake has established it.
    pub peer: String,
    /// The id of the handler.
    pub handler: HandlerId,
    /// The handler's name; empty if it has none.
    pub name: String,
    /// Length of the whole request in bytes.
    pub request_bytes: u64,
    /// The request, or as much of its beginning as was requested.
    pub request: Vec<u8>,
    /// How it ended.
    pub end: CallEnd,
    /// Length of the whole response in bytes; zero if there is none.
    pub answer_bytes: u64,
    /// The response or the text of the error, or as much of the beginning as was requested.
    pub answer: Vec<u8>,
}

/// How a captured call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CallEnd {
    /// With a response.
    #[default]
    Answered,
    /// With an error of the handler, with this code.
    Failed(u32),
    /// The handler panicked.
    Panicked,
    /// The caller no longer waited: the handler was dropped, or not run.
    Cancelled,
}

/// An answer of a server with captured calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CapturedCalls {
    /// The calls in the order in which they ended.
    pub calls: Vec<CapturedCall>,
    /// Number of calls before these that the server had to discard because they were not fetched in time.
    pub missed: u64,
    /// The number to request next.
    pub(crate) next: u64,
}

impl CapturedCalls {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        versioned::encode(VERSION, self)
    }

    /// Decodes an answer from an untrusted peer.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        versioned::decode(VERSION, bytes, "captured calls")
    }
}

/// A request for captured calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The number of the first call wanted; `None` for the calls from now on.
    pub(crate) from: Option<u64>,
    /// Number of bytes wanted of each payload.
    pub(crate) snap: u32,
}

impl Asked {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        versioned::encode(VERSION, self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        versioned::decode(VERSION, bytes, "captured calls")
    }
}
