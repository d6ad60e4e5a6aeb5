//! The NIC's own clock, which timestamps completions: it has an offset and runs a little fast or slow.

use crate::event::{Ps, NS};
use crate::parameters::NicParameters;
use crate::random::Random;

/// Parts per billion in a part per million.
const PER_MILLION: f64 = 1_000.0;
const BILLION: i128 = 1_000_000_000;

/// The clock of a NIC; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ahead: Ps,
    /// Drift in parts per billion; positive if the clock is fast.
    gain: i64,
}

impl Clock {
    /// The clock of a host's NIC, drawn within the limits of the parameters.
    pub(crate) fn draw(parameters: &NicParameters, seed: u64, host: u64) -> Self {
        let mut random = Random::of(seed, "clock", host);
        let ahead = (parameters.clock_offset_ns * NS as f64) as u64;
        let most = (parameters.clock_drift_ppm * PER_MILLION) as u64;
        Self {
            ahead: random.below(ahead + 1),
            gain: random.below(2 * most + 1) as i64 - most as i64,
        }
    }

    /// The clock's reading at a time of the simulation, in nanoseconds.
    pub(crate) fn ns(&self, now: Ps) -> u64 {
        let gained = i128::from(now) * i128::from(self.gain) / BILLION;
        let shown = i128::from(now) + gained + i128::from(self.ahead);
        (shown / i128::from(NS)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_parameters_it_is_the_time_of_the_simulation() {
        let clock = Clock::draw(&NicParameters::connectx_5(), 7, 3);
        for now in [0, 999, 1_000, 123_456_789_012_345] {
            assert_eq!(clock.ns(now), now / NS);
        }
    }

    #[test]
    fn each_differs_within_bounds() {
        let mut nic = NicParameters::connectx_5();
        (nic.clock_drift_ppm, nic.clock_offset_ns) = (100.0, 5_000.0);
        let clocks: Vec<Clock> = (0..64).map(|host| Clock::draw(&nic, 1, host)).collect();
        assert!(clocks.iter().any(|clock| clock.gain > 50_000));
        assert!(clocks.iter().any(|clock| clock.gain < -50_000));
        let second = 1_000_000_000 * NS;
        for clock in &clocks {
            assert!(clock.gain.abs() <= 100_000 && clock.ahead <= 5_000 * NS);
            let went = clock.ns(second) as i64 - clock.ns(0) as i64 - 1_000_000_000;
            assert!((went - clock.gain).abs() <= 1, "{went} {clock:?}");
        }
    }
}
