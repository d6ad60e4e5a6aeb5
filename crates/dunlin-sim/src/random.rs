//! Random numbers: one generator for each component, seeded from the cluster's seed and the component's own name.

/// SplitMix64 (Steele, Lea, Flood 2014): one chain of multiplications per number, the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of the component `(kind, number)`; components do not affect each other's sequences.
    pub(crate) fn of(seed: u64, kind: &str, number: u64) -> Self {
        let mut state = mix(seed ^ 0x5851_f42d_4c95_7f2d);
        for byte in kind.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(mix(state ^ number))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform below `bound`, which is not zero.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability.
    #[inline]
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64) < probability
    }
}

/// The finalizer of SplitMix64, also used as a hash.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_differ_and_repeat() {
        let first = Random::of(1, "nic", 0).next();
        assert_eq!(first, Random::of(1, "nic", 0).next());
        assert_ne!(first, Random::of(1, "nic", 1).next());
        assert_ne!(first, Random::of(1, "fault", 0).next());
        assert_ne!(first, Random::of(2, "nic", 0).next());
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::of(7, "test", 0);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)));
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2200..2800).contains(&hits));
    }
}
