//! The state of a lane that its poller and the scheduler share.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::arrivals::Arrivals;
use super::credits::{Renewal, CREDITS, ONE_THREAD};
use super::Standing;

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneShare {
    pub(super) sender: u64,
    /// Its number at the sender: a new lane with the same number replaces an old one, whose end this side may not know
    /// of yet.
    pub(super) number: u64,
    /// The poller that serves it.
    pub(super) poller: usize,
    /// Sum of the degrees reported since the last redistribution (U_ij).
    pub(super) utilisation: AtomicU64,
    /// The same for the interval before.
    before: AtomicU64,
    pub(super) arrivals: Arrivals,
    /// Mean number of threads per message, as last reported by the client ([`Renewal::threads`]).
    threads: AtomicU32,
    /// The last degree, and the credits that the client has, for people.
    pub(super) degree: AtomicU64,
    pub(super) credits: AtomicU64,
    /// Bits of [`Standing`].
    standing: AtomicU8,
}

impl LaneShare {
    /// A new lane, with this many credits.
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

    /// Sets the standing; returns whether it has changed.
    pub(super) fn set(&self, standing: Standing) -> bool {
        self.standing.swap(standing.bits(), Ordering::Relaxed) != standing.bits()
    }

    /// Records a renewal for a client that reported a degree, which counts once per FLOCK's C credits granted.
    pub(super) fn renewed(&self, renewal: Renewal) {
        let degree = u64::from(renewal.degree);
        let used = degree * u64::from(renewal.credits.div_ceil(CREDITS));
        self.utilisation.fetch_add(used, Ordering::Relaxed);
        self.degree.store(degree, Ordering::Relaxed);
        self.threads.store(renewal.threads, Ordering::Relaxed);
    }

    /// Mean number of threads per message.
    pub(super) fn threads(&self) -> f64 {
        f64::from(self.threads.load(Ordering::Relaxed)) / f64::from(ONE_THREAD)
    }

    /// Ends an interval, and returns its utilisation.
    pub(super) fn end_interval(&self) -> u64 {
        let ended = self.utilisation.swap(0, Ordering::Relaxed);
        self.before.store(ended, Ordering::Relaxed);
        ended
    }

    /// The utilisation of the last interval and of the current one so far, since the latter alone may not be
    /// meaningful.
    pub(super) fn of_late(&self) -> u64 {
        self.before.load(Ordering::Relaxed) + self.utilisation.load(Ordering::Relaxed)
    }
}
