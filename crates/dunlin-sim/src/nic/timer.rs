//! The transport timer of RC, and the end of pauses.

use dunlin_verbs::{CompletionStatus, QueuePairState, Transport};

use crate::event::{Event, Ps};
use crate::world::World;

impl World {
    fn timeout(&self, qp: u32) -> Ps {
        // InfiniBand rounds to 4.096 µs times a power of two, upwards here.
        let asked = self.pairs[qp as usize].attributes.timeout_ns.max(1);
        let units = asked.div_ceil(4096).next_power_of_two();
        units.saturating_mul(4_096_000)
    }

    /// Starts the timer if it does not run.
    pub(super) fn arm_timer(&mut self, qp: u32) {
        let pair = &mut self.pairs[qp as usize];
        if pair.timer_armed {
            return;
        }
        pair.timer_armed = true;
        pair.progress_at = self.now;
        let (host, stamp) = (pair.host, pair.stamp);
        let at = self.now.saturating_add(self.timeout(qp));
        self.queue.push(at, host, Event::Timer { qp, stamp });
    }

    /// The timer of a queue pair has fired. It is not restarted at each acknowledgement: progress is checked when it
    /// fires.
    pub(crate) fn timer_event(&mut self, qp: u32, stamp: u32) {
        let now = self.now;
        let pair = &mut self.pairs[qp as usize];
        if pair.stamp != stamp || !pair.alive {
            return;
        }
        pair.timer_armed = false;
        if !pair.waits_for_answer() || pair.transport != Transport::ReliableConnection {
            return;
        }
        let pair = &self.pairs[qp as usize];
        if self.hosts[usize::from(pair.host)].crashed || pair.stalled {
            return;
        }
        let progress_at = self.pairs[qp as usize].progress_at;
        let due = progress_at.saturating_add(self.timeout(qp));
        let pair = &mut self.pairs[qp as usize];
        if now < due {
            pair.timer_armed = true;
            let host = pair.host;
            self.queue.push(due, host, Event::Timer { qp, stamp });
            return;
        }
        let host = usize::from(pair.host);
        if self.probe(qp) {
            self.pairs[qp as usize].progress_at = now;
            self.arm_timer(qp);
            self.wake_sender(qp);
            return;
        }
        let pair = &mut self.pairs[qp as usize];
        self.hosts[host].nic.counters.timeouts += 1;
        if pair.retries_left == 0 {
            let oldest = pair.base;
            self.fail_send(qp, oldest, CompletionStatus::RetryExceeded);
            return;
        }
        pair.retries_left -= 1;
        pair.went_back = None;
        let psn = pair
            .sends
            .front()
            .map_or(0, |e| e.first_psn + u64::from(e.answered));
        pair.go_back(psn);
        self.hosts[host].nic.counters.retransmissions += 1;
        self.arm_timer(qp);
        self.wake_sender(qp);
    }

    /// Ends a pause of a queue pair's requests.
    pub(crate) fn resume_event(&mut self, qp: u32, stamp: u32) {
        let pair = &self.pairs[qp as usize];
        let sends = matches!(
            pair.state,
            QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
        );
        if pair.stamp == stamp && sends {
            self.wake_sender(qp);
        }
    }
}
