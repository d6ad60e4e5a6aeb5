//! Whether a client is between two batches: a turn that ends in the middle of one cuts it in two.
//!
//! Each request tells how many of its client's calls were out when it left, itself among them: a batch of three tells
//! 1, 2 and 3, and one call after the other from a window of three always 3. What was told comes again with the next
//! batch, and then the last one was whole.

use super::CALLS;

/// What the requests of a client have told, as sets of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// Since something came again, and before that.
    told: u32,
    whole: u32,
}

impl Batch {
    /// A request tells that so many calls are out. No number does harm: it is the client's own turn that ends earlier
    /// or later.
    #[inline]
    pub(super) fn took(&mut self, out: u16) {
        let bit = 1 << usize::from(out).min(CALLS);
        if self.told & bit != 0 {
            self.whole = std::mem::take(&mut self.told);
        }
        self.told |= bit;
    }

    /// Whether as much was told as by the batch before.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.told == self.whole
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ends(told: &[u16]) -> Vec<bool> {
        let mut batch = Batch::default();
        let ends = told.iter().map(|&out| {
            batch.took(out);
            batch.is_whole()
        });
        ends.collect()
    }

    #[test]
    fn batches_end_with_their_last_request_in_whatever_order_it_is_found() {
        assert_eq!(
            ends(&[1, 2, 3, 2, 3, 1, 3, 1, 2])[2..],
            [false, false, false, true, false, false, true]
        );
        assert_eq!(ends(&[1, 1, 1]), [false, true, true]);
    }

    #[test]
    fn whoever_has_a_window_of_calls_is_always_between_two() {
        assert_eq!(ends(&[1, 2, 3, 3, 3, 3])[4..], [true, true]);
    }

    #[test]
    fn another_size_is_noticed() {
        assert_eq!(ends(&[1, 2, 3, 1, 1])[3..], [false, true]);
        assert_eq!(ends(&[1, 1, 2, 1, 2])[1..], [true, false, false, true]);
        assert_eq!(ends(&[u16::MAX, u16::MAX]), [false, true]);
    }
}
