//! The time limit of a handshake.

use std::time::{Duration, Instant};

use crate::stream::after;

/// The time limit of the whole handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// The initial amount, for error messages.
    pub(crate) timeout: Duration,
    /// Its end.
    pub(crate) deadline: Instant,
}

impl Time {
    /// This long, from now on.
    pub(crate) fn of(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: after(timeout),
        }
    }
}
