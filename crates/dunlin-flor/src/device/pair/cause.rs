//! Why a logical queue pair is in error, in more detail than a completion's status.

use crate::connection::LostBy;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// No underlying queue pair is left.
    #[error("{0}")]
    Lost(LostBy),
    /// The underlying device failed.
    #[error("underlying device: {0}")]
    Device(String),
    /// The peer's end is closed.
    #[error("the peer has closed its end")]
    PeerClosed,
    /// The peer owes a message, and nothing has arrived.
    #[error("nothing received from the peer for {milliseconds} ms")]
    Silent {
        /// The duration, not counting time in which this side did not poll.
        milliseconds: u64,
    },
    /// The peer has refused a request.
    #[error("the peer refused a request")]
    Refused,
    /// This side has refused a request of the peer.
    #[error("refused a request from the peer")]
    RefusedPeer,
    /// The peer violated the protocol.
    #[error("the peer violated Flor's protocol")]
    Violation,
    /// A completion queue overran.
    #[error("one of its completion queues overran")]
    Overrun,
    /// This side ended it.
    #[error("closed by this side")]
    Ended,
}
