//! The clock of hardware timestamps: converts ticks of some width and frequency to nanoseconds that do not wrap.

/// Ticks are converted to nanoseconds by a multiplication, because this is on the path of each completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    mask: u64,
    /// Nanoseconds per tick, times 2^32.
    factor: u64,
    last: u64,
    /// Ticks of the last timestamp since the clock's beginning; `None` before the first.
    total: Option<u64>,
}

impl Clock {
    /// Creates a clock with the bits in `mask` and a frequency of `khz`; `None` if it does not run.
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

    /// Converts the timestamp of the next completion. Timestamps of one queue come nearly in order, so the shorter way
    /// around the clock is the actual one, forwards or slightly backwards.
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
        // Slightly backwards is not a wrap.
        assert_eq!(clock.nanoseconds(0x000e), 0x1_000e);
        assert_eq!(clock.nanoseconds(0xfffe), 0xfffe);
        assert_eq!(clock.nanoseconds(0x7000), 0x1_7000);
        assert_eq!(clock.nanoseconds(0xc000), 0x1_c000);
        assert_eq!(clock.nanoseconds(0x0001), 0x2_0001);
    }
}
