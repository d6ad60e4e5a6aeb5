//! When a receiver acknowledges (Flor §5): immediately on any of four triggers, otherwise after a timer.

use std::collections::VecDeque;

use super::codec::{Ack, AckedNumber, ACK_NUMBERS};

/// The configurable triggers of an acknowledgement. A hint and a gap in the numbers always trigger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTriggers {
    /// Number of work requests that wait for an acknowledgement.
    pub work_requests: usize,
    /// Number of bytes that wait for an acknowledgement.
    pub bytes: u64,
    /// Maximum delay of an acknowledgement.
    pub timer_ns: u64,
}

impl AckTriggers {
    /// The paper's (§7.1): 32 work requests, 32 KB, 120 µs.
    pub const PAPER: Self = Self {
        work_requests: ACK_NUMBERS,
        bytes: 32 << 10,
        timer_ns: 120_000,
    };
}

/// A work request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The number to acknowledge.
    pub number: AckedNumber,
    /// T2: the arrival time, by the clock of `now_ns`.
    pub arrived_ns: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether it is the last one that the sender's window allowed.
    pub hint: bool,
    /// Whether something before it is missing, or was missing.
    pub out_of_order: bool,
    /// Whether a switch marked it.
    pub marked: bool,
}

/// Collects numbers until an acknowledgement is due.
#[derive(Debug)]
pub struct AckGenerator {
    triggers: AckTriggers,
    waiting: VecDeque<Arrival>,
    bytes: u64,
    /// When the first waiting number was added.
    since_ns: u64,
    due: bool,
}

impl AckGenerator {
    /// Creates a generator with nothing to acknowledge.
    pub fn new(triggers: AckTriggers) -> Self {
        Self {
            triggers,
            waiting: VecDeque::with_capacity(ACK_NUMBERS),
            bytes: 0,
            since_ns: 0,
            due: false,
        }
    }

    /// Records an arrival.
    pub fn arrived(&mut self, now_ns: u64, arrival: Arrival) {
        if self.waiting.is_empty() {
            self.since_ns = now_ns;
        }
        self.bytes = self.bytes.saturating_add(arrival.bytes);
        self.waiting.push_back(arrival);
        self.due |= arrival.hint
            || arrival.out_of_order
            || self.waiting.len() >= self.triggers.work_requests
            || self.bytes >= self.triggers.bytes;
    }

    /// When the timer makes an acknowledgement due, if one is waiting.
    pub fn deadline_ns(&self) -> Option<u64> {
        let after_ns = if self.due { 0 } else { self.triggers.timer_ns };
        (!self.waiting.is_empty()).then(|| self.since_ns.saturating_add(after_ns))
    }

    /// Returns an acknowledgement if one is due; there may be another directly after it. `queue_pair` is the peer's
    /// number of the queue pair whose work requests have arrived.
    pub fn take(&mut self, now_ns: u64, queue_pair: u32) -> Option<Ack> {
        if self.deadline_ns().is_none_or(|deadline| now_ns < deadline) {
            return None;
        }
        let mut ack = Ack::new(queue_pair, 0, false);
        while let Some(arrival) = self.waiting.front() {
            if !ack.push(arrival.number) {
                break;
            }
            ack.delay_ns = now_ns.saturating_sub(arrival.arrived_ns);
            ack.marked |= arrival.marked;
            self.bytes = self.bytes.saturating_sub(arrival.bytes);
            self.waiting.pop_front();
        }
        // What did not fit is as overdue as what did.
        self.due = !self.waiting.is_empty();
        Some(ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::GlobalNumber;

    fn arrival(number: u64) -> Arrival {
        Arrival {
            number: AckedNumber::Send(GlobalNumber(number)),
            arrived_ns: number,
            bytes: 100,
            hint: false,
            out_of_order: false,
            marked: false,
        }
    }

    #[test]
    fn thirty_two_work_requests_let_an_acknowledgement_out() {
        let mut generator = AckGenerator::new(AckTriggers::PAPER);
        for number in 0..31 {
            generator.arrived(number, arrival(number));
            assert_eq!(generator.take(number, 1), None);
        }
        generator.arrived(40, arrival(31));
        let ack = generator.take(41, 9).unwrap();
        assert_eq!((ack.queue_pair, ack.numbers().len()), (9, 32));
        // T3' - T2 of the last one.
        assert_eq!(ack.delay_ns, 10);
        assert_eq!(generator.deadline_ns(), None);
    }

    #[test]
    fn thirty_two_kilobytes_let_an_acknowledgement_out() {
        let mut generator = AckGenerator::new(AckTriggers::PAPER);
        let mut half = arrival(0);
        half.bytes = 16 << 10;
        generator.arrived(0, half);
        assert_eq!(generator.take(0, 1), None);
        generator.arrived(0, half);
        assert_eq!(generator.take(0, 1).unwrap().numbers().len(), 2);
        generator.arrived(0, half);
        assert_eq!(generator.take(0, 1), None);
    }

    #[test]
    fn a_hint_and_a_gap_let_an_acknowledgement_out() {
        let mut generator = AckGenerator::new(AckTriggers::PAPER);
        let mut hint = arrival(0);
        hint.hint = true;
        generator.arrived(0, hint);
        assert!(generator.take(0, 1).is_some());
        let mut gap = arrival(2);
        gap.out_of_order = true;
        generator.arrived(0, gap);
        assert!(generator.take(0, 1).is_some());
        assert!(generator.take(u64::MAX, 1).is_none());
    }

    #[test]
    fn the_timer_runs_from_the_first_that_waits() {
        let mut generator = AckGenerator::new(AckTriggers::PAPER);
        generator.arrived(1_000, arrival(0));
        generator.arrived(100_000, arrival(1));
        assert_eq!(generator.deadline_ns(), Some(121_000));
        assert_eq!(generator.take(120_999, 1), None);
        assert_eq!(generator.take(121_000, 1).unwrap().numbers().len(), 2);
    }

    #[test]
    fn what_does_not_fit_into_one_packet_goes_with_the_next() {
        let mut generator = AckGenerator::new(AckTriggers::PAPER);
        for number in 0..40 {
            generator.arrived(0, arrival(number));
        }
        generator.arrived(0, arrival(1 << 40));
        let packets: Vec<_> =
            std::iter::from_fn(|| generator.take(0, 1).map(|ack| ack.numbers().len())).collect();
        assert_eq!(packets, [32, 8, 1]);
    }
}
