//! Round trips (Flor §4.1): the signal that controls everything else.

mod asked;
mod clock;

pub use asked::{AskedClock, ClockCounts, ASK_NS, ERROR_NS};
pub use clock::{ClockSource, ClockSync, LATE_NS, LATE_READINGS, TIMELY_NS};

/// The times of a work request that was acknowledged. All but `ack_delay_ns` are by the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTimes {
    /// When it was posted.
    pub posted_ns: u64,
    /// T1: when the NIC had sent it (UC), or had received its acknowledgement (RC).
    pub completed_ns: Option<u64>,
    /// T4: when the software acknowledgement arrived.
    pub acknowledged_ns: Option<u64>,
    /// T3' - T2: how long the receiver delayed the acknowledgement, by the receiver's clock.
    pub ack_delay_ns: Option<u64>,
    /// Length in bytes.
    pub bytes: u64,
}

/// Derives a round trip from the times of a work request.
pub trait RoundTrip: std::fmt::Debug + Send {
    /// The round trip, or `None` if it cannot be determined.
    fn sample_ns(&self, times: &WorkTimes) -> Option<u64>;
}

/// Flor's for UC: (T4 - T1) - (T3' - T2), formula (1).
#[derive(Clone, Copy, Debug)]
pub struct ByAcknowledgement;

impl RoundTrip for ByAcknowledgement {
    fn sample_ns(&self, times: &WorkTimes) -> Option<u64> {
        let elsewhere_ns = times.acknowledged_ns?.checked_sub(times.completed_ns?)?;
        elsewhere_ns.checked_sub(times.ack_delay_ns?)
    }
}

/// RoGUE's, which Flor uses for RC: the time from posting to the completion, minus the time that the bytes need on the
/// line, since that differs between chunks and does not depend on the network.
#[derive(Clone, Copy, Debug)]
pub struct ByCompletion {
    /// Line rate in bits per second; zero keeps the time on the line in the result.
    pub line_bits_per_second: u64,
}

impl RoundTrip for ByCompletion {
    fn sample_ns(&self, times: &WorkTimes) -> Option<u64> {
        let whole_ns = times.completed_ns?.checked_sub(times.posted_ns)?;
        let line_ns = (u128::from(times.bytes) * 8_000_000_000)
            .checked_div(self.line_bits_per_second.into())
            .unwrap_or(0);
        whole_ns.checked_sub(u64::try_from(line_ns).ok()?)
    }
}

/// No measurement: congestion control is left to the NIC.
#[derive(Clone, Copy, Debug)]
pub struct Unmeasured;

impl RoundTrip for Unmeasured {
    fn sample_ns(&self, _: &WorkTimes) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: WorkTimes = WorkTimes {
        posted_ns: 1_000,
        completed_ns: Some(5_000),
        acknowledged_ns: Some(155_000),
        ack_delay_ns: Some(120_000),
        bytes: 10_000,
    };

    #[test]
    fn formula_1_leaves_out_what_the_receiver_waited() {
        assert_eq!(ByAcknowledgement.sample_ns(&TIMES), Some(30_000));
        let unknown = WorkTimes {
            completed_ns: None,
            ..TIMES
        };
        assert_eq!(ByAcknowledgement.sample_ns(&unknown), None);
        // A peer that claims to have waited longer than the whole exchange took.
        let hostile = WorkTimes {
            ack_delay_ns: Some(u64::MAX),
            ..TIMES
        };
        assert_eq!(ByAcknowledgement.sample_ns(&hostile), None);
    }

    #[test]
    fn a_completion_of_rc_leaves_out_the_time_on_the_line() {
        let by = |line_bits_per_second| {
            ByCompletion {
                line_bits_per_second,
            }
            .sample_ns(&TIMES)
        };
        assert_eq!(by(100_000_000_000), Some(3_200));
        assert_eq!(by(0), Some(4_000));
        assert_eq!(by(1), None);
        assert_eq!(Unmeasured.sample_ns(&TIMES), None);
    }
}
