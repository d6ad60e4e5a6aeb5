//! The clock by which servers change turns in step (ScaleRPC §4.2, *Global Synchronization*): a rotation with as many
//! slots as groups, in a time common to all servers.
//!
//! One server is the time server; the others periodically ask it for the time, and correct for the time under way, as
//! NTP does. Plain values except for the instants, which the caller passes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The pace by which servers change turns in step, for clients that call several of them at the same time: the groups
/// of all servers are served in the same slots.
///
/// Without it each server has its own turns, and a client that needs several servers waits until it has its turn at all
/// of them. Each server has a pace of its own ([`crate::ServerBuilder::pace`]); all but one follow another's
/// ([`crate::ServerBuilder::follow`], or [`Pace::synchronize`] by hand). A client that calls them through
/// [`crate::Peers`], or that sets [`crate::ClientBuilder::group`], is in the same group at each.
#[derive(Clone, Debug)]
pub struct Pace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    groups: usize,
    slice_ns: u64,
    /// When this server first read the time.
    epoch: OnceLock<Instant>,
    /// The common time minus this server's own.
    offset_ns: AtomicI64,
    synchronized: AtomicU64,
    /// Number of consecutive answers that were under way for too long.
    slow: AtomicU64,
}

/// An exchange in which one server asked another for the time (ScaleRPC Fig. 14), in nanoseconds of each one's own
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// `T_i1` and `T_i4`: when the follower sent the request, and when it had the answer.
    pub(crate) asked_ns: i64,
    pub(crate) answered_ns: i64,
    pub(crate) answer: PaceAnswer,
}

/// The answer of a time server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaceAnswer {
    /// `T_3`: the common time at which the answer was sent.
    pub(crate) common_ns: i64,
    /// `ΔT`: how long the server held the request.
    pub(crate) held_ns: i64,
    pub(crate) slice_ns: u64,
    pub(crate) groups: u64,
}

/// Number of consecutive slow answers that are ignored: a second's worth.
const MOST_SLOW: u64 = 10;
/// Limit for the offset of a clock: a hundred years. It keeps the sums below from saturating, where time would stand
/// still.
const MOST_OFFSET_NS: i64 = 100 * 365 * 86_400 * 1_000_000_000;
/// Length of an answer in bytes.
const ANSWER_BYTES: usize = 32;

impl PaceAnswer {
    /// Encodes the answer for the wire.
    pub(crate) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let words = [
            self.common_ns.to_le_bytes(),
            self.held_ns.to_le_bytes(),
            self.slice_ns.to_le_bytes(),
            self.groups.to_le_bytes(),
        ];
        for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word);
        }
        bytes
    }

    /// Decodes an answer; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let word = bytes[at * 8..].first_chunk();
            word.copied().map(i64::from_le_bytes)
        };
        Some(Self {
            common_ns: word(0)?,
            held_ns: word(1)?,
            slice_ns: word(2)?.cast_unsigned(),
            groups: word(3)?.cast_unsigned(),
        })
    }
}

impl Exchange {
    /// How long request and answer were under way together; never negative, whatever the answer says.
    pub(crate) fn under_way_ns(&self) -> i64 {
        let took = self.answered_ns.saturating_sub(self.asked_ns);
        took.saturating_sub(self.answer.held_ns).max(0)
    }

    /// The common time minus the follower's: the answer is assumed to have been under way for half of that.
    fn offset_ns(&self) -> i64 {
        let now = self
            .answer
            .common_ns
            .saturating_add(self.under_way_ns() / 2);
        now.saturating_sub(self.answered_ns)
    }
}

impl Pace {
    /// A rotation of this many groups, each served for `slice` (the paper's `D`). Groups from 1 to 1024, slices from 1
    /// µs to a second: [`crate::ServerBuilder::serve`] refuses others. In one slot as many clients of a group have a
    /// turn as a server has zones, one and a half times [`crate::Grouping::clients`].
    pub fn new(groups: usize, slice: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                groups,
                slice_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
                epoch: OnceLock::new(),
                offset_ns: AtomicI64::new(0),
                synchronized: AtomicU64::new(0),
                slow: AtomicU64::new(0),
            }),
        }
    }

    /// Number of groups in the rotation.
    pub fn groups(&self) -> usize {
        self.shared.groups
    }

    /// The time for which each group is served.
    pub fn slice(&self) -> Duration {
        Duration::from_nanos(self.shared.slice_ns)
    }

    /// Number of times that it was synchronised with another's.
    pub fn synchronizations(&self) -> u64 {
        self.shared.synchronized.load(Ordering::Relaxed)
    }

    /// The common time in nanoseconds, by this server's clock; negative before the time server first read its own.
    pub fn common_ns(&self, now: Instant) -> i64 {
        self.own_ns(now)
            .saturating_add(self.shared.offset_ns.load(Ordering::Relaxed))
    }

    /// The server's own time in nanoseconds.
    pub(crate) fn own_ns(&self, now: Instant) -> i64 {
        let epoch = *self.shared.epoch.get_or_init(|| now);
        i64::try_from(now.saturating_duration_since(epoch).as_nanos()).unwrap_or(i64::MAX)
    }

    /// The slot of the rotation at this time, and the group that it belongs to.
    pub(crate) fn slot(&self, now: Instant) -> (i64, usize) {
        let slice = i64::try_from(self.shared.slice_ns).unwrap_or(i64::MAX);
        let slot = self.common_ns(now).div_euclid(slice.max(1));
        let groups = i64::try_from(self.shared.groups).unwrap_or(i64::MAX);
        (slot, slot.rem_euclid(groups.max(1)) as usize)
    }

    /// The time until a group's next slot; zero during its slot.
    pub(crate) fn until(&self, group: usize, now: Instant) -> Duration {
        let (slot, current) = self.slot(now);
        let groups = self.shared.groups.max(1);
        let slots = (group % groups + groups - current) % groups;
        if slots == 0 {
            return Duration::ZERO;
        }
        let begins = i128::from(slot) + slots as i128;
        let ns = begins * i128::from(self.shared.slice_ns) - i128::from(self.common_ns(now));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
    }

    /// The answer of a server with this pace, at `now`, to a request that arrived at `came`.
    pub(crate) fn answer(&self, came: Instant, now: Instant) -> PaceAnswer {
        PaceAnswer {
            common_ns: self.common_ns(now),
            held_ns: self.own_ns(now).saturating_sub(self.own_ns(came)),
            slice_ns: self.shared.slice_ns,
            groups: self.shared.groups as u64,
        }
    }

    /// Applies another server's answer; but ignores one that was under way for longer than a slice if a better one is
    /// known, unless there are no others: it may be wrong by as much.
    ///
    /// # Errors
    /// If the other server's rotation is different: the reason; nothing changes then.
    pub(crate) fn learn(&self, exchange: &Exchange) -> Result<(), String> {
        let PaceAnswer {
            slice_ns, groups, ..
        } = exchange.answer;
        if (slice_ns, groups) != (self.shared.slice_ns, self.shared.groups as u64) {
            return Err(format!(
                "the time server has {groups} groups of {slice_ns} ns, but this server has {} of {} ns: pass the same \
                 values to Pace::new on both",
                self.shared.groups, self.shared.slice_ns
            ));
        }
        let is_slow = exchange.under_way_ns().unsigned_abs() > self.shared.slice_ns;
        if is_slow && self.synchronizations() > 0 {
            let slow = self.shared.slow.fetch_add(1, Ordering::Relaxed);
            if slow < MOST_SLOW {
                return Ok(());
            }
        }
        self.shared.slow.store(0, Ordering::Relaxed);
        let offset = exchange.offset_ns().clamp(-MOST_OFFSET_NS, MOST_OFFSET_NS);
        self.shared.offset_ns.store(offset, Ordering::Relaxed);
        self.shared.synchronized.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const D: Duration = Duration::from_micros(100);

    fn exchange(asked_ns: i64, answered_ns: i64, common_ns: i64, held_ns: i64) -> Exchange {
        let answer = PaceAnswer {
            common_ns,
            held_ns,
            slice_ns: 100_000,
            groups: 3,
        };
        Exchange {
            asked_ns,
            answered_ns,
            answer,
        }
    }

    /// §4.2: the follower sleeps `D_i = D - (T_i4 - T_i1 - ΔT_i) / 2` when the time server sleeps `D`, so both change
    /// turns at once.
    #[test]
    fn a_follower_changes_turns_with_the_time_server() {
        let start = Instant::now();
        let after = |ns: u64| start + Duration::from_nanos(ns);
        let pace = Pace::new(3, D);
        assert_eq!(pace.slot(start), (0, 0));
        // Asked at 20 us of its own time, answered at 30 us; the time server held the request for 4 us and answered at
        // the end of its slot 6.
        pace.learn(&exchange(20_000, 30_000, 700_000, 4_000))
            .unwrap();
        // The answer was under way for 3 us: the next change is D - 3 us later.
        assert_eq!(pace.common_ns(after(30_000)), 703_000);
        assert_eq!(pace.slot(after(30_000)), (7, 1));
        assert_eq!(pace.slot(after(30_000 + 96_999)), (7, 1));
        assert_eq!(pace.slot(after(30_000 + 97_000)), (8, 2));
        assert_eq!(pace.synchronizations(), 1);
    }

    #[test]
    fn another_rotation_is_refused_and_changes_nothing() {
        let start = Instant::now();
        let pace = Pace::new(4, D);
        pace.slot(start);
        let why = pace.learn(&exchange(0, 10, 500, 0)).unwrap_err();
        assert!(why.contains("3 groups") && why.contains("4 of"), "{why}");
        assert_eq!((pace.common_ns(start), pace.synchronizations()), (0, 0));
    }

    proptest! {
        /// Whatever the clocks show and however long a request waits at the server: the error is half of the difference
        /// between the two directions.
        #[test]
        fn the_error_is_half_of_the_ways_difference(
            skew in -1_000_000_000i64..1_000_000_000,
            there in 500i64..50_000,
            back in 500i64..50_000,
            held in 0i64..1_000_000,
        ) {
            let start = Instant::now();
            let pace = Pace::new(3, D);
            pace.slot(start);
            let answered = there + held + back;
            // At the follower's time zero the time server's clock shows `skew`.
            let common = skew + there + held;
            pace.learn(&exchange(0, answered, common, held)).unwrap();
            let right = skew + answered;
            let now = start + Duration::from_nanos(answered as u64);
            prop_assert!((pace.common_ns(now) - right).abs() <= (back - there).abs() / 2 + 1);
        }

        /// Any answer is applied or refused, and no number in it does harm.
        #[test]
        fn hostile_answers_do_no_harm(bytes: [u8; ANSWER_BYTES], asked: i64, answered: i64) {
            let answer = PaceAnswer::decode(&bytes).unwrap();
            prop_assert_eq!(answer.encode(), bytes);
            prop_assert!(PaceAnswer::decode(&bytes[1..]).is_none());
            let pace = Pace::new(3, D);
            let answer = PaceAnswer { slice_ns: 100_000, groups: 3, ..answer };
            pace.learn(&Exchange { asked_ns: asked, answered_ns: answered, answer }).unwrap();
            let now = Instant::now();
            prop_assert!(pace.slot(now).1 < 3);
            // Time goes on, and each group gets its slot.
            let later = now + D * 2;
            prop_assert_eq!(pace.common_ns(later) - pace.common_ns(now), 200_000);
            for group in 0..3 {
                let begins = now + pace.until(group, now);
                prop_assert_eq!(pace.slot(begins).1, group);
            }
        }
    }
}
