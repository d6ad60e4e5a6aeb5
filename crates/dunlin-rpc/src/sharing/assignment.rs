//! The assignment of threads to lanes: FLOCK's Algorithm 1 (§5.2), as a pure function.
//!
//! As printed, a lane takes threads until its load has reached the quota. Two threads that sent 42 and 43 requests then
//! share one of two lanes, because 42 is less than half, although in the paper each has its own (§8.3.1: no sharing up
//! to eight threads); and of 16 equal threads on 11 lanes, two go on each of eight, and three lanes stay empty. Here
//! the lanes are equal parts of all bytes, in the same order of threads, and a thread goes to the lane in which the
//! middle of its bytes lies; this includes the last thread, which as printed can be past the last lane.
//!
//! Also as printed, equal threads change places in each interval, because they are sorted by requests if their sizes
//! are equal, and one has by chance sent some more. With `auto` they stay where they are as long as that is as even
//! ([`may_stay`]).
//!
//! A thread that sends more than a lane's part counts as one lane, because it cannot use two: otherwise three threads
//! with 4 KiB beside thirty with 64 B would count as nine of eleven lanes, six of which would stay empty.

/// What a thread has sent since the last scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Median of the sizes of its requests, in bytes.
    pub(crate) median: u64,
    /// Number of requests.
    pub(crate) requests: u64,
    /// Number of bytes.
    pub(crate) bytes: u64,
}

/// Returns a lane, as an index below `lanes`, for each thread: small requests beside small ones, and bytes spread
/// evenly.
///
/// # Panics
/// If there are no lanes.
pub(crate) fn assign(threads: &[Sent], lanes: usize) -> Vec<usize> {
    assert!(lanes > 0, "threads are assigned to lanes that there are");
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_by_key(|&t| (threads[t].median, threads[t].requests));
    let weights = weights(threads, lanes);
    let total: u128 = weights.iter().sum();
    let mut map = vec![0; threads.len()];
    // Twice the weight of the threads before, so that halves are integers.
    let mut before = 0;
    for t in order {
        let middle = before + weights[t];
        let lane = (middle * lanes as u128).checked_div(2 * total);
        map[t] = lane.map_or(lanes - 1, |lane| (lane as usize).min(lanes - 1));
        before += 2 * weights[t];
    }
    map
}

/// Whether threads may stay on their lanes, instead of going where [`assign`] would put them: if as many lanes are
/// used, bytes are spread as evenly to within a sixteenth, and small requests are beside small ones.
pub(crate) fn may_stay(threads: &[Sent], now: &[usize], map: &[usize], lanes: usize) -> bool {
    let weights = weights(threads, lanes);
    let total = weights.iter().sum::<u128>().max(1);
    // The number of lanes used, and the sum of the squares of their loads, in millionths of the total.
    let spread = |on: &[usize]| {
        let mut loads = vec![0u128; lanes];
        for (&lane, weight) in on.iter().zip(&weights) {
            loads[lane] += weight;
        }
        let used = loads.iter().filter(|&&load| load > 0).count();
        let squares = loads.iter().map(|load| (load * 1_000_000 / total).pow(2));
        (used, squares.sum::<u128>())
    };
    let ((used, squares), (used_then, squares_then)) = (spread(now), spread(map));
    let mut by_size: Vec<(u64, usize)> = Vec::with_capacity(threads.len());
    by_size.extend(threads.iter().map(|t| t.median).zip(now.iter().copied()));
    by_size.sort_unstable();
    used >= used_then
        && squares * 16 <= squares_then * 17
        && by_size.is_sorted_by_key(|&(_, lane)| lane)
}

/// The part of all lanes that each thread gets: its bytes, but at most one lane.
fn weights(threads: &[Sent], lanes: usize) -> Vec<u128> {
    let mut bytes: Vec<u128> = threads.iter().map(|t| t.bytes.into()).collect();
    bytes.sort_unstable();
    // For threads without a lane of their own: their bytes, and the lanes left to them.
    let (mut rest, mut left) = (bytes.iter().sum::<u128>(), lanes as u128);
    while let Some(most) = bytes.pop().filter(|most| left > 1 && most * left >= rest) {
        rest -= most;
        left -= 1;
    }
    let weight = |thread: &Sent| match rest {
        0 => u128::from(thread.bytes > 0),
        rest => (u128::from(thread.bytes) * left).min(rest),
    };
    threads.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(median: u64, requests: u64) -> Sent {
        Sent {
            median,
            requests,
            bytes: median * requests,
        }
    }

    /// FLOCK §8.3.2: few threads with large requests beside many with small ones do not share a queue pair.
    #[test]
    fn large_and_small_are_apart() {
        let threads = [
            sent(1024, 10),
            sent(64, 80),
            sent(64, 80),
            sent(1024, 10),
            sent(64, 80),
            sent(64, 80),
        ];
        assert_eq!(assign(&threads, 2), [1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn bytes_are_balanced() {
        assert_eq!(assign(&[sent(64, 100); 8], 4), [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    /// FLOCK §8.3.1: if there are as many lanes as threads, no thread shares one.
    #[test]
    fn nobody_shares_who_need_not() {
        for threads in 1..=8u64 {
            let sent: Vec<Sent> = (0..threads).map(|t| sent(64, 42 + t % 2)).collect();
            let mut map = assign(&sent, threads as usize);
            map.sort_unstable();
            assert!(map.iter().copied().eq(0..threads as usize), "{map:?}");
        }
    }

    /// FLOCK §8.3.2, Fig. 11: 32 threads on a client's share of 256 queue pairs, three of them with large requests.
    #[test]
    fn large_requests_take_no_more_lanes_than_threads() {
        let mut threads = [sent(64, 100); 32];
        threads[29..].fill(sent(4096, 100));
        let map = assign(&threads, 11);
        assert_eq!(map[29..], [8, 9, 10]);
        for lane in 0..8 {
            let small = map.iter().filter(|&&l| l == lane).count();
            assert!((3..=4).contains(&small), "{map:?}");
        }
    }

    /// FLOCK §8.2: 16 threads of a client on its share of 256 queue pairs.
    #[test]
    fn no_lane_stays_empty() {
        let map = assign(&[sent(64, 100); 16], 11);
        for lane in 0..11 {
            let threads = map.iter().filter(|&&l| l == lane).count();
            assert!((1..=2).contains(&threads), "{map:?}");
        }
    }

    /// Equal threads stay where they are even if one has sent a little more, and move when a lane is empty or carries
    /// twice its part.
    #[test]
    fn equal_threads_stay() {
        let threads: Vec<Sent> = (0..8).map(|t| sent(64, 100 + (t * 5) % 8)).collect();
        let map = assign(&threads, 4);
        let now = [3, 1, 0, 2, 2, 0, 1, 3];
        assert_ne!(map, now);
        assert!(may_stay(&threads, &now, &map, 4));
        assert!(may_stay(&threads, &map, &map, 4));
        assert!(!may_stay(&threads, &[3, 1, 0, 0, 2, 0, 1, 3], &map, 4));
        assert!(!may_stay(&threads, &[1, 1, 0, 2, 2, 0, 1, 2], &map, 4));
        // Sixteen on eleven lanes, of which one is empty.
        let threads = [sent(64, 100); 16];
        let map = assign(&threads, 11);
        let now: Vec<usize> = (0..16).map(|t| t % 10).collect();
        assert!(!may_stay(&threads, &now, &map, 11));
        // Large requests beside small ones are separated, however evenly bytes are spread.
        let mixed = [sent(64, 160), sent(1024, 10), sent(64, 160), sent(1024, 10)];
        assert!(!may_stay(&mixed, &[0, 0, 1, 1], &assign(&mixed, 2), 2));
    }

    /// As printed, the last two would be on queue pair 2, although there are only 0 and 1.
    #[test]
    fn never_past_the_last_lane() {
        let threads = [sent(1, 10), sent(2, 5), sent(3, 0), sent(4, 0)];
        assert_eq!(assign(&threads, 2), [0, 1, 1, 1]);
        assert!(assign(&[Sent::default(); 5], 3)
            .iter()
            .all(|&lane| lane < 3));
    }

    proptest! {
        #[test]
        fn all_are_assigned_in_order_of_size(threads in prop::collection::vec((1u64..100_000, 0u64..10_000), 0..200), lanes in 1usize..64) {
            let threads: Vec<Sent> = threads.into_iter().map(|(m, r)| sent(m, r)).collect();
            let map = assign(&threads, lanes);
            prop_assert_eq!(map.len(), threads.len());
            prop_assert!(may_stay(&threads, &map, &map, lanes));
            for (a, &lane) in threads.iter().zip(&map) {
                prop_assert!(lane < lanes);
                for (b, &other) in threads.iter().zip(&map) {
                    prop_assert!(a.median >= b.median || lane <= other);
                }
            }
            let senders = threads.iter().filter(|t| t.bytes > 0).count();
            let used = (0..lanes).filter(|&lane| threads.iter().zip(&map).any(|(t, &l)| l == lane && t.bytes > 0)).count();
            prop_assert_eq!(used, senders.min(lanes));
            // No lane has twice its part.
            let weights = weights(&threads, lanes);
            let whole: u128 = weights.iter().sum();
            for lane in 0..lanes {
                let load: u128 = weights.iter().zip(&map).filter(|(_, &l)| l == lane).map(|(w, _)| w).sum();
                prop_assert!(senders < lanes || load * lanes as u128 <= 2 * whole);
            }
        }
    }
}
