//! The ids of a server's connections: one count for all its devices and kinds of channel, because handlers distinguish
//! connections by them ([`super::Request::connection`]), and so do the server's own tables.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bits of an id that count connections; those above hold the connection's place at its poller. The count wraps after
/// 2^48 - 1 connections: with a million per second, after nine years. A connection that has lasted as long then shares
/// its id with a new one if that has the same place.
const COUNT_BITS: u32 = 48;
/// The highest count. 0 is left out, so that no connection's id is 0.
const LAST: u64 = (1 << COUNT_BITS) - 1;
/// Number of places that fit into an id.
pub(super) const PLACES_MAX: usize = 1 << (u64::BITS - COUNT_BITS);

/// See the module. Clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionIds(Arc<AtomicU64>);

impl ConnectionIds {
    /// Returns the id of a new connection. `place` is its number at its poller, below [`PLACES_MAX`]; 0 for kinds of
    /// channel without numbers.
    pub(super) fn next(&self, place: u32) -> u64 {
        debug_assert!((place as usize) < PLACES_MAX, "{place} has no room");
        let count = self.0.fetch_add(1, Ordering::Relaxed) % LAST + 1;
        u64::from(place) << COUNT_BITS | count
    }
}

/// The place of the connection with this id.
#[inline]
pub(super) fn place_of(id: u64) -> u32 {
    (id >> COUNT_BITS) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_are_counted_and_say_places() {
        let ids = ConnectionIds::default();
        let last = PLACES_MAX as u32 - 1;
        let made = [
            ids.next(0),
            ids.clone().next(7),
            ids.next(last),
            ids.next(7),
        ];
        assert_eq!(made.map(place_of), [0, 7, last, 7]);
        assert_eq!(made.map(|id| id & LAST), [1, 2, 3, 4]);
    }

    #[test]
    fn no_id_is_0_when_the_count_begins_again() {
        let ids = ConnectionIds(Arc::new(AtomicU64::new(LAST - 1)));
        assert_eq!([ids.next(0), ids.next(0)], [LAST, 1]);
    }
}
