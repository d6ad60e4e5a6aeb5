//! The encoding of a failure that a server reports to a client.

use super::CallError;
use crate::memory::NoMemory;
use crate::HandlerId;

/// The payload of a [`crate::channel::message::Kind::Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WireFailure {
    /// The kind of failure; see [`WireFailure::into_call_error`].
    pub(crate) reason: FailureReason,
    /// A number whose meaning depends on the reason: handler id, limit, the handler's code.
    pub(crate) number: u32,
    /// A description for people.
    pub(crate) message: String,
}

/// Why a server did not answer with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureReason {
    UnknownHandler = 1,
    TooLong = 2,
    Overloaded = 3,
    ShuttingDown = 4,
    Handler = 5,
    Panicked = 6,
    UnknownRegion = 7,
    Expired = 8,
    Forbidden = 9,
}

/// Longest message of a failure in bytes: errors are not meant to carry data.
pub(super) const MESSAGE_BYTES: usize = 1000;

impl WireFailure {
    pub(crate) fn new(reason: FailureReason, number: u32, message: impl Into<String>) -> Self {
        Self {
            reason,
            number,
            message: message.into(),
        }
    }

    /// The failure of a call for which there is no memory.
    pub(crate) fn no_memory(error: NoMemory) -> Self {
        Self::new(FailureReason::Overloaded, 0, error.to_string())
    }

    /// Encodes the payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut end = self.message.len().min(MESSAGE_BYTES);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = vec![self.reason as u8];
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.message.as_bytes()[..end]);
        bytes
    }

    /// Decodes what a peer wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[reason, a, b, c, d], message) = bytes.split_first_chunk::<5>()?;
        let reason = match reason {
            1 => FailureReason::UnknownHandler,
            2 => FailureReason::TooLong,
            3 => FailureReason::Overloaded,
            4 => FailureReason::ShuttingDown,
            5 => FailureReason::Handler,
            6 => FailureReason::Panicked,
            7 => FailureReason::UnknownRegion,
            8 => FailureReason::Expired,
            9 => FailureReason::Forbidden,
            _ => return None,
        };
        let message = String::from_utf8_lossy(message).into_owned();
        Some(Self {
            reason,
            number: u32::from_le_bytes([a, b, c, d]),
            message,
        })
    }

    /// Converts it to the error that the caller receives.
    pub(crate) fn into_call_error(self) -> CallError {
        match self.reason {
            FailureReason::UnknownHandler => CallError::UnknownHandler(self.number as HandlerId),
            FailureReason::TooLong => CallError::TooLong {
                bytes: 0,
                limit: self.number as usize,
            },
            FailureReason::Overloaded => CallError::Overloaded(self.message),
            FailureReason::ShuttingDown => CallError::ShuttingDown,
            FailureReason::Handler => CallError::Handler {
                code: self.number,
                message: self.message,
            },
            FailureReason::Panicked => CallError::HandlerPanicked,
            FailureReason::Forbidden => CallError::Forbidden { why: self.message },
            FailureReason::Expired => CallError::Expired {
                begun: self.number != 0,
            },
            // The caller knows the name.
            FailureReason::UnknownRegion => CallError::UnknownRegion {
                name: String::new(),
                why: self.message,
            },
        }
    }
}
