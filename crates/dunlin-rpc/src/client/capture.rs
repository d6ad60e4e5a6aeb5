//! Capturing all calls of a server that allows it.

use super::Client;
use crate::call::captured::{Asked, CapturedCalls, CAPTURE};
use crate::error::CallError;

/// A capture started by [`Client::capture`]. The server keeps some megabytes of calls for capturing clients, and none
/// for a client that has not polled for five seconds: poll several times a second.
#[derive(Debug)]
pub struct Capture {
    client: Client,
    snap_bytes: u32,
    next: u64,
}

impl Capture {
    pub(super) fn begin(client: Client, snap_bytes: u32) -> Result<Self, CallError> {
        let mut capture = Self {
            client,
            snap_bytes,
            next: 0,
        };
        capture.ask(None)?;
        Ok(capture)
    }

    /// Returns the calls that have ended since the last request: none, or the first of them, as many as fit into one
    /// answer.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn next_calls(&mut self) -> Result<CapturedCalls, CallError> {
        self.ask(Some(self.next))
    }

    fn ask(&mut self, from: Option<u64>) -> Result<CapturedCalls, CallError> {
        let asked = Asked {
            from,
            snap: self.snap_bytes,
        };
        let question = asked.encode().map_err(CallError::Unreadable)?;
        let answer = self.client.call(CAPTURE, &question)?;
        let calls = CapturedCalls::decode(&answer).map_err(CallError::Unreadable)?;
        self.next = calls.next;
        Ok(calls)
    }
}
