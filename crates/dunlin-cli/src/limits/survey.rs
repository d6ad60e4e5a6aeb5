//! Measures all limits in rounds and takes the median of each.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::probes::{probes, Found, Probe};
use crate::histogram::Percentiles;
use crate::interrupt;

/// Every limit by its name; the unit is the end of the name. What `perf limits --json` holds under `limits`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limits(pub BTreeMap<String, f64>);

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Operations a second.
    PerSecond,
    /// Bytes a second.
    BytesPerSecond,
}

/// One limit: the median of the rounds, and between what it lay.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its name in [`Limits`].
    pub name: String,
    /// A description for output.
    pub what: String,
    /// Its unit.
    pub unit: Unit,
    /// The median of the rounds.
    pub median: f64,
    /// The lowest round.
    pub low: f64,
    /// The highest round.
    pub high: f64,
}

/// The result of a survey.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The figures, in the order of a table.
    pub figures: Vec<Figure>,
    /// Rounds made.
    pub rounds: usize,
    /// The time it took.
    pub elapsed: Duration,
}

impl Survey {
    /// The medians by name.
    pub fn limits(&self) -> Limits {
        Limits(
            self.figures
                .iter()
                .map(|figure| (figure.name.clone(), figure.median))
                .collect(),
        )
    }

    /// One figure's median, if there is such a figure.
    pub fn median(&self, name: &str) -> Option<f64> {
        let found = self.figures.iter().find(|figure| figure.name == name);
        found.map(|figure| figure.median)
    }
}

/// Measures every limit in turn, again and again for `duration`, at least once.
///
/// `progress` hears how far it is (0 to 1) and what comes next.
pub fn survey(duration: Duration, mut progress: impl FnMut(f64, &str)) -> io::Result<Survey> {
    let probes = probes();
    let slice = (duration / probes.len() as u32 / 2)
        .clamp(Duration::from_millis(20), Duration::from_millis(50));
    let mut found: Vec<Vec<Found>> = probes.iter().map(|_| Vec::new()).collect();
    let start = Instant::now();
    let mut rounds = 0;
    while rounds == 0
        || start.elapsed() + slice * (probes.len() as u32) <= duration && !interrupt::came()
    {
        for (probe, found) in probes.iter().zip(&mut found) {
            progress(
                start.elapsed().as_secs_f64() / duration.as_secs_f64(),
                &probe.what,
            );
            found.push((probe.run)(slice)?);
        }
        rounds += 1;
    }
    let figures = probes
        .iter()
        .zip(&found)
        .flat_map(|(probe, found)| figures(probe, found))
        .collect();
    Ok(Survey {
        figures,
        rounds,
        elapsed: start.elapsed(),
    })
}

fn figures(probe: &Probe, found: &[Found]) -> Vec<Figure> {
    // Of the rounds that have the figure; none where none has.
    let figure = |suffix: &str, what: &str, pick: fn(&Percentiles) -> Option<u64>| {
        let picked = |found: &Found| match found {
            Found::RoundTrip(trip) => pick(trip).map(|ns| ns as f64),
            Found::One(value) => Some(*value),
        };
        let mut values: Vec<f64> = found.iter().filter_map(picked).collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then(|| Figure {
            name: format!("{}{suffix}", probe.name),
            what: format!("{}{what}", probe.what),
            unit: probe.unit,
            median: median(&values),
            low: values.first().copied().unwrap_or(0.0),
            high: values.last().copied().unwrap_or(0.0),
        })
    };
    let figures = if probe.unit == Unit::Nanoseconds {
        vec![
            figure("_p50_ns", ", p50", |trip| Some(trip.p50)),
            figure("_p99_ns", ", p99", |trip| Some(trip.p99)),
            figure("_p999_ns", ", p99.9", |trip| trip.p999),
            figure("_max_ns", ", slowest", |trip| Some(trip.max)),
        ]
    } else {
        vec![figure("", "", |trip| Some(trip.p50))]
    };
    figures.into_iter().flatten().collect()
}

/// The median of sorted values: the middle one, or between the two middle ones; 0 of none.
pub fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
