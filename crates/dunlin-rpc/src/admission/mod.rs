//! Who may send, and how much: FLOCK's receiver-side scheduling (§5.1), and ScaleRPC's groups ([`grouping`]).
//!
//! [`credits`] and [`scheduler`] are pure. [`lane`] is one lane's admission at the server, driven by the poller that
//! serves it; the [`redistribution`] thread decides which lanes are active, and sees when the device has no time left
//! ([`attempts`]).

mod arrivals;
mod attempts;
pub(crate) mod credits;
pub(crate) mod grouping;
pub(crate) mod lane;
mod lane_share;
pub(crate) mod redistribution;
pub(crate) mod scheduler;

pub(crate) use arrivals::DatagramShare;
pub use redistribution::{LaneUse, SenderReport};

/// Names of what client and server tell each other about admission when a lane begins: whose lane it is, its number
/// there, and the credits it begins with.
pub(crate) const SENDER_PARAMETER: &str = "sender";
pub(crate) const LANE_PARAMETER: &str = "sender-lane";
pub(crate) const CREDITS_PARAMETER: &str = "credits";
/// The group of a client, at servers that change turns together.
pub(crate) const GROUP_PARAMETER: &str = "group";
/// The group that another server told it: here it may be any, if there are not so many.
pub(crate) const GROUP_WISH_PARAMETER: &str = "group-wish";
/// Where a grant's word, whose lower half counts credits, says what the server thinks of the lane: bits of
/// [`Standing`].
pub(crate) const STANDING_SHIFT: u32 = 32;
/// Where it counts the reports of one-sided operations that were taken, in eight bits.
pub(crate) const REPORTS_SHIFT: u32 = 40;

bitflags::bitflags! {
    /// What a server thinks of a lane, as the client is told.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Standing: u8 {
        /// It gets credits (FLOCK's active queue pair).
        const ACTIVE = 1;
        /// The server's NIC has no time for more messages, though the server may have for more requests: threads that
        /// keep many calls out send a quarter of them together (`auto`).
        const SATURATED = 2;
        /// That was not enough: half of them.
        const STILL_SATURATED = 4;
        /// Threads that have one call out each and were answered by one message are to send together again: whoever
        /// comes first waits a moment for the others (`auto`).
        const REJOINED = 8;
        /// Threads are to send datagrams instead, each by a queue pair of its own, if they can (`auto`).
        const DATAGRAMS = 16;
    }
}

impl Standing {
    /// What part of its calls a thread that keeps many out sends together at least: one in so many. None: each leaves
    /// when it can.
    pub(crate) fn together(self) -> Option<usize> {
        match self {
            standing if standing.contains(Self::STILL_SATURATED) => Some(2),
            standing if standing.contains(Self::SATURATED) => Some(4),
            _ => None,
        }
    }
}

/// One: the sender wants its share of as many active queue pairs as fill the server's NIC, and no more ([`active_for`];
/// `auto`).
pub(crate) const FEW_PARAMETER: &str = "sender-few";

/// About how long a small call takes on a network without queues.
const ROUND_TRIP_US: u64 = 2;
/// Most queue pairs that a server keeps active for the senders that want few, where its device does not say what it
/// takes.
const FEW_ACTIVE: usize = 96;

/// As many active queue pairs as fill a device that takes so many messages a second when each has one under way
/// (Little's law). With fewer the device has time left; with more, messages wait in it that could have gone together.
pub(crate) fn active_for(messages_per_second: Option<u64>) -> usize {
    let calls = |messages: u64| messages / 2;
    let out = |messages| usize::try_from(calls(messages) * ROUND_TRIP_US / 1_000_000);
    messages_per_second.map_or(FEW_ACTIVE, |messages| {
        out(messages).unwrap_or(usize::MAX).max(1)
    })
}
