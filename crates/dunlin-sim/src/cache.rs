//! Set-associative caches of the NIC: contexts, work queue elements, translations.

use crate::random::{mix, Random};

/// A cache that stores only keys. A salted hash maps keys to sets, so which keys collide differs between NICs and
/// between seeds, as queue pair numbers do on hardware. The victim in a full set is random or the oldest.
#[derive(Debug)]
pub(crate) struct Cache {
    tags: Vec<u64>,
    ways: usize,
    sets: u64,
    salt: u64,
    /// The next victim of each set when the oldest is evicted first.
    oldest: Vec<u8>,
    random: Option<Random>,
    /// Number of lookups that found their key.
    pub(crate) hits: u64,
    /// Number of lookups that did not.
    pub(crate) misses: u64,
}

const EMPTY: u64 = u64::MAX;

impl Cache {
    /// Creates a cache of `sets` times `ways` entries. With a generator the victim is random, without one it is the
    /// oldest.
    pub(crate) fn new(sets: usize, ways: usize, salt: u64, random: Option<Random>) -> Self {
        let (sets, ways) = (sets.max(1), ways.clamp(1, 255));
        Self {
            tags: vec![EMPTY; sets * ways],
            ways,
            sets: sets as u64,
            salt,
            oldest: vec![0; if random.is_some() { 0 } else { sets }],
            random,
            hits: 0,
            misses: 0,
        }
    }

    fn set(&self, set_key: u64) -> usize {
        ((u128::from(mix(set_key ^ self.salt)) * u128::from(self.sets)) >> 64) as usize
    }

    /// Looks `key` up and inserts it if it is missing. Returns whether it was there.
    #[inline]
    pub(crate) fn touch(&mut self, key: u64) -> bool {
        self.touch_in(key, key)
    }

    /// Like [`Cache::touch`], in the set that `set_key` chooses.
    #[inline]
    pub(crate) fn touch_in(&mut self, set_key: u64, key: u64) -> bool {
        let set = self.set(set_key);
        let ways = &mut self.tags[set * self.ways..][..self.ways];
        if ways.contains(&key) {
            self.hits += 1;
            return true;
        }
        self.misses += 1;
        let victim = match ways.iter().position(|&tag| tag == EMPTY) {
            Some(free) => free,
            None => match &mut self.random {
                Some(random) => random.below(self.ways as u64) as usize,
                None => {
                    let oldest = &mut self.oldest[set];
                    let victim = usize::from(*oldest);
                    *oldest = ((victim + 1) % self.ways) as u8;
                    victim
                }
            },
        };
        ways[victim] = key;
        false
    }

    /// Removes `key`, which was inserted into the set of `set_key`.
    pub(crate) fn forget_in(&mut self, set_key: u64, key: u64) {
        let set = self.set(set_key);
        let ways = &mut self.tags[set * self.ways..][..self.ways];
        if let Some(found) = ways.iter_mut().find(|tag| **tag == key) {
            *found = EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays() {
        let mut cache = Cache::new(1, 8, 0, None);
        for round in 0..3 {
            for key in 0..8 {
                assert_eq!(cache.touch_in(0, key), round > 0);
            }
        }
        assert!(!cache.touch_in(0, 8) && !cache.touch_in(0, 0));
    }

    #[test]
    fn cyclic_use_of_more_than_fits_always_misses_the_oldest_first() {
        let mut cache = Cache::new(1, 4, 0, None);
        for _ in 0..10 {
            for key in 0..5 {
                assert!(!cache.touch_in(0, key));
            }
        }
    }

    #[test]
    fn random_victims_miss_by_the_overflow() {
        let mut cache = Cache::new(64, 4, 0, Some(Random::of(1, "cache", 0)));
        let mut keys = Random::of(2, "keys", 0);
        for _ in 0..10_000 {
            cache.touch(keys.below(1024));
        }
        (cache.hits, cache.misses) = (0, 0);
        for _ in 0..100_000 {
            cache.touch(keys.below(1024));
        }
        let rate = cache.misses as f64 / 100_000.0;
        assert!(
            (0.70..0.80).contains(&rate),
            "{rate} of uniform keys, 256 of 1024 fit"
        );
    }

    /// Number of misses of sixteen keys over ten rounds, where sixteen would fit.
    fn misses(salt: u64) -> u64 {
        let mut cache = Cache::new(8, 2, salt, Some(Random::of(3, "cache", 0)));
        for _ in 0..10 {
            for key in 0..16 {
                cache.touch(key);
            }
        }
        cache.misses
    }

    #[test]
    fn the_salt_draws_which_keys_collide() {
        let drawn: std::collections::BTreeSet<u64> =
            (0..20).map(|salt| misses(salt << 40)).collect();
        assert!(drawn.len() > 5, "{drawn:?}");
        assert_eq!(misses(7), misses(7));
    }
}
