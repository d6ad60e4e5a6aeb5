//! The bootstrap: the TCP handshake behind `dunlin://host:port`.
//!
//! It comes before the first message, of calls and of streams alike: two processes that know nothing of each other but
//! an address agree on a version, prove to each other that they know the secret (when one is configured), pick the best
//! device both have, and exchange the addresses of their queue pairs together with a few numbers. Then TCP is closed,
//! and the device takes over.
//!
//! ```text
//! client                                                      server
//!   hello: version, nonce, devices, preference  ---------->
//!                                               <----------     hello: version, nonce, chosen device, proof
//!   open: proof, queue pair address, numbers    ---------->
//!                                               <----------     reply: proof, queue pair address, numbers
//! ```
//!
//! What a stranger can cost is bounded: the size of a frame, the entries and names in it, the time of a handshake and
//! the number of handshakes under way; whoever keeps the server waiting makes room for newcomers ([`AcceptorConfig`]).
//! The secret itself is never sent; the proofs are HMAC-SHA256 over everything both sides said, so nobody in between
//! can change a byte unnoticed. They do not hide what is said, and a guessable secret can be guessed offline by whoever
//! listens: use a random one. With the feature `tls` all of it can run inside TLS 1.3, which hides it and shows who
//! both sides are, by certificates ([`ServerTls`], [`ClientTls`]); what a server knows of a client is a [`Peer`].
#![forbid(unsafe_code)]

mod acceptor;
mod address;
mod certificate;
mod checks;
mod config;
mod counters;
mod dial;
mod dialed;
mod error;
mod handshake;
mod host;
mod limits;
mod message;
mod openers;
mod opening;
mod parse_error;
mod pauses;
mod peer;
mod pending;
mod port;
mod prefix;
mod refusal;
mod resolve;
mod secret;
mod selection;
mod serving;
mod stop;
mod stream;
mod time;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod transport;
pub mod wire;

pub use acceptor::Acceptor;
pub use address::{Address, AddressError, DEFAULT_PORT};
pub use certificate::CertificateFault;
pub use config::{AcceptorConfig, DialConfig};
pub use counters::Counts;
pub use dial::{dial, dial_until, look_up};
pub use dialed::Dialed;
pub use error::BootstrapError;
pub use host::{HostDifference, HostId};
pub use message::{OpenReply, OpenRequest};
pub use peer::Peer;
pub use refusal::Refusal;
pub use secret::{Proof, Secret, SecretError, PROOF_BYTES};
pub use selection::{choose, Capability, Choice, NoCommonDevice, Reach, Reason};
pub use stop::StopHandle;
pub use tls::{ClientTls, ServerTls};
#[cfg(feature = "tls")]
pub use tls::{TlsError, TlsIdentity, TlsRoots};
