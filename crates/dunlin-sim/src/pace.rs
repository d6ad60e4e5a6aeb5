//! Whether several real threads are faster than one: measured, since it depends on what happens in the cluster and on
//! what else the machine does. The result of a run does not depend on it.

use std::time::Duration;

/// Events that happen one after the other before it is known how long one takes, and then before the parts try again:
/// at first, and at most.
const STRETCH: (u64, u64) = (4_000, 1 << 20);
/// Events that are timed together. Of the first of a stretch the median counts: the system may take the core away.
pub(crate) const CHUNK: u64 = 200;
const CHUNKS: usize = 64;

/// What is known about it.
#[derive(Debug)]
pub(crate) struct Pace {
    always: bool,
    /// Nanoseconds of an event that happens alone.
    alone: Option<f64>,
    /// The same of the chunks of this stretch.
    chunks: Vec<f64>,
    /// Events that are to happen alone.
    left: u64,
    /// How many those will be next time.
    stretch: u64,
}

impl Pace {
    /// With `always` parts run at once whatever it takes.
    pub(crate) fn new(always: bool) -> Self {
        Self {
            always,
            alone: None,
            chunks: Vec::new(),
            left: STRETCH.0,
            stretch: STRETCH.0,
        }
    }

    /// How many events are to happen one after the other now; none when the parts are to run at once.
    pub(crate) fn left(&self) -> u64 {
        if self.always {
            0
        } else {
            self.left
        }
    }

    /// Nanoseconds of an event above which that is not worth it.
    pub(crate) fn most_ns(&self) -> f64 {
        match self.alone {
            Some(most) if !self.always => most,
            _ => f64::INFINITY,
        }
    }

    /// So many events, [`CHUNK`] or less, happened one after the other in this time.
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

    /// So many events happened at once in this time.
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

    /// Lets as many events happen as are to happen alone, each of them in so many nanoseconds.
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
        // Twice somebody else had the core.
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
