//! Why a server said no: what travels, and what a person reads.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_KNOWN, TEXT_BYTES};
use crate::selection::NoCommonDevice;

/// The answer of a server that does not open a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many handshakes are under way as it allows.
    #[error("the server is busy with {limit} other handshakes, its limit; try again")]
    Busy {
        /// The limit, `max_pending` of the server.
        limit: u32,
    },
    /// It has a secret and the client has none.
    #[error("the server asks for a secret and the client has none")]
    SecretRequired,
    /// It has no secret and the client insists on one.
    #[error("the client has a secret and the server has none, so the server cannot prove itself")]
    SecretUnexpected,
    /// The client's secret is another one.
    #[error("the secret of the client is not the secret of the server")]
    WrongSecret,
    /// Nothing joins the two.
    #[error(transparent)]
    NoCommonDevice(NoCommonDevice),
    /// It is going away.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The client took too long.
    #[error("the client took longer than the server allows for a handshake")]
    TooSlow,
    /// What the client sent is not of this protocol.
    #[error("the server could not read what the client sent")]
    Malformed,
    /// It does not speak this preset.
    #[error("the server does not speak the preset `{asked}`; it speaks: {}", known.join(", "))]
    UnknownPreset {
        /// What the client asked for.
        asked: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A limit of the server is reached.
    #[error("the server's limit of {limit} {name} is reached")]
    Limit {
        /// Of what.
        name: String,
        /// How many.
        limit: u64,
    },
    /// Anything else, in words.
    #[error("the server refused: {message}")]
    Rejected {
        /// The words.
        message: String,
    },
    /// Something broke in the server.
    #[error("the server failed while it opened the connection; its log says why")]
    Failed,
    /// Its system has no more of something.
    #[error("the server has not enough {resource} for another client")]
    Exhausted {
        /// Of what: `memory`, `file descriptors`.
        resource: String,
    },
    /// The client's device has not told the server's in time that the client is its own.
    #[error("the client's device did not answer the server's; try again")]
    Unconfirmed,
    /// It speaks TLS alone and the client does not.
    #[error("the server speaks TLS alone and the client does not")]
    TlsRequired,
    /// The client speaks TLS and it does not.
    #[error("the client speaks TLS and the server has no certificate")]
    TlsUnexpected,
}

impl Refusal {
    /// Says what the system has no more of, if that is what an error of it says.
    pub fn exhausted(error: &std::io::Error) -> Option<Self> {
        use rustix::io::Errno;
        let resource = match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS) => "file descriptors",
            Some(Errno::NOMEM) => "memory",
            // A thread, for which there is no memory or no number.
            Some(Errno::AGAIN) => "memory or threads",
            _ if error.kind() == std::io::ErrorKind::OutOfMemory => "memory",
            _ => return None,
        };
        Some(Self::Exhausted {
            resource: resource.to_owned(),
        })
    }

    /// Says no in words of the caller.
    pub fn rejected(message: impl Into<String>) -> Self {
        Self::Rejected {
            message: message.into(),
        }
    }

    /// Cuts its texts to what a frame may carry.
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
