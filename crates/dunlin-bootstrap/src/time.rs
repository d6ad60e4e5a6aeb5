//! The time that a handshake may take.

use std::time::{Duration, Instant};

use crate::stream::after;

/// The time for all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// How much there was at first, for errors to tell.
    pub(crate) timeout: Duration,
    /// Its end.
    pub(crate) deadline: Instant,
}

impl Time {
    /// So long, from now on.
    pub(crate) fn of(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: after(timeout),
        }
    }
}
