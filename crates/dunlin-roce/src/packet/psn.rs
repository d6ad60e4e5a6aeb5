//! Packet sequence numbers: 24 bits that wrap (IBTA vol. 1 §9.7.1).

/// Number of packet sequence numbers.
pub const PSN_COUNT: u32 = 1 << 24;

/// A packet sequence number. Two are compared by the shorter way around the circle, so at most 2^23 may be outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The number in the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value % PSN_COUNT)
    }

    /// Its 24 bits.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `packets` later.
    #[must_use]
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// By how many packets `self` comes after `other`; negative if it comes before.
    pub const fn distance_from(self, other: Self) -> i32 {
        let forward = self.0.wrapping_sub(other.0) % PSN_COUNT;
        if forward < PSN_COUNT / 2 {
            forward as i32
        } else {
            forward as i32 - PSN_COUNT as i32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distance_undoes_plus(start in any::<u32>(), packets in 0..PSN_COUNT / 2) {
            let start = Psn::new(start);
            prop_assert_eq!(start.plus(packets).distance_from(start), packets as i32);
            prop_assert_eq!(start.distance_from(start.plus(packets)), -(packets as i32));
        }
    }
}
