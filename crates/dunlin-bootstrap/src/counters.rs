//! How many handshakes ended how.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::certificate::TlsFailure;
use crate::refusal::Refusal;

/// How a handshake ended, seen by the server.
#[derive(Debug)]
pub(crate) enum Ending {
    Opened,
    Refused(Refusal),
    Version { theirs: u16 },
    Malformed,
    Tls(TlsFailure),
    TooSlow,
    Closed,
}

macro_rules! counters {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// How many handshakes an acceptor saw, by how they ended; those still under way are in `accepted` only.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$documentation])* pub $name: u64,)*
        }

        impl Counts {
            /// All of them with their names: `accepted`, `opened`, and how the others ended.
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// TCP connections taken.
    accepted,
    /// Connections opened: the reply is sent.
    opened,
    /// Had to make room for a newcomer: as many under way as `max_pending` allows.
    busy,
    /// Refused: the client has no secret.
    secret_required,
    /// Refused: the client has a secret and the server has none.
    secret_unexpected,
    /// Refused by either side: the secrets differ.
    wrong_secret,
    /// Refused: the client does not speak TLS and the server speaks nothing else, or the other way round.
    tls_required,
    /// Closed: TLS did not come about; a certificate was refused by either side, or is missing.
    tls_failed,
    /// Refused: nothing joins the two.
    no_common_device,
    /// Refused: the server is shutting down.
    shutting_down,
    /// Refused by the layer above, or it failed.
    refused,
    /// Closed: the client speaks another version.
    version,
    /// Closed: not Dunlin's protocol, or not well-formed, or over a limit.
    malformed,
    /// Closed: silent or slow for longer than `handshake_timeout`.
    too_slow,
    /// The client went away in the middle.
    closed,
    /// Connections that the system could not hand over, for want of file descriptors for instance.
    accept_failed,
}

impl Counters {
    pub(crate) fn count(&self, ending: &Ending) {
        let counter = match ending {
            Ending::Opened => &self.opened,
            Ending::Version { .. } => &self.version,
            Ending::Malformed => &self.malformed,
            Ending::Tls(_) => &self.tls_failed,
            Ending::TooSlow => &self.too_slow,
            Ending::Closed => &self.closed,
            Ending::Refused(refusal) => match refusal {
                Refusal::Busy { .. } => &self.busy,
                Refusal::SecretRequired => &self.secret_required,
                Refusal::SecretUnexpected => &self.secret_unexpected,
                Refusal::WrongSecret => &self.wrong_secret,
                Refusal::TlsRequired | Refusal::TlsUnexpected => &self.tls_required,
                Refusal::NoCommonDevice(_) => &self.no_common_device,
                Refusal::ShuttingDown => &self.shutting_down,
                Refusal::TooSlow => &self.too_slow,
                Refusal::Malformed => &self.malformed,
                _ => &self.refused,
            },
        };
        counter.fetch_add(1, Relaxed);
    }
}
