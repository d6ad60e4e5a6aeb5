//! Callbacks: a server calls its clients.
//!
//! Only clients open connections, so a server can call clients that it could not connect to, behind firewalls and NAT.
//! A client that wants to be called has handlers and regions like any server, on the device of its connection, and no
//! port ([`crate::ServerBuilder::serve_to`]). Instead of a port it uses one of its lanes: it keeps two calls
//! outstanding at the server, both to the handler [`CALLBACKS`], which are answered late (`call/callbacks.rs`).
//!
//! ```text
//! client                                                           server
//!   Stay                                          ---------->        answered when it calls the client no more
//!   Next                                          ---------->
//!                                                 <----------        Welcome
//!   Next                                          ---------->
//!                                                 <----------        Open: as a client's open request in a handshake
//!   Next, opened: as a server's reply to that     ---------->
//! ```
//!
//! So the two exchange what the handshake would, and the roles on the resulting connection are swapped: the server
//! makes calls on it and the client answers, with the same lanes, pollers and handlers as everywhere. The server has a
//! [`crate::Client`] for each client that it may call ([`CallableClient`]), which makes such connections as needed.
//! When the connection that carries the call `Stay` ends, the client counts as gone and all of this ends.

mod callback_server;
mod registry;
#[cfg(all(test, not(loom)))]
mod tests;
mod way_back;

pub use callback_server::CallbackServer;
pub use registry::{CallableChange, CallableClient, CallableClients};
