//! Random numbers for loads: xorshift from the seed, separate from those of the cluster.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1);
        for _ in 0..8 {
            dice.next();
        }
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 |= u64::from(self.0 == 0);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// A number in this range, both ends included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// True in `part` of `whole` cases.
    pub(crate) fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.next() % whole < part
    }
}

/// Bytes that are unique to this number of this source.
pub(crate) fn bytes_of(source: u64, number: u64, length: usize) -> Vec<u8> {
    let (of_source, of_number) = (0x9e37_79b9, 0x85eb_ca6b);
    let mut state = (source.wrapping_add(1).wrapping_mul(of_source))
        .wrapping_add(number.wrapping_mul(of_number))
        .wrapping_add(1);
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}
