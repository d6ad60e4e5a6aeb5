//! Why a logical queue pair is in error: what a completion's status has no words for.

use crate::connection::LostBy;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// No queue pair below is left.
    #[error("{0}")]
    Lost(LostBy),
    /// The device below failed.
    #[error("the device below: {0}")]
    Device(String),
    /// The peer's end is closed.
    #[error("the peer has closed its end")]
    PeerClosed,
    /// The peer is waited for, and nothing has come.
    #[error("nothing has come from the peer for {milliseconds} ms")]
    Silent {
        /// How long, not counting time in which this side did not look.
        milliseconds: u64,
    },
    /// The peer has refused a request.
    #[error("the peer has refused a request")]
    Refused,
    /// This side has refused a request of the peer's.
    #[error("a request of the peer was refused")]
    RefusedPeer,
    /// The peer does not keep to the protocol.
    #[error("the peer broke Flor's protocol")]
    Violation,
    /// A completion queue had no room.
    #[error("a completion queue of it has overrun")]
    Overrun,
    /// This side has ended it.
    #[error("this side has ended it")]
    Ended,
}
