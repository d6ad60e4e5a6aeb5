//! Callbacks: a server calls its clients.
//!
//! Only clients dial, so a server reaches them where it could not connect to them, behind firewalls and translated
//! addresses. A client that wants to be called has handlers and regions like any server, on the device of its
//! connection, and no port ([`crate::ServerBuilder::serve_to`]). What a port does for others, a lane of the client's
//! does here: it has two calls out at the server, both to the handler [`CALLBACKS`], that are answered late
//! (`call/callbacks.rs`).
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
//! So the two exchange what the handshake would, and the ends of the connection that comes of it are swapped: the
//! server asks on it and the client answers, by the same lanes, pollers and handlers as everywhere. The server has a
//! [`crate::Client`] for each client that it may call ([`CallableClient`]), which makes such connections when it needs
//! them. The end of the connection that the call `Stay` stands on is the end of all that: the client has gone.

mod callback_server;
mod registry;
#[cfg(all(test, not(loom)))]
mod tests;
mod way_back;

pub use callback_server::CallbackServer;
pub use registry::{CallableChange, CallableClient, CallableClients};
