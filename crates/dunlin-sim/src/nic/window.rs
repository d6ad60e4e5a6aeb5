//! Congestion control by a window of what a queue pair has sent without an acknowledgement, as Intel's and Broadcom's
//! NICs do it.
//!
//! Both learn of marks by notifications, as DCQCN does. *DCQCN by window* (irdma, `dcqcn_*` of its driver) cuts the
//! window where the other cuts the rate, with a minimum interval between cuts, and raises it by a timer and by bytes
//! sent. *DCTCP* (Alizadeh et al., SIGCOMM'10) measures, for each window, for what share of its packets a notification
//! arrived.

use crate::event::Ps;
use crate::parameters::NicParameters;

/// The algorithm of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Dcqcn,
    Dctcp,
}

/// The window of a queue pair that was notified of congestion, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    algorithm: Algorithm,
    packets: f64,
    /// DCQCN: the window to recover to.
    target: f64,
    alpha: f64,
    alpha_at: Ps,
    /// Number of raises since the last cut.
    rounds: u32,
    cut_at: Option<Ps>,
    /// DCQCN: time of the last raise, and bytes sent since.
    raised_at: Ps,
    bytes: f64,
    /// DCTCP: packets and notifications since this window began, and the sequence number that ends it.
    sent: u32,
    notified: u32,
    ends_psn: u64,
}

impl Window {
    /// Whether these NICs use a window.
    pub(super) fn is_used(parameters: &NicParameters) -> bool {
        parameters.congestion_control >= 2.0
    }

    /// Creates a window of the maximum size.
    pub(super) fn new(parameters: &NicParameters, now: Ps, next_psn: u64) -> Self {
        let most = Self::most(parameters);
        Self {
            algorithm: match parameters.congestion_control >= 3.0 {
                true => Algorithm::Dctcp,
                false => Algorithm::Dcqcn,
            },
            packets: most,
            target: most,
            alpha: 1.0,
            alpha_at: now,
            rounds: 0,
            cut_at: None,
            raised_at: now,
            bytes: 0.0,
            sent: 0,
            notified: 0,
            ends_psn: next_psn,
        }
    }

    /// Maximum window, in packets.
    pub(super) fn most(parameters: &NicParameters) -> f64 {
        parameters.window_packets.max(1.0)
    }

    /// Number of packets that may be in flight: at least one, or no acknowledgement would ever arrive.
    pub(super) fn packets(&self) -> u64 {
        self.packets.max(1.0) as u64
    }

    /// Whether the window has recovered completely.
    pub(super) fn is_wide(&self, parameters: &NicParameters) -> bool {
        self.packets >= Self::most(parameters)
    }

    /// Handles a notification.
    pub(super) fn notified(&mut self, parameters: &NicParameters, now: Ps) {
        self.notified += 1;
        if self.algorithm == Algorithm::Dctcp {
            return;
        }
        let least = (parameters.reduce_interval_ns * 1_000.0) as Ps;
        if self.cut_at.is_some_and(|at| now < at + least) {
            return;
        }
        let gain = parameters.alpha_gain;
        let quiet = (now - self.alpha_at)
            .checked_div(parameters.alpha_period)
            .unwrap_or(0);
        self.alpha *= (1.0 - gain).powi(quiet.min(10_000) as i32);
        self.alpha = (1.0 - gain) * self.alpha + gain;
        self.alpha_at = now;
        self.target = self.packets;
        self.cut(self.alpha / 2.0, now);
        (self.raised_at, self.bytes) = (now, 0.0);
    }

    fn cut(&mut self, share: f64, now: Ps) {
        self.packets = (self.packets * (1.0 - share)).max(1.0);
        self.rounds = 0;
        self.cut_at = Some(now);
    }

    /// Accounts for a packet of this many bytes.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent += 1;
        self.bytes += bytes as f64;
    }

    /// Handles an acknowledgement of everything before `psn`; `next_psn` is the next packet to be sent.
    pub(super) fn heard(&mut self, parameters: &NicParameters, now: Ps, psn: u64, next_psn: u64) {
        match self.algorithm {
            Algorithm::Dcqcn => self.raise(parameters, now),
            Algorithm::Dctcp if psn >= self.ends_psn => self.end_window(parameters, now, next_psn),
            Algorithm::Dctcp => {}
        }
    }

    /// Carries out DCQCN's rounds that are due by the timer or by bytes, whichever are more.
    fn raise(&mut self, parameters: &NicParameters, now: Ps) {
        let period = parameters.increase_period.max(1);
        let by_time = (now - self.raised_at) / period;
        let by_bytes = match parameters.increase_bytes > 0.0 {
            true => (self.bytes / parameters.increase_bytes) as u64,
            false => 0,
        };
        let rounds = by_time.max(by_bytes);
        if rounds == 0 {
            return;
        }
        (self.raised_at, self.bytes) = (now, 0.0);
        let fast = parameters.recovery_rounds as u32;
        for _ in 0..rounds.min(1_000) {
            self.rounds += 1;
            if self.rounds > 5 * fast.max(1) {
                self.target += parameters.hyper_packets;
            } else if self.rounds > fast {
                self.target += parameters.additive_packets;
            }
            self.target = self.target.min(Self::most(parameters));
            self.packets = (self.packets + self.target) / 2.0;
        }
        // Repeated halving of the difference would never reach the target.
        if self.target - self.packets < 0.5 {
            self.packets = self.target;
        }
    }

    /// Ends a window of DCTCP: cuts by the share that was marked, or adds a packet.
    fn end_window(&mut self, parameters: &NicParameters, now: Ps, next_psn: u64) {
        let marked = (f64::from(self.notified) / f64::from(self.sent.max(1))).min(1.0);
        let gain = parameters.alpha_gain;
        self.alpha = (1.0 - gain) * self.alpha + gain * marked;
        match self.notified > 0 {
            true => self.cut(self.alpha / 2.0, now),
            false => {
                let wider = self.packets + parameters.additive_packets;
                self.packets = wider.min(Self::most(parameters));
            }
        }
        (self.sent, self.notified) = (0, 0);
        self.ends_psn = next_psn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Ps = 1_000_000;

    fn parameters(algorithm: f64) -> NicParameters {
        let mut nic = NicParameters::connectx_5();
        (nic.congestion_control, nic.window_packets) = (algorithm, 100.0);
        (nic.alpha_gain, nic.alpha_period) = (1.0 / 16.0, 55 * US);
        (nic.increase_period, nic.increase_bytes) = (55 * US, 150_000.0);
        (nic.recovery_rounds, nic.reduce_interval_ns) = (5.0, 50_000.0);
        (nic.additive_packets, nic.hyper_packets) = (1.0, 5.0);
        nic
    }

    #[test]
    fn dcqcn_by_window_falls_at_intervals_and_recovers_by_time_and_bytes() {
        let nic = parameters(2.0);
        let mut window = Window::new(&nic, 0, 0);
        window.notified(&nic, 0);
        assert_eq!((window.packets(), window.is_wide(&nic)), (50, false));
        window.notified(&nic, 49 * US);
        assert_eq!(window.packets(), 50, "too soon");
        // Fast recovery: half of the way to the earlier window with each round, by the timer ...
        window.heard(&nic, 55 * US, 1, 1);
        assert_eq!(window.packets(), 75);
        // ... or by bytes sent.
        window.sent(150_000);
        window.heard(&nic, 56 * US, 1, 1);
        assert_eq!(window.packets(), 87);
        window.heard(&nic, 2_000 * US, 1, 1);
        assert!(window.is_wide(&nic));
        (0..100).for_each(|cut| window.notified(&nic, (3_000 + 50 * cut) * US));
        assert_eq!(window.packets(), 1, "something may always be out");
    }

    #[test]
    fn dctcp_cuts_by_the_share_that_was_marked_once_a_window() {
        let nic = parameters(3.0);
        let mut window = Window::new(&nic, 0, 10);
        (0..10).for_each(|_| window.sent(1_000));
        window.notified(&nic, US);
        assert_eq!(window.packets(), 100, "not before the window ends");
        window.heard(&nic, 2 * US, 9, 20);
        assert_eq!(window.packets(), 100);
        window.heard(&nic, 3 * US, 10, 20);
        // Alpha began at 1: 15/16 of it and a sixteenth of a tenth, and half of that is cut.
        let alpha = 15.0 / 16.0 + 0.1 / 16.0;
        let cut = 100.0 * (1.0 - alpha / 2.0);
        assert_eq!(window.packets(), cut as u64);
        window.sent(1_000);
        window.heard(&nic, 4 * US, 20, 21);
        assert_eq!(window.packets(), (cut + 1.0) as u64);
    }
}
