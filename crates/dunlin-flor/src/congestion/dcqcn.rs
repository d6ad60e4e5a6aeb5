//! Rate-based control by ECN marks, after DCQCN (Zhu et al., SIGCOMM '15): for networks whose switches mark packets,
//! and for comparison with the NICs' own control.
//!
//! Marks are reported by acknowledgements, so there are no notification packets; marks within one interval count once.
//! Timers are evaluated when an event occurs; nothing runs by itself.

use super::{CongestionControl, Loss, Signals};

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct DcqcnParameters {
    /// The line rate: the initial rate and its maximum.
    pub line_bits_per_second: u64,
    /// The minimum rate.
    pub least_bits_per_second: u64,
    /// Marks within this time count once.
    pub mark_interval_ns: u64,
    /// Without marks, alpha falls after each interval of this length.
    pub alpha_interval_ns: u64,
    /// The rate rises after each interval of this length.
    pub increase_interval_ns: u64,
    /// DCQCN's g: the weight of a new mark in alpha.
    pub alpha_weight: f64,
    /// Number of increases that halve the distance to the target before the target itself rises.
    pub recovery_rises: u32,
    /// Amount by which the target rises.
    pub additive_bits_per_second: u64,
    /// Bounds the bytes in flight, whatever the rate: nothing else does when acknowledgements are missing.
    pub max_window_bytes: u64,
}

impl DcqcnParameters {
    /// The paper's own values, for a line of 100 Gb/s and a window of ten times its bandwidth-delay product at 50 µs.
    pub const DEFAULT: Self = Self {
        line_bits_per_second: 100_000_000_000,
        least_bits_per_second: 10_000_000,
        mark_interval_ns: 50_000,
        alpha_interval_ns: 55_000,
        increase_interval_ns: 55_000,
        alpha_weight: 1.0 / 256.0,
        recovery_rises: 5,
        additive_bits_per_second: 40_000_000,
        max_window_bytes: 6_250_000,
    };
}

/// See the module.
#[derive(Debug)]
pub struct Dcqcn {
    parameters: DcqcnParameters,
    /// Rate in bits per second, now and before the last reduction.
    rate: f64,
    target: f64,
    alpha: f64,
    rises: u32,
    marked_ns: Option<u64>,
    alpha_ns: u64,
    raised_ns: u64,
    not_before_ns: u64,
}

impl Dcqcn {
    /// Creates an instance at the line rate.
    pub fn new(parameters: DcqcnParameters) -> Self {
        let rate = parameters.line_bits_per_second.max(1) as f64;
        Self {
            rate,
            target: rate,
            alpha: 1.0,
            rises: 0,
            marked_ns: None,
            alpha_ns: 0,
            raised_ns: 0,
            not_before_ns: 0,
            parameters,
        }
    }

    /// The rate in bits per second.
    pub fn bits_per_second(&self) -> u64 {
        self.rate as u64
    }

    fn cut(&mut self, now_ns: u64) {
        let within = |then: u64| now_ns.saturating_sub(then) < self.parameters.mark_interval_ns;
        if self.marked_ns.is_some_and(within) {
            return;
        }
        let least = self.parameters.least_bits_per_second.max(1) as f64;
        let weight = self.parameters.alpha_weight;
        self.target = self.rate;
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(least);
        self.alpha = (1.0 - weight) * self.alpha + weight;
        self.marked_ns = Some(now_ns);
        self.alpha_ns = now_ns;
        self.raised_ns = now_ns;
        self.rises = 0;
    }

    /// Applies what the timers would have done until now. A silence counts for at most as many increases as make a
    /// difference.
    fn advance(&mut self, now_ns: u64) {
        let passed = |since: u64, interval: u64| now_ns.saturating_sub(since) / interval.max(1);
        let decays = passed(self.alpha_ns, self.parameters.alpha_interval_ns);
        if decays > 0 {
            let kept = 1.0 - self.parameters.alpha_weight;
            self.alpha *= kept.powi(i32::try_from(decays).unwrap_or(i32::MAX));
            self.alpha_ns = now_ns;
        }
        let rises = passed(self.raised_ns, self.parameters.increase_interval_ns);
        if rises > 0 {
            self.raised_ns = now_ns;
        }
        let line = self.parameters.line_bits_per_second.max(1) as f64;
        for _ in 0..rises {
            if self.rises >= self.parameters.recovery_rises {
                let step = self.parameters.additive_bits_per_second as f64;
                self.target = (self.target + step).min(line);
            }
            self.rises = self.rises.saturating_add(1);
            self.rate = (self.rate + self.target) / 2.0;
            if line - self.rate < 1.0 {
                self.rate = line;
                break;
            }
            if self.target <= self.rate && self.parameters.additive_bits_per_second == 0 {
                break;
            }
        }
    }
}

impl CongestionControl for Dcqcn {
    fn sent(&mut self, now_ns: u64, bytes: u64) {
        self.advance(now_ns);
        let line_ns = bytes as f64 * 8e9 / self.rate;
        let begun_ns = self.not_before_ns.max(now_ns);
        self.not_before_ns = begun_ns.saturating_add(line_ns as u64);
    }

    fn acknowledged(&mut self, now_ns: u64, signals: Signals) {
        self.advance(now_ns);
        if signals.marked {
            self.cut(now_ns);
        }
    }

    fn lost(&mut self, now_ns: u64, _: Loss) {
        self.advance(now_ns);
        self.cut(now_ns);
    }

    fn window_bytes(&self) -> u64 {
        self.parameters.max_window_bytes
    }

    fn not_before_ns(&self) -> u64 {
        self.not_before_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: Signals = Signals {
        bytes: 4096,
        rtt_ns: None,
        marked: true,
    };
    const GIGABIT: u64 = 1_000_000_000;

    #[test]
    fn a_first_mark_halves_and_others_of_its_interval_do_nothing() {
        let mut dcqcn = Dcqcn::new(DcqcnParameters::DEFAULT);
        dcqcn.acknowledged(10, MARKED);
        dcqcn.acknowledged(20, MARKED);
        dcqcn.lost(30, Loss::Overtaken(1));
        assert_eq!(dcqcn.bits_per_second(), 50 * GIGABIT);
        dcqcn.acknowledged(50_010, MARKED);
        assert_eq!(dcqcn.bits_per_second(), 25 * GIGABIT);
    }

    #[test]
    fn it_recovers_by_halves_and_then_by_steps() {
        let mut dcqcn = Dcqcn::new(DcqcnParameters::DEFAULT);
        dcqcn.acknowledged(0, MARKED);
        dcqcn.acknowledged(50_000, MARKED);
        dcqcn.acknowledged(
            105_000,
            Signals {
                marked: false,
                ..MARKED
            },
        );
        assert_eq!(dcqcn.bits_per_second(), 75 * GIGABIT / 2);
        for rise in 2..=5 {
            dcqcn.advance(50_000 + rise * 55_000);
        }
        assert!(dcqcn.bits_per_second() > 49 * GIGABIT && dcqcn.bits_per_second() < 50 * GIGABIT);
        dcqcn.advance(u64::MAX / 2);
        assert_eq!(dcqcn.bits_per_second(), 100 * GIGABIT);
    }

    #[test]
    fn bytes_are_spaced_by_the_rate() {
        let mut dcqcn = Dcqcn::new(DcqcnParameters::DEFAULT);
        dcqcn.sent(1_000, 12_500);
        assert_eq!(dcqcn.not_before_ns(), 2_000);
        dcqcn.sent(1_000, 12_500);
        assert_eq!(dcqcn.not_before_ns(), 3_000);
        dcqcn.sent(10_000, 12_500);
        assert_eq!(dcqcn.not_before_ns(), 11_000);
        for at in 0..100 {
            dcqcn.lost(20_000 + at * 50_000, Loss::Overtaken(1));
        }
        assert_eq!(dcqcn.bits_per_second(), 10_000_000);
    }
}
