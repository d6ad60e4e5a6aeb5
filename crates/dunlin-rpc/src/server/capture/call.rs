//! A call as it was captured, and how it travels to whoever asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::HandlerId;

/// The first byte of a question and of an answer. Who knows another version says so instead of guessing.
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
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        postcard::to_extend(self, vec![VERSION]).map_err(|error| error.to_string())
    }

    /// Reads an answer, which a stranger may have written.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        decode(bytes)
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
        postcard::to_extend(self, vec![VERSION]).map_err(|error| error.to_string())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        decode(bytes)
    }
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|error| format!("captured calls: {error}"))
        }
        Some((version, _)) => Err(format!(
            "captured calls of version {version}; here version {VERSION} is read"
        )),
        None => Err("captured calls: it is empty".into()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_of_another_version_is_refused_with_words() {
        let calls = CapturedCalls {
            calls: vec![CapturedCall {
                request: vec![1, 2, 3],
                end: CallEnd::Failed(7),
                ..CapturedCall::default()
            }],
            missed: 1,
            next: 3,
        };
        let mut bytes = calls.encode().unwrap();
        assert_eq!(CapturedCalls::decode(&bytes), Ok(calls));
        for cut in 0..bytes.len() {
            assert!(CapturedCalls::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 9;
        let words = CapturedCalls::decode(&bytes).unwrap_err();
        assert!(words.contains("version 9") && words.contains("version 1"));
    }
}
