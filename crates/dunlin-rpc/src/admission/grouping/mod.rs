//! Decides which clients are served together, and for how long (ScaleRPC §3.2): plain values, without device or clock.
//!
//! [`priority`] computes the priority of a client's load, [`groups`] assigns clients to groups, [`pace`] determines the
//! current slot if several servers change turns in step. The poller decides whose turn it is.

pub(crate) mod groups;
pub(crate) mod pace;
pub(crate) mod priority;

pub(crate) use groups::Groups;
pub(crate) use priority::Load;
