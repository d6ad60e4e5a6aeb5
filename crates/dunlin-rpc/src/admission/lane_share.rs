//! What the poller of a lane and the scheduler share about it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::arrivals::Arrivals;
use super::credits::{Renewal, CREDITS, ONE_THREAD};
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
    pub(super) arrivals: Arrivals,
    /// Threads whose requests a message carries, in the mean, as the client said last ([`Renewal::threads`]).
    threads: AtomicU32,
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
            arrivals: Arrivals::default(),
            threads: AtomicU32::new(ONE_THREAD),
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
        self.threads.store(renewal.threads, Ordering::Relaxed);
    }

    /// Threads whose requests a message carries, in the mean.
    pub(super) fn threads(&self) -> f64 {
        f64::from(self.threads.load(Ordering::Relaxed)) / f64::from(ONE_THREAD)
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
}
