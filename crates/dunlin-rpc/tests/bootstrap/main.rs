//! The bootstrap handshake over real sockets: what works, and what a stranger can and cannot do.

mod good;
mod harness;
mod refused;
mod secrets;
mod strangers;
mod tampering;
