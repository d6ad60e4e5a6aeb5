//! Counts of handshakes by how they ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::certificate::TlsFailure;
use crate::refusal::Refusal;

/// How a handshake ended, from the server's point of view.
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
        /// Number of handshakes of an acceptor, by how they ended; those still in progress are only in `accepted`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$documentation])* pub $name: u64,)*
        }

        impl Counts {
            /// Returns all counts with their names: `accepted`, `opened`, and the other endings.
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
    /// TCP connections accepted.
    accepted,
    /// Connections opened: the reply has been sent.
    opened,
    /// Displaced by a newcomer: `max_pending` handshakes were in progress.
    busy,
    /// Refused: the client has no secret.
    secret_required,
    /// Refused: the client has a secret and the server has none.
    secret_unexpected,
    /// Refused by either side: the secrets differ.
    wrong_secret,
    /// Refused: the client does not use TLS and the server requires it, or vice versa.
    tls_required,
    /// Closed: TLS could not be established; a certificate is missing, or was refused by either side.
    tls_failed,
    /// Refused: there is no common device.
    no_common_device,
    /// Refused: the server is shutting down.
    shutting_down,
    /// Refused by the layer above, or it failed.
    refused,
    /// Closed: the client uses another version.
    version,
    /// Closed: not Dunlin's protocol, malformed, or over a limit.
    malformed,
    /// Closed: silent or slow for longer than `handshake_timeout`.
    too_slow,
    /// The client disconnected during the handshake.
    closed,
    /// Connections that the system could not accept, for example for lack of file descriptors.
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
