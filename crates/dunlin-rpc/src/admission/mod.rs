//! Who may send, and how much: FLOCK's receiver-side scheduling (§5.1), and ScaleRPC's groups ([`grouping`]).
//!
//! [`credits`] and [`scheduler`] are pure. [`lane`] is one lane's admission at the server, driven by the poller that serves it; the
//! [`redistribution`] thread decides which lanes are active.

pub(crate) mod credits;
pub(crate) mod grouping;
pub(crate) mod lane;
pub(crate) mod redistribution;
pub(crate) mod scheduler;

pub use redistribution::{LaneUse, SenderReport};

/// Names of what client and server tell each other about admission when a lane begins: whose lane it is, its number there, and the
/// credits it begins with.
pub(crate) const SENDER_PARAMETER: &str = "sender";
pub(crate) const LANE_PARAMETER: &str = "sender-lane";
pub(crate) const CREDITS_PARAMETER: &str = "credits";
/// One: the sender wants its share of fewer active queue pairs, so that more of its requests go together (`auto`).
pub(crate) const FEW_PARAMETER: &str = "sender-few";

/// Most queue pairs that a server keeps active for the senders that want few: about as many as carry what a NIC takes when each has one message
/// under way, at a few million messages a second each way for one queue pair (docs/auto.md).
pub(crate) const FEW_ACTIVE: usize = 96;
