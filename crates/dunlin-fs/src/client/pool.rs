//! Extents that a session has reserved and no file has.

use crate::types::{Extent, SessionId};

/// They are of one session: another one's may be anybody's by now.
#[derive(Debug)]
pub(super) struct Pool {
    session: SessionId,
    /// The next one to use is the last.
    free: Vec<Extent>,
}

impl Pool {
    pub(super) fn new(session: SessionId) -> Self {
        let free = Vec::new();
        Self { session, free }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn take(&mut self) -> Option<Extent> {
        self.free.pop()
    }

    /// Extents of a session: they are none of the pool's where that is not the one.
    pub(super) fn give(&mut self, session: SessionId, extents: impl IntoIterator<Item = Extent>) {
        if self.session == session {
            self.free.extend(extents);
        }
    }

    /// Another session: what an earlier one had is gone.
    pub(super) fn begin(&mut self, session: SessionId) {
        if self.session != session {
            *self = Self::new(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, Pool};

    #[test]
    fn extents_of_another_session_do_not_get_into_it() {
        let extent = |index| Extent { server: 0, index };
        let mut pool = Pool::new(1);
        pool.give(1, [extent(5), extent(6)]);
        pool.begin(1);
        assert_eq!(pool.take(), Some(extent(6)));
        pool.begin(2);
        pool.give(1, [extent(6)]);
        assert_eq!(pool.take(), None);
        pool.give(2, [extent(7)]);
        assert_eq!((pool.session(), pool.take()), (2, Some(extent(7))));
    }
}
