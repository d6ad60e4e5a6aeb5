//! Calls of any kind of caller: names, tables, responses, and the core that turns a server's messages into responses.
//! It is between the channels below and the client's public API and shared lanes above.

pub(crate) mod callbacks;
pub(crate) mod captured;
pub(crate) mod core;
pub(crate) mod lane;
pub(crate) mod notify;
pub(crate) mod own;
pub(crate) mod reply;
pub(crate) mod slots;
pub(crate) mod timeout;
pub(crate) mod wanted;
