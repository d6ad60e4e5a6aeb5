//! Extents that a session has reserved and that belong to no file.

use crate::types::{Extent, SessionId};

/// They all belong to one session: those of another may be in use by anyone.
#[derive(Debug)]
pub(super) struct Pool {
    session: SessionId,
    /// Used from the end.
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

    /// Puts extents of a session back; they are dropped if it is not the pool's session.
    pub(super) fn give(&mut self, session: SessionId, extents: impl IntoIterator<Item = Extent>) {
        if self.session == session {
            self.free.extend(extents);
        }
    }

    /// Begins another session: extents of an earlier one are dropped.
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
