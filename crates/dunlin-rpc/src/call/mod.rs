//! Calls, whoever makes them: names, tables, answers, and the core that makes calls of a server's messages. Between
//! channels below and the client's fronts and shared lanes above.

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
