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
/// One: the sender wants its share of as many active queue pairs as fill the server's NIC, and no more ([`active_for`]; `auto`).
pub(crate) const FEW_PARAMETER: &str = "sender-few";

/// About how long a small call takes on a network without queues.
const ROUND_TRIP_US: u64 = 2;
/// Most queue pairs that a server keeps active for the senders that want few, where its device does not say what it takes.
const FEW_ACTIVE: usize = 96;

/// As many active queue pairs as fill a device that takes so many messages a second when each has one under way (Little's law). With fewer the
/// device has time left; with more, messages wait in it that could have gone together.
pub(crate) fn active_for(messages_per_second: Option<u64>) -> usize {
    let calls = |messages: u64| messages / 2;
    let out = |messages| usize::try_from(calls(messages) * ROUND_TRIP_US / 1_000_000);
    messages_per_second.map_or(FEW_ACTIVE, |messages| {
        out(messages).unwrap_or(usize::MAX).max(1)
    })
}
