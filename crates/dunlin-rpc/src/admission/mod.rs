//! Admission: which lanes may send, and how much. FLOCK's receiver-side scheduling (§5.1), and ScaleRPC's groups
//! ([`grouping`]).
//!
//! [`credits`] and [`scheduler`] are pure. [`lane`] is one lane's admission at the server, driven by the poller that
//! serves it; the [`redistribution`] thread decides which lanes of the [`senders`] are active, and detects when the
//! device is at its limit ([`attempts`]).

mod arrivals;
mod attempts;
pub(crate) mod credits;
pub(crate) mod grouping;
pub(crate) mod lane;
mod lane_share;
pub(crate) mod redistribution;
pub(crate) mod scheduler;
mod senders;

pub(crate) use arrivals::{DatagramShare, Passes};
pub use redistribution::{LaneUse, SenderReport};

/// Names of the parameters for admission that client and server exchange when a lane begins: the sender that it belongs
/// to, its number there, and its initial credits.
pub(crate) const SENDER_PARAMETER: &str = "sender";
pub(crate) const LANE_PARAMETER: &str = "sender-lane";
pub(crate) const CREDITS_PARAMETER: &str = "credits";
/// The group of a client, at servers that change turns in step.
pub(crate) const GROUP_PARAMETER: &str = "group";
/// The group that another server assigned to the client; if this server has no such group, it may be any.
pub(crate) const GROUP_WISH_PARAMETER: &str = "group-wish";
/// Position in a grant's word, whose lower half counts credits, of the lane's standing: bits of [`Standing`].
pub(crate) const STANDING_SHIFT: u32 = 32;
/// Position of the number of reports of one-sided operations taken, in eight bits.
pub(crate) const REPORTS_SHIFT: u32 = 40;

bitflags::bitflags! {
    /// The standing of a lane at the server, as the client is told.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Standing: u8 {
        /// The lane gets credits (FLOCK's active queue pair).
        const ACTIVE = 1;
        /// The server's NIC cannot handle more messages, although the server may be able to handle more requests:
        /// threads with many outstanding calls send a quarter of them together (`auto`).
        const SATURATED = 2;
        /// That was not enough: they send half of them together.
        const STILL_SATURATED = 4;
        /// Threads with one outstanding call each that were answered by one message should send together again: the
        /// first one waits a moment for the others (`auto`).
        const REJOINED = 8;
        /// Threads should send datagrams instead, each through a queue pair of its own, if they can (`auto`).
        const DATAGRAMS = 16;
    }
}

impl Standing {
    /// The minimum fraction of its calls that a thread with many outstanding ones sends together: one in this many.
    /// `None` if each is sent as soon as possible.
    pub(crate) fn together(self) -> Option<usize> {
        match self {
            standing if standing.contains(Self::STILL_SATURATED) => Some(2),
            standing if standing.contains(Self::SATURATED) => Some(4),
            _ => None,
        }
    }
}

/// If 1, the sender wants its share of only as many active queue pairs as fill the server's NIC ([`active_for`];
/// `auto`).
pub(crate) const FEW_PARAMETER: &str = "sender-few";

/// Approximate duration of a small call on a network without queueing.
const ROUND_TRIP_US: u64 = 2;
/// Maximum number of queue pairs that a server keeps active for senders that want few, if its device does not report
/// its message rate.
const FEW_ACTIVE: usize = 96;

/// Number of active queue pairs that fill a device with this message rate if each has one message in flight (Little's
/// law). With fewer the device has spare capacity; with more, messages wait in it that could have been combined.
pub(crate) fn active_for(messages_per_second: Option<u64>) -> usize {
    let calls = |messages: u64| messages / 2;
    let out = |messages| usize::try_from(calls(messages) * ROUND_TRIP_US / 1_000_000);
    messages_per_second.map_or(FEW_ACTIVE, |messages| {
        out(messages).unwrap_or(usize::MAX).max(1)
    })
}
