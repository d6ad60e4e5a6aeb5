//! The number of queue pairs that each sender keeps active: formula (1) of FLOCK §5.1, as pure functions.
//!
//! Decided here, as the paper leaves it open: fractions are rounded by largest remainder (ties to the lower index);
//! every sender, even a dormant one or one with little load, has at least one queue pair; the sum stays within the
//! maximum if there are not more senders than that; and what a sender cannot use, because it has fewer lanes, goes to
//! the others.

/// Maximum number of queue pairs that a server keeps active (FLOCK's MAX_AQP).
pub(crate) const MAX_ACTIVE: usize = 256;

/// A sender in one interval of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Sum of the degrees that it reported on its active queue pairs (U_i). Zero if it is dormant.
    pub(crate) utilisation: u64,
    /// Number of its lanes.
    pub(crate) lanes: usize,
}

/// Number of active queue pairs for each sender (AQP_i), at most `most` in total if there are not more senders than
/// that.
pub(crate) fn distribute(senders: &[Load], most: usize) -> Vec<usize> {
    let mut active: Vec<usize> = senders.iter().map(|load| load.lanes.min(1)).collect();
    // Dormant senders keep one each; functioning ones share what is left, in rounds, because a sender may have fewer
    // lanes than its share.
    let mut open: Vec<usize> = (0..senders.len())
        .filter(|&i| senders[i].utilisation > 0 && senders[i].lanes > 1)
        .collect();
    while !open.is_empty() {
        let held: usize = active.iter().sum();
        let own: usize = open.iter().map(|&i| active[i]).sum();
        // What the open senders hold is part of what they share.
        let pool = most.saturating_sub(held - own);
        let shares = portions(&open, senders, pool);
        let full: Vec<usize> = open
            .iter()
            .zip(&shares)
            .filter(|&(&i, &share)| share >= senders[i].lanes)
            .map(|(&i, _)| i)
            .collect();
        if full.is_empty() {
            for (&i, share) in open.iter().zip(shares) {
                active[i] = share;
            }
            break;
        }
        for &i in &full {
            active[i] = senders[i].lanes;
        }
        open.retain(|i| !full.contains(i));
    }
    active
}

/// `pool` in portions by utilisation, each at least one, by largest remainder.
fn portions(open: &[usize], senders: &[Load], pool: usize) -> Vec<usize> {
    let mut fixed = vec![false; open.len()];
    loop {
        let ones = fixed.iter().filter(|&&one| one).count();
        let rest = pool.saturating_sub(ones) as u128;
        let sum: u128 = (0..open.len())
            .filter(|&k| !fixed[k])
            .map(|k| u128::from(senders[open[k]].utilisation))
            .sum();
        if sum == 0 {
            return vec![1; open.len()];
        }
        let exact = |k: usize| u128::from(senders[open[k]].utilisation) * rest;
        // Senders that would get less than one get one, and the others share the rest.
        let slight: Vec<usize> = (0..open.len())
            .filter(|&k| !fixed[k] && exact(k) < sum)
            .collect();
        if !slight.is_empty() {
            for k in slight {
                fixed[k] = true;
            }
            continue;
        }
        let mut shares: Vec<usize> = (0..open.len())
            .map(|k| {
                if fixed[k] {
                    1
                } else {
                    (exact(k) / sum) as usize
                }
            })
            .collect();
        let given: usize = shares.iter().sum();
        let mut by_remainder: Vec<usize> = (0..open.len()).filter(|&k| !fixed[k]).collect();
        by_remainder.sort_by_key(|&k| (std::cmp::Reverse(exact(k) % sum), k));
        for &k in by_remainder.iter().take(pool.saturating_sub(given)) {
            shares[k] += 1;
        }
        return shares;
    }
}

/// Number of queue pairs of a new sender: the average of the functioning senders, `most` divided by their number,
/// itself included.
pub(crate) fn newcomers_share(functioning: usize, most: usize) -> usize {
    (most / (functioning + 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn loads(utilisation: &[u64], lanes: usize) -> Vec<Load> {
        utilisation
            .iter()
            .map(|&utilisation| Load { utilisation, lanes })
            .collect()
    }

    /// Formula (1) as printed: 256 * 3 / 4 and 256 * 1 / 4.
    #[test]
    fn shares_follow_utilisation() {
        assert_eq!(distribute(&loads(&[30, 10], 256), 256), [192, 64]);
        assert_eq!(distribute(&loads(&[1, 1, 1], 256), 256), [86, 85, 85]);
    }

    /// FLOCK §8.5: 20 clients with 16 threads each, alike in load, share 256 active queue pairs.
    #[test]
    fn the_twenty_clients_of_flocktx() {
        let active = distribute(&loads(&[7; 20], 16), MAX_ACTIVE);
        assert_eq!(active.iter().sum::<usize>(), 256);
        assert!(active.iter().all(|&lanes| lanes == 12 || lanes == 13));
        // Up to eight threads nothing is shared: 160 queue pairs.
        assert_eq!(distribute(&loads(&[7; 20], 8), MAX_ACTIVE), [8; 20]);
    }

    #[test]
    fn the_dormant_keep_one_and_newcomers_get_the_average() {
        assert_eq!(distribute(&loads(&[0, 5, 0], 300), 256), [1, 254, 1]);
        assert_eq!(newcomers_share(3, 256), 64);
        assert_eq!(newcomers_share(0, 256), 256);
        assert_eq!(newcomers_share(1000, 256), 1);
    }

    #[test]
    fn the_slight_get_one_and_what_is_not_used_goes_on() {
        assert_eq!(distribute(&loads(&[1, 1_000_000], 10), 8), [1, 7]);
        let mut senders = loads(&[90, 10], 100);
        senders[0].lanes = 4;
        assert_eq!(distribute(&senders, 16), [4, 12]);
    }

    proptest! {
        #[test]
        fn within_bounds(senders in prop::collection::vec((prop_oneof![Just(0u64), 1u64..1000, any::<u64>()], 0usize..70), 0..400),
            most in 1usize..300) {
            let senders: Vec<Load> =
                senders.into_iter().map(|(utilisation, lanes)| Load { utilisation, lanes }).collect();
            let active = distribute(&senders, most);
            let present = senders.iter().filter(|load| load.lanes > 0).count();
            let sum: usize = active.iter().sum();
            prop_assert!(sum <= most.max(present));
            for (load, &active) in senders.iter().zip(&active) {
                prop_assert!(active <= load.lanes && active >= load.lanes.min(1));
                if load.utilisation == 0 {
                    prop_assert!(active <= 1);
                }
            }
            // Nothing is left unused while a functioning sender could use it.
            let wanted: usize = senders.iter().map(|l| if l.utilisation > 0 { l.lanes } else { l.lanes.min(1) }).sum();
            prop_assert_eq!(sum, wanted.min(most.max(present)));
        }

        #[test]
        fn more_load_is_never_less(a in 1u64..1000, b in 1u64..1000, most in 2usize..300) {
            let active = distribute(&loads(&[a, b], 300), most);
            prop_assert!(a < b || active[0] >= active[1]);
        }
    }
}
