//! Congestion control of the NIC by rate: DCQCN (Zhu et al., SIGCOMM'15) with the vendor's constants. Control by a
//! window is in `window.rs`.

use std::collections::VecDeque;

use dunlin_verbs::Transport;

use super::window::Window;
use super::Source;
use crate::event::{Event, Ps};
use crate::world::World;

/// The rate of a flow that congestion has slowed down. A flow that may send at line rate has none.
#[derive(Clone, Debug)]
pub(crate) struct RateControl {
    /// Gigabits per second.
    current: f64,
    target: f64,
    alpha: f64,
    alpha_at: Ps,
    rounds: u32,
    cut_at: Option<Ps>,
    stamp: u32,
    pace: Pace,
}

/// The turns of a flow's senders: all queue pairs of a flow share its rate.
#[derive(Clone, Debug, Default)]
struct Pace {
    /// When the next packet of the flow may leave.
    next_at: Ps,
    /// Sources that wait for that time, with the stamps of their queue pairs.
    waiting: VecDeque<(Source, u32)>,
    /// When the first of them is released; never if none waits.
    wakes_at: Option<Ps>,
    stamp: u32,
}

impl RateControl {
    /// Starts at line rate.
    fn new(line: f64, now: Ps) -> Self {
        Self {
            current: line,
            target: line,
            alpha: 1.0,
            alpha_at: now,
            rounds: 0,
            cut_at: None,
            stamp: 0,
            pace: Pace {
                next_at: now,
                ..Pace::default()
            },
        }
    }

    /// The time that bytes take at the current rate.
    fn time(&self, bytes: f64) -> Ps {
        (bytes * 8_000.0 / self.current) as Ps
    }

    /// Adapts the remaining wait after the rate has changed from `before`, as a NIC's shaper does.
    fn follow(&mut self, before: f64, now: Ps) {
        let left = self.pace.next_at.saturating_sub(now);
        self.pace.next_at = now + (left as f64 * before / self.current) as Ps;
    }

    /// Reduces the rate. With `clamps` the flow recovers to the rate that it has now, as in the paper (algorithm 1).
    /// Without, which is how NICs are delivered, a flow that has not risen since its last reduction still recovers to
    /// the rate from which it fell first.
    fn fall(&mut self, clamps: bool) {
        if clamps || self.rounds > 0 {
            self.target = self.current;
        }
        // At least a megabit per second.
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(0.001);
        self.rounds = 0;
    }
}

impl World {
    /// The flow of a queue pair, as its NIC's congestion control defines it.
    fn flow_of(&self, qp: u32) -> u32 {
        let pair = &self.pairs[qp as usize];
        let per_destination = self.hosts[usize::from(pair.host)]
            .nic
            .parameters
            .rate_per_destination;
        match pair.peer {
            Some(peer) if per_destination != 0.0 => u32::MAX - u32::from(peer.host),
            _ => qp,
        }
    }

    /// Notifies the sender of a marked packet, at most once in every notification interval.
    pub(super) fn notify_congestion(&mut self, qp: u32, _packet: u32) {
        let pair = &mut self.pairs[qp as usize];
        let host = usize::from(pair.host);
        let interval = self.hosts[host].nic.parameters.cnp_interval;
        if pair.peer.is_none() || pair.notified_at.is_some_and(|at| self.now < at + interval) {
            return;
        }
        pair.notified_at = Some(self.now);
        self.send_notification(qp);
    }

    /// Handles a congestion notification.
    pub(super) fn slow_down(&mut self, qp: u32) {
        let (flow, now) = (self.flow_of(qp), self.now);
        let host = self.pairs[qp as usize].host;
        let nic = &mut self.hosts[usize::from(host)].nic;
        nic.counters.congestion_notifications += 1;
        let p = &nic.parameters;
        if p.congestion_control == 0.0 {
            return;
        }
        if Window::is_used(p) {
            let pair = &mut self.pairs[qp as usize];
            let next_psn = pair.sending_psn();
            let window = pair
                .window
                .get_or_insert_with(|| Box::new(Window::new(p, now, next_psn)));
            return window.notified(p, now);
        }
        let (gain, period, increase, line) = (
            p.alpha_gain,
            p.alpha_period,
            p.increase_period,
            p.link_gbit_s,
        );
        let clamps = p.clamp_target != 0.0;
        let least = (p.reduce_interval_ns * 1_000.0) as Ps;
        let rate = nic.rates.entry(flow);
        let rate = rate.or_insert_with(|| RateControl::new(line, now));
        let first = rate.cut_at.is_none();
        // The notifications of one period count as one, however many queue pairs of the flow they are for.
        if first || now >= rate.alpha_at + period {
            let quiet = (now - rate.alpha_at)
                .checked_div(period)
                .unwrap_or(0)
                .min(10_000);
            rate.alpha *= (1.0 - gain).powi(quiet as i32);
            rate.alpha = (1.0 - gain) * rate.alpha + gain;
            rate.alpha_at = now;
        }
        if rate.cut_at.is_some_and(|at| now < at + least) {
            return;
        }
        rate.cut_at = Some(now);
        let before = rate.current;
        rate.fall(clamps);
        rate.follow(before, now);
        rate.stamp += 1;
        let stamp = rate.stamp;
        self.queue
            .push(now + increase, host, Event::Rate { host, flow, stamp });
        self.plan_pace(host, flow);
    }

    /// Raises the rate of a flow.
    pub(crate) fn rate_event(&mut self, host: u16, flow: u32, stamp: u32) {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let p = &nic.parameters;
        let Some(rate) = nic.rates.get_mut(&flow) else {
            return;
        };
        if rate.stamp != stamp {
            return;
        }
        rate.rounds += 1;
        let fast = p.recovery_rounds as u32;
        if rate.rounds > 5 * fast.max(1) {
            rate.target += p.hyper_gbit_s;
        } else if rate.rounds > fast {
            rate.target += p.additive_gbit_s;
        }
        rate.target = rate.target.min(p.link_gbit_s);
        let before = rate.current;
        rate.current = (rate.current + rate.target) / 2.0;
        let (increase, done) = (p.increase_period, rate.current >= 0.999 * p.link_gbit_s);
        if done {
            let ended = nic.rates.remove(&flow);
            for (source, stamp) in ended.into_iter().flat_map(|rate| rate.pace.waiting) {
                self.let_go(source, stamp);
            }
        } else {
            rate.follow(before, self.now);
            let at = self.now + increase;
            self.queue.push(at, host, Event::Rate { host, flow, stamp });
            self.plan_pace(host, flow);
        }
    }

    /// Number of packets that a queue pair may have in flight, where its NIC controls congestion by a window. Only RC
    /// is acknowledged, so only RC has one.
    #[inline]
    pub(super) fn window_of(&self, qp: u32) -> Option<u64> {
        let pair = &self.pairs[qp as usize];
        let parameters = &self.hosts[usize::from(pair.host)].nic.parameters;
        if !Window::is_used(parameters) || pair.transport != Transport::ReliableConnection {
            return None;
        }
        let most = || Window::most(parameters) as u64;
        Some(
            pair.window
                .as_ref()
                .map_or_else(most, |window| window.packets()),
        )
    }

    /// Whether the window permits another packet. It always does when no packet in flight has requested an
    /// acknowledgement: a window that has shrunk must not wait for one that will not come.
    #[inline]
    pub(super) fn is_within_window(&self, qp: u32) -> bool {
        let Some(packets) = self.window_of(qp) else {
            return true;
        };
        let pair = &self.pairs[qp as usize];
        pair.in_flight() < packets || pair.asked <= pair.oldest_psn()
    }

    /// Adapts the window after an acknowledgement.
    pub(super) fn widen(&mut self, qp: u32) {
        let now = self.now;
        let pair = &mut self.pairs[qp as usize];
        let (oldest, next) = (pair.oldest_psn(), pair.sending_psn());
        let Some(window) = &mut pair.window else {
            return;
        };
        let parameters = &self.hosts[usize::from(pair.host)].nic.parameters;
        window.heard(parameters, now, oldest, next);
        if window.is_wide(parameters) {
            pair.window = None;
        }
    }

    /// Accounts for a packet of a request that was sent.
    pub(super) fn pace_request(&mut self, qp: u32, packet: u32) {
        let bytes = self.packets[packet].wire_bytes;
        if let Some(window) = &mut self.pairs[qp as usize].window {
            window.sent(u64::from(bytes));
        }
        self.pace(qp, packet);
    }

    /// Accounts for a packet that was sent: the next one of a slowed flow, from any of its queue pairs, waits for its
    /// turn.
    pub(super) fn pace(&mut self, qp: u32, packet: u32) {
        let host = usize::from(self.pairs[qp as usize].host);
        let bytes = self.packets[packet].wire_bytes;
        if self.hosts[host].nic.rates.is_empty() {
            return;
        }
        let (flow, now) = (self.flow_of(qp), self.now);
        if let Some(rate) = self.hosts[host].nic.rates.get_mut(&flow) {
            rate.pace.next_at = rate.pace.next_at.max(now) + rate.time(f64::from(bytes));
        }
    }

    /// Whether the flow of this queue pair is slowed down.
    pub(super) fn is_slowed(&self, qp: u32) -> bool {
        let rates = &self.hosts[usize::from(self.pairs[qp as usize].host)]
            .nic
            .rates;
        !rates.is_empty() && rates.contains_key(&self.flow_of(qp))
    }

    /// Whether this source has to wait for its flow's turn; if so, it is woken then.
    pub(super) fn awaits_turn(&mut self, source: Source) -> bool {
        let (Source::Requests(qp) | Source::Answers(qp)) = source;
        let (host, stamp) = (self.pairs[qp as usize].host, self.pairs[qp as usize].stamp);
        if self.hosts[usize::from(host)].nic.rates.is_empty() {
            return false;
        }
        let (flow, now) = (self.flow_of(qp), self.now);
        match self.hosts[usize::from(host)].nic.rates.get_mut(&flow) {
            Some(rate) if rate.pace.next_at > now => rate.pace.waiting.push_back((source, stamp)),
            _ => return false,
        }
        let pair = &mut self.pairs[qp as usize];
        match source {
            Source::Requests(_) => pair.paced = true,
            Source::Answers(_) => pair.answers_paced = true,
        }
        self.plan_pace(host, flow);
        true
    }

    /// Makes sure that the first source that waits is released when the flow's next packet may leave.
    fn plan_pace(&mut self, host: u16, flow: u32) {
        let now = self.now;
        let Some(rate) = self.hosts[usize::from(host)].nic.rates.get_mut(&flow) else {
            return;
        };
        let at = rate.pace.next_at.max(now);
        if rate.pace.waiting.is_empty() || rate.pace.wakes_at == Some(at) {
            return;
        }
        rate.pace.wakes_at = Some(at);
        rate.pace.stamp += 1;
        let stamp = rate.pace.stamp;
        self.queue.push(at, host, Event::Pace { host, flow, stamp });
    }

    /// A flow's next packet may leave.
    pub(crate) fn pace_event(&mut self, host: u16, flow: u32, stamp: u32) {
        let now = self.now;
        let nic = &mut self.hosts[usize::from(host)].nic;
        let mtu = nic.parameters.mtu_bytes;
        let rate = nic.rates.get_mut(&flow);
        let Some(rate) = rate.filter(|rate| rate.pace.stamp == stamp) else {
            return;
        };
        rate.pace.wakes_at = None;
        let mut next = rate.pace.waiting.pop_front();
        while let Some((source, stamp)) = next {
            if self.let_go(source, stamp) {
                break;
            }
            let rate = self.hosts[usize::from(host)].nic.rates.get_mut(&flow);
            next = rate.and_then(|rate| rate.pace.waiting.pop_front());
        }
        if let Some(rate) = self.hosts[usize::from(host)].nic.rates.get_mut(&flow) {
            // The engine was busy and the source has not sent yet: the one behind it has its turn a packet later.
            if rate.pace.next_at <= now && !rate.pace.waiting.is_empty() {
                rate.pace.next_at = now + rate.time(mtu);
            }
        }
        self.plan_pace(host, flow);
    }

    /// Releases a source that waits; returns false when it has nothing to send.
    fn let_go(&mut self, source: Source, stamp: u32) -> bool {
        let (Source::Requests(qp) | Source::Answers(qp)) = source;
        let pair = &mut self.pairs[qp as usize];
        if pair.stamp != stamp {
            return false;
        }
        match source {
            Source::Requests(_) => {
                pair.paced = false;
                let sends = self.may_transmit(qp);
                self.wake_sender(qp);
                sends
            }
            Source::Answers(_) => {
                pair.answers_paced = false;
                let sends = self.may_answer(qp);
                self.wake_answers(qp);
                sends
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_rate() -> RateControl {
        RateControl::new(100.0, 0)
    }

    #[test]
    fn the_target_is_kept_until_the_rate_has_risen() {
        for (clamps, second) in [(true, 50.0), (false, 100.0)] {
            let mut rate = line_rate();
            rate.fall(clamps);
            assert_eq!((rate.target, rate.current), (100.0, 50.0));
            rate.fall(clamps);
            assert_eq!((rate.target, rate.current), (second, 25.0), "{clamps}");
            (rate.rounds, rate.current) = (1, 40.0);
            rate.fall(clamps);
            assert_eq!((rate.target, rate.current), (40.0, 20.0), "{clamps}");
        }
    }

    #[test]
    fn a_flow_is_never_stopped() {
        let mut rate = line_rate();
        (0..100).for_each(|_| rate.fall(true));
        assert_eq!(rate.current, 0.001);
    }
}
