//! A call as it was captured, and how it travels to whoever asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{versioned, HandlerId};

/// The handler that answers with [`CapturedCalls`]; servers cannot give this id to a handler of their own.
pub const CAPTURE: HandlerId = HandlerId::MAX - 4;

/// Of a question and of an answer.
const VERSION: u8 = 1;

/// One call, as its server's handler saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CapturedCall {
    /// Calls of a server are numbered from 0 in the order in which they ended, while somebody captures.
    pub number: u64,
    /// When the handler began, since 1970 by the server's clock.
    pub began: Duration,
    /// From then until its answer was handed over.
    pub took: Duration,
    /// The server's number of the connection.
    pub connection: u64,
    /// Who called, as far as the handshake has shown it.
    pub peer: String,
    /// The id that was called.
    pub handler: HandlerId,
    /// Its name; empty if it has none.
    pub name: String,
    /// Bytes of the whole request.
    pub request_bytes: u64,
    /// The request, or as much of its beginning as was asked for.
    pub request: Vec<u8>,
    /// How it ended.
    pub end: CallEnd,
    /// Bytes of the whole answer; zero without one.
    pub answer_bytes: u64,
    /// The answer, or the words of the error; or as much of the beginning as was asked for.
    pub answer: Vec<u8>,
}

/// How a captured call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CallEnd {
    /// With an answer.
    #[default]
    Answered,
    /// With the handler's error of this code.
    Failed(u32),
    /// The handler panicked.
    Panicked,
    /// Nobody waited any more: the handler was dropped, or not run.
    Cancelled,
}

/// What a server shows at once of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CapturedCalls {
    /// In the order in which they ended.
    pub calls: Vec<CapturedCall>,
    /// Calls before these that the server had to let go, because nobody asked in time.
    pub missed: u64,
    /// The number to ask for next.
    pub(crate) next: u64,
}

impl CapturedCalls {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        versioned::encode(VERSION, self)
    }

    /// Reads an answer, which a stranger may have written.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        versioned::decode(VERSION, bytes, "captured calls")
    }
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The first call that is wanted; `None`: those from now on.
    pub(crate) from: Option<u64>,
    /// How much of each payload.
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
