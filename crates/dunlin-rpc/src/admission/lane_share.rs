//! What the poller of a lane and the scheduler share about it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::credits::{Renewal, CREDITS};
use super::Standing;

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneShare {
    pub(super) sender: u64,
    /// Its number at the sender: a new lane with it takes the place of an old one, of whose end this side may not know
    /// yet.
    pub(super) number: u64,
    /// Whose work it is.
    pub(super) poller: usize,
    /// Degrees reported since the last redistribution (U_ij).
    pub(super) utilisation: AtomicU64,
    /// Those of the interval before.
    before: AtomicU64,
    /// Requests that have come, and messages that they came in, modulo 2^32: now, and when they were looked at last.
    came: [AtomicU32; 2],
    seen: [AtomicU32; 2],
    /// The last of the degrees, and the credits that the client has: for people.
    pub(super) degree: AtomicU64,
    pub(super) credits: AtomicU64,
    /// Bits of [`Standing`].
    standing: AtomicU8,
}

impl LaneShare {
    /// A new lane, with so many credits.
    pub(super) fn new(
        sender: u64,
        number: u64,
        poller: usize,
        standing: Standing,
        credits: u32,
    ) -> Self {
        Self {
            sender,
            number,
            poller,
            utilisation: AtomicU64::new(0),
            before: AtomicU64::new(0),
            came: Default::default(),
            seen: Default::default(),
            degree: AtomicU64::new(0),
            credits: AtomicU64::new(credits.into()),
            standing: AtomicU8::new(standing.bits()),
        }
    }

    #[inline]
    pub(super) fn standing(&self) -> Standing {
        Standing::from_bits_truncate(self.standing.load(Ordering::Relaxed))
    }

    pub(super) fn is_active(&self) -> bool {
        self.standing().contains(Standing::ACTIVE)
    }

    /// Says whether that is news.
    pub(super) fn set(&self, standing: Standing) -> bool {
        self.standing.swap(standing.bits(), Ordering::Relaxed) != standing.bits()
    }

    /// Credits were renewed for a client that reported a degree, which counts for each of FLOCK's C that it was given.
    pub(super) fn renewed(&self, renewal: Renewal) {
        let degree = u64::from(renewal.degree);
        let used = degree * u64::from(renewal.credits.div_ceil(CREDITS));
        self.utilisation.fetch_add(used, Ordering::Relaxed);
        self.degree.store(degree, Ordering::Relaxed);
    }

    /// The utilisation of an interval that ends.
    pub(super) fn end_interval(&self) -> u64 {
        let ended = self.utilisation.swap(0, Ordering::Relaxed);
        self.before.store(ended, Ordering::Relaxed);
        ended
    }

    /// The utilisation of the last interval and of this one until now, of which a part alone may say nothing.
    pub(super) fn of_late(&self) -> u64 {
        self.before.load(Ordering::Relaxed) + self.utilisation.load(Ordering::Relaxed)
    }

    /// So many requests have come since the lane began, in so many messages: said by its poller, which alone writes
    /// that.
    #[inline]
    pub(super) fn came(&self, requests: u32, messages: u64) {
        self.came[0].store(requests, Ordering::Relaxed);
        self.came[1].store(messages as u32, Ordering::Relaxed);
    }

    /// Requests and messages since the last look, which is the scheduler's.
    pub(super) fn look(&self) -> [u64; 2] {
        [0, 1].map(|i| {
            let now = self.came[i].load(Ordering::Relaxed);
            let before = self.seen[i].swap(now, Ordering::Relaxed);
            now.wrapping_sub(before).into()
        })
    }
}
