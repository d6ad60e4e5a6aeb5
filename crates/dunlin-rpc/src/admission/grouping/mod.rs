//! Which clients are served together, and for how long (ScaleRPC §3.2): plain values, without device or clock.
//!
//! [`priority`] says what a client's load is worth, [`groups`] who is in which group, [`pace`] whose slot it is where
//! several servers change turns together. Whose turn it is is the poller's to say.

pub(crate) mod groups;
pub(crate) mod pace;
pub(crate) mod priority;

pub(crate) use groups::Groups;
pub(crate) use priority::Load;
