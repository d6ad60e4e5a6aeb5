//! Logging of refusals: one line a second, however many there are.

use std::time::{Duration, Instant};

/// Minimum interval between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Refusals of one kind.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    said: Option<Instant>,
    unsaid: u64,
}

impl Refusals {
    /// Counts a refusal; returns the number to report, if it is time to report it.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self
            .said
            .is_some_and(|said| now.duration_since(said) < PAUSE)
        {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_them_all() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let said = |refusals: &mut Refusals, ms| refusals.count(start + Duration::from_millis(ms));
        assert_eq!(said(&mut refusals, 0), Some(1));
        for ms in 1..1000 {
            assert_eq!(said(&mut refusals, ms), None);
        }
        assert_eq!(said(&mut refusals, 1000), Some(1000));
        assert_eq!(said(&mut refusals, 1001), None);
    }
}
