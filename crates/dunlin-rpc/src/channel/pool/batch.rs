//! Whether a client is between two batches: a turn that ends in the middle of one would split it.
//!
//! Each request states how many calls of its client were outstanding when it was sent, including itself: the requests
//! of a batch of three state 1, 2 and 3, and single calls from a window of three always 3. When a number recurs, the
//! next batch has begun, and the last one was complete.

use super::CALLS;

/// The numbers that the requests of a client have stated, as sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// Those since a number recurred, and those before.
    told: u32,
    whole: u32,
}

impl Batch {
    /// A request states that `out` calls are outstanding. No number does harm: only the client's own turn ends earlier
    /// or later.
    #[inline]
    pub(super) fn took(&mut self, out: u16) {
        let bit = 1 << usize::from(out).min(CALLS);
        if self.told & bit != 0 {
            self.whole = std::mem::take(&mut self.told);
        }
        self.told |= bit;
    }

    /// Whether as many numbers were stated as in the batch before.
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
