//! Whether several real threads are faster than one. This is measured, because it depends on what happens in the
//! cluster and on the load of the machine. The result of a run does not depend on it.

use std::time::Duration;

/// Number of events that run one after the other until their duration is known, and then before the parts try again:
/// initially, and at most.
const STRETCH: (u64, u64) = (4_000, 1 << 20);
/// Number of events that are timed together. At the start of a stretch the median counts, because the system may take
/// the core away.
pub(crate) const CHUNK: u64 = 200;
const CHUNKS: usize = 64;

/// The measurements.
#[derive(Debug)]
pub(crate) struct Pace {
    always: bool,
    /// Nanoseconds per event, one after the other.
    alone: Option<f64>,
    /// Nanoseconds per event, for the chunks of this stretch.
    chunks: Vec<f64>,
    /// Number of events still to run one after the other.
    left: u64,
    /// Length of the next stretch.
    stretch: u64,
}

impl Pace {
    /// With `always`, parts run at once however long events take.
    pub(crate) fn new(always: bool) -> Self {
        Self {
            always,
            alone: None,
            chunks: Vec::new(),
            left: STRETCH.0,
            stretch: STRETCH.0,
        }
    }

    /// Number of events to run one after the other now; zero when the parts are to run at once.
    pub(crate) fn left(&self) -> u64 {
        if self.always {
            0
        } else {
            self.left
        }
    }

    /// Nanoseconds per event above which running at once does not pay.
    pub(crate) fn most_ns(&self) -> f64 {
        match self.alone {
            Some(most) if !self.always => most,
            _ => f64::INFINITY,
        }
    }

    /// Records that this many events, at most [`CHUNK`], ran one after the other in this time.
    pub(crate) fn alone(&mut self, events: u64, took: Duration) {
        self.left = self.left.saturating_sub(events);
        if events == CHUNK && self.chunks.len() < CHUNKS {
            self.chunks.push(took.as_nanos() as f64 / events as f64);
        }
        if self.left == 0 && !self.chunks.is_empty() {
            let mut chunks = std::mem::take(&mut self.chunks);
            chunks.sort_by(f64::total_cmp);
            self.alone = Some(chunks[chunks.len() / 2]);
        }
    }

    /// Records that this many events ran at once in this time.
    pub(crate) fn at_once(&mut self, events: u64, took: Duration) {
        if took.as_nanos() as f64 <= self.most_ns() * events as f64 {
            self.stretch = STRETCH.0;
        } else {
            self.left = self.stretch;
            self.stretch = (self.stretch * 2).min(STRETCH.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a whole stretch of events one after the other, each in this many nanoseconds.
    fn stretch(pace: &mut Pace, ns: u64) -> u64 {
        let all = pace.left();
        while pace.left() > 0 {
            pace.alone(CHUNK, Duration::from_nanos(CHUNK * ns));
        }
        all
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_slower_is_tried_less_and_less_often() {
        let mut pace = Pace::new(false);
        // Twice, another process had the core.
        pace.alone(CHUNK, MS * 20);
        pace.alone(CHUNK, MS * 20);
        stretch(&mut pace, 1_000);
        assert_eq!((pace.left(), pace.most_ns()), (0, 1_000.0));
        pace.at_once(2_000, MS);
        assert_eq!(pace.left(), 0, "twice as fast");
        for length in [4_000, 8_000, 16_000] {
            pace.at_once(100, MS);
            assert_eq!(stretch(&mut pace, 1_000), length);
        }
        assert_eq!(pace.most_ns(), 1_000.0);
        pace.at_once(8_000, MS);
        pace.at_once(100, MS);
        assert_eq!(pace.left(), 4_000, "it was worth it meanwhile");
        let mut pace = Pace::new(true);
        pace.at_once(1, MS);
        assert_eq!((pace.left(), pace.most_ns()), (0, f64::INFINITY));
    }
}
