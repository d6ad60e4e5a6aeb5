//! TLS 1.3 for the handshake, by rustls: certificates authenticate the sides, and nobody in between can read or change
//! their messages. The data path that follows is not inside TLS (`docs/security.md`).

mod config;
mod faults;
mod names;
mod session;

pub use config::{ClientTls, ServerTls, TlsError, TlsIdentity, TlsRoots};
pub(crate) use session::Session;
