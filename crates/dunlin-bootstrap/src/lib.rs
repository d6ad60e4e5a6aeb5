//! The bootstrap: the TCP handshake behind `dunlin://host:port`.
//!
//! It precedes the first message, for calls and for streams alike: two processes, one of which knows the other's
//! address, agree on a version, prove to each other that they know the secret (if one is configured), pick the best
//! device that both have, and exchange the addresses of their queue pairs together with a few numbers. Then TCP is
//! closed, and the device takes over.
//!
//! ```text
//! client                                                      server
//!   hello: version, nonce, devices, preference  ---------->
//!                                               <----------     hello: version, nonce, chosen device, proof
//!   open: proof, queue pair address, numbers    ---------->
//!                                               <----------     reply: proof, queue pair address, numbers
//! ```
//!
//! What an unauthenticated client can cost is bounded: the size of a frame, the entries and names in it, the time of a
//! handshake and the number of handshakes in progress; clients that keep the server waiting are displaced by newcomers
//! ([`AcceptorConfig`]). The secret itself is never sent; the proofs are HMAC-SHA256 over everything that both sides
//! have sent, so an attacker in between cannot change a byte unnoticed. They do not encrypt the exchange, and an
//! eavesdropper can guess a weak secret offline: use a random one. With the feature `tls` the handshake can run inside
//! TLS 1.3, which encrypts it and authenticates both sides by certificates ([`ServerTls`], [`ClientTls`]); what a
//! server knows about a client is a [`Peer`].
#![forbid(unsafe_code)]

mod acceptor;
mod address;
mod certificate;
mod checks;
mod config;
mod counters;
pub mod device_name;
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
