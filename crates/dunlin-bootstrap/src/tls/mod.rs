//! TLS 1.3 for the handshake, by rustls: who the sides are is shown by certificates, and nobody in between reads or
//! changes what they say. The data path that follows is not inside TLS (`docs/security.md`).

mod config;
mod faults;
mod names;
mod session;

pub use config::{ClientTls, ServerTls, TlsError, TlsIdentity, TlsRoots};
pub(crate) use session::Session;
