//! Additional latency of a line from memory: its row may not be open, and its rank may be being refreshed.
//!
//! This is not a queue: cores do not compete for memory here. It keeps threads that start together from staying
//! synchronized for ever.

use crate::event::Ps;
use crate::parameters::HostParameters;
use crate::random::mix;

/// The memory of a host, as seen by a core that waits for a line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dram {
    spread: Ps,
    refresh: Ps,
    /// Share of the time, in units of 2^-32.
    refresh_share: u64,
}

impl Dram {
    pub(crate) const NONE: Self = Self {
        spread: 0,
        refresh: 0,
        refresh_share: 0,
    };

    pub(crate) fn of(host: &HostParameters) -> Self {
        Self {
            spread: host.memory_spread,
            refresh: host.refresh,
            refresh_share: (host.refresh_share * (1u64 << 32) as f64) as u64,
        }
    }

    /// Additional latency of a line requested at time `at` by this thread; the same in each run.
    #[inline]
    pub(crate) fn delay(&self, at: Ps, thread: u32) -> Ps {
        if self.spread == 0 && self.refresh_share == 0 {
            return 0;
        }
        let draw = mix(at ^ u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let part = |whole: Ps, of: u64| (whole * (of & 0xffff_ffff)) >> 32;
        let row = part(self.spread, draw);
        match draw >> 32 < self.refresh_share {
            true => row + part(self.refresh, mix(draw)),
            false => row,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_and_repeat() {
        let dram = Dram {
            spread: 20,
            refresh: 1_000,
            refresh_share: 1 << 28,
        };
        let all: Vec<Ps> = (0..10_000).map(|at| dram.delay(at, 3)).collect();
        let refreshed = all.iter().filter(|&&delay| delay > 20).count();
        // A sixteenth of them, except those that waited for the end of a refresh.
        assert!((550..680).contains(&refreshed), "{refreshed}");
        assert!(all.iter().all(|&delay| delay < 1_020));
        let short: Vec<_> = all.iter().filter(|&&delay| delay < 20).collect();
        let mean = short.iter().copied().sum::<Ps>() as f64 / short.len() as f64;
        assert!((9.0..10.0).contains(&mean), "{mean}");
        assert_eq!(dram.delay(7, 3), all[7]);
        assert_ne!(
            (0..9).map(|at| dram.delay(at, 4)).collect::<Vec<_>>(),
            all[..9]
        );
        assert_eq!(Dram::NONE.delay(7, 3), 0);
    }
}
