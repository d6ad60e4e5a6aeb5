//! The clock that hardware stamps completions with: ticks of some width and frequency, as nanoseconds that go on.

/// Ticks become nanoseconds by a multiplication, because this is on the path of each completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    mask: u64,
    /// Nanoseconds of a tick, times two to the 32.
    factor: u64,
    last: u64,
    /// Ticks since the clock's own beginning, of the last stamp; `None` before the first.
    total: Option<u64>,
}

impl Clock {
    /// A clock of the bits in `mask` that ticks `khz` times in a millisecond; `None` for one that does not.
    pub(crate) fn new(mask: u64, khz: u64) -> Option<Self> {
        if mask == 0 || khz == 0 {
            return None;
        }
        let factor = (1_000_000u128 << 32) / u128::from(khz);
        Some(Self {
            mask,
            factor: u64::try_from(factor).ok()?,
            last: 0,
            total: None,
        })
    }

    /// The stamp of the next completion. Stamps of one queue come nearly in order, so the nearer way round the clock is
    /// the way that it went, forwards or slightly back.
    #[inline]
    pub(crate) fn nanoseconds(&mut self, ticks: u64) -> u64 {
        let ticks = ticks & self.mask;
        let ahead = ticks.wrapping_sub(self.last) & self.mask;
        let total = match self.total {
            None => ticks,
            Some(total) if ahead <= self.mask / 2 => total.wrapping_add(ahead),
            Some(total) => total.wrapping_sub(self.mask.wrapping_sub(ahead).wrapping_add(1)),
        };
        (self.last, self.total) = (ticks, Some(total));
        ((u128::from(total) * u128::from(self.factor)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_nanoseconds() {
        let mut clock = Clock::new(u64::MAX, 156_250).expect("a clock");
        assert_eq!(clock.nanoseconds(156_250_000), 999_999_999);
        let mut clock = Clock::new(u64::MAX, 1_000_000).expect("a clock");
        assert_eq!(clock.nanoseconds(12_345), 12_345);
        assert_eq!(Clock::new(0, 1000), None);
        assert_eq!(Clock::new(u64::MAX, 0), None);
    }

    #[test]
    fn goes_on_where_the_ticks_begin_anew() {
        let mut clock = Clock::new(0xffff, 1_000_000).expect("a clock");
        assert_eq!(clock.nanoseconds(0xfff0), 0xfff0);
        assert_eq!(clock.nanoseconds(0x0010), 0x1_0010);
        // Slightly back is not anew.
        assert_eq!(clock.nanoseconds(0x000e), 0x1_000e);
        assert_eq!(clock.nanoseconds(0xfffe), 0xfffe);
        assert_eq!(clock.nanoseconds(0x7000), 0x1_7000);
        assert_eq!(clock.nanoseconds(0xc000), 0x1_c000);
        assert_eq!(clock.nanoseconds(0x0001), 0x2_0001);
    }
}
