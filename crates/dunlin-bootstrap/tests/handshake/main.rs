//! The bootstrap handshake over real sockets: what works, and what a stranger can and cannot do.

mod floods;
mod good;
mod harness;
mod in_line;
mod log;
mod refused;
mod secrets;
mod strangers;
mod tampering;
mod tls;
