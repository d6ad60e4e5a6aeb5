//! Why a server refused: the transmitted value, and its text.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_KNOWN, TEXT_BYTES};
use crate::selection::NoCommonDevice;

/// The answer of a server that does not open a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The maximum number of handshakes is in progress.
    #[error("the server is busy with {limit} other handshakes, its limit; try again")]
    Busy {
        /// The limit, `max_pending` of the server.
        limit: u32,
    },
    /// The server has a secret, but the client has none.
    #[error("the server requires a secret, but the client has none")]
    SecretRequired,
    /// The server has no secret, but the client requires one.
    #[error("the client has a secret, but the server has none and so cannot prove its identity")]
    SecretUnexpected,
    /// The client's secret differs.
    #[error("the client's secret differs from the server's")]
    WrongSecret,
    /// The two sides have no common device.
    #[error(transparent)]
    NoCommonDevice(NoCommonDevice),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The client took too long.
    #[error("timed out: the client took longer than the server allows for a handshake")]
    TooSlow,
    /// The client's message is not valid.
    #[error("the server could not parse the client's message")]
    Malformed,
    /// The server does not support this preset.
    #[error("the server does not support the preset `{asked}`; it supports: {}", known.join(", "))]
    UnknownPreset {
        /// The requested preset.
        asked: String,
        /// The supported presets.
        known: Vec<String>,
    },
    /// A limit of the server is reached.
    #[error("limit reached: the server allows {limit} {name}")]
    Limit {
        /// The limited resource.
        name: String,
        /// The limit.
        limit: u64,
    },
    /// Another reason, as text.
    #[error("the server refused: {message}")]
    Rejected {
        /// The text.
        message: String,
    },
    /// An internal error of the server.
    #[error("the server failed to open the connection; see its log for the reason")]
    Failed,
    /// The server's system is out of a resource.
    #[error("the server does not have enough {resource} for another client")]
    Exhausted {
        /// The resource: `memory`, `file descriptors`.
        resource: String,
    },
    /// The client's device has not confirmed to the server's in time that the queue pair is the client's own.
    #[error("the client's device did not respond to the server's; try again")]
    Unconfirmed,
    /// The server requires TLS, but the client does not use it.
    #[error("the server requires TLS, but the client does not use it")]
    TlsRequired,
    /// The client uses TLS, but the server does not.
    #[error("the client uses TLS, but the server has no certificate")]
    TlsUnexpected,
}

impl Refusal {
    /// Returns the resource that the system is out of, if that is the meaning of its error.
    pub fn exhausted(error: &std::io::Error) -> Option<Self> {
        use rustix::io::Errno;
        let resource = match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS) => "file descriptors",
            Some(Errno::NOMEM) => "memory",
            // A thread for which there is no memory or no id.
            Some(Errno::AGAIN) => "memory or threads",
            _ if error.kind() == std::io::ErrorKind::OutOfMemory => "memory",
            _ => return None,
        };
        Some(Self::Exhausted {
            resource: resource.to_owned(),
        })
    }

    /// Creates a refusal with the caller's text.
    pub fn rejected(message: impl Into<String>) -> Self {
        Self::Rejected {
            message: message.into(),
        }
    }

    /// Truncates the texts to what a frame may carry.
    pub fn trimmed(mut self) -> Self {
        let trim = |text: &mut String| {
            let clean = text
                .chars()
                .map(|letter| if letter.is_control() { ' ' } else { letter });
            let mut length = 0;
            *text = clean
                .take_while(|letter| {
                    length += letter.len_utf8();
                    length <= TEXT_BYTES
                })
                .collect();
        };
        match &mut self {
            Self::UnknownPreset { asked, known } => {
                known.truncate(MAX_KNOWN);
                known.iter_mut().for_each(trim);
                trim(asked);
            }
            Self::Limit { name, .. } => trim(name),
            Self::Rejected { message } => trim(message),
            _ => {}
        }
        self
    }
}
