//! Tracks which SENDs have arrived: each is accepted once, in whatever order they arrive (Flor §5).

use crate::number::SendNumber;

/// The status of a received number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// The next one: nothing is missing.
    Next,
    /// A new one, but not the next: something is missing, or was.
    OutOfOrder,
    /// It has arrived before.
    Duplicate,
    /// Further ahead than any honest sender.
    TooFar,
}

/// A window of received numbers.
#[derive(Debug)]
pub struct ReceivedNumbers {
    /// All numbers before it have arrived.
    base: SendNumber,
    /// One after the greatest that has arrived.
    end: SendNumber,
    /// One bit for each number of the window, indexed by the number's low bits.
    bits: Vec<u64>,
}

impl ReceivedNumbers {
    /// Maximum window: the numbers that can be distinguished by the shorter way around.
    pub const MAX_WINDOW: u32 = 1 << 30;

    /// The state before the first SEND. `window` is rounded up to a power of two, 64 to
    /// [`ReceivedNumbers::MAX_WINDOW`].
    pub fn new(window: u32) -> Self {
        let window = window.clamp(64, Self::MAX_WINDOW).next_power_of_two();
        Self {
            base: SendNumber(0),
            end: SendNumber(0),
            bits: vec![0; window as usize / 64],
        }
    }

    /// Maximum number of outstanding numbers.
    pub fn window(&self) -> u32 {
        self.bits.len() as u32 * 64
    }

    /// The status that this number would have, without recording it.
    pub fn look(&self, number: SendNumber) -> Novelty {
        match number.distance_from(self.base) {
            ahead if ahead < 0 => Novelty::Duplicate,
            ahead if ahead.unsigned_abs() >= self.window() => Novelty::TooFar,
            _ if self.has(number) => Novelty::Duplicate,
            _ if number == self.end => Novelty::Next,
            _ => Novelty::OutOfOrder,
        }
    }

    /// Records a number and returns its status. Only new ones change the state.
    pub fn take(&mut self, number: SendNumber) -> Novelty {
        let novelty = self.look(number);
        if matches!(novelty, Novelty::Next | Novelty::OutOfOrder) {
            self.set(number, true);
            if number.distance_from(self.end) >= 0 {
                self.end = number.plus(1);
            }
            while self.has(self.base) {
                self.set(self.base, false);
                self.base = self.base.plus(1);
            }
        }
        novelty
    }

    fn place(&self, number: SendNumber) -> (usize, u64) {
        let at = number.0 & (self.window() - 1);
        (at as usize / 64, 1 << (at % 64))
    }

    fn has(&self, number: SendNumber) -> bool {
        let (word, bit) = self.place(number);
        self.bits[word] & bit != 0
    }

    fn set(&mut self, number: SendNumber, come: bool) {
        let (word, bit) = self.place(number);
        if come {
            self.bits[word] |= bit;
        } else {
            self.bits[word] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut numbers = ReceivedNumbers::new(64);
        assert_eq!(numbers.take(SendNumber(0)), Novelty::Next);
        assert_eq!(numbers.take(SendNumber(2)), Novelty::OutOfOrder);
        assert_eq!(numbers.take(SendNumber(2)), Novelty::Duplicate);
        assert_eq!(numbers.take(SendNumber(1)), Novelty::OutOfOrder);
        assert_eq!(numbers.take(SendNumber(0)), Novelty::Duplicate);
        assert_eq!(numbers.take(SendNumber(3)), Novelty::Next);
        assert_eq!(numbers.take(SendNumber(4 + 64)), Novelty::TooFar);
        assert_eq!(numbers.take(SendNumber(3 + 64)), Novelty::OutOfOrder);
    }

    proptest! {
        /// Compared with a set that remembers everything, across the point where the numbers wrap.
        #[test]
        fn it_agrees_with_a_set(steps in prop::collection::vec(-80_i32..80, 1..400)) {
            let mut numbers = ReceivedNumbers::new(64);
            let start = u32::MAX - 100;
            numbers.base = SendNumber(start);
            numbers.end = SendNumber(start);
            let mut seen = HashSet::new();
            let mut base = 0_i64;
            for step in steps {
                let at = base + i64::from(step);
                let number = SendNumber(start.wrapping_add(at as u32));
                let novelty = numbers.take(number);
                if at < base || seen.contains(&at) {
                    prop_assert_eq!(novelty, Novelty::Duplicate);
                } else if at >= base + 64 {
                    prop_assert_eq!(novelty, Novelty::TooFar);
                } else {
                    prop_assert!(matches!(novelty, Novelty::Next | Novelty::OutOfOrder));
                    seen.insert(at);
                    while seen.contains(&base) {
                        base += 1;
                    }
                }
            }
        }
    }
}
