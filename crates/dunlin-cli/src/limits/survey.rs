//! All limits, round after round, and the median of each.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{copy, line, ring, tcp, udp};
use crate::histogram::Percentiles;

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
    /// What it is, for people.
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

/// What a survey found.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The figures, in the order of a table.
    pub figures: Vec<Figure>,
    /// Rounds made.
    pub rounds: usize,
    /// How long it took.
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

    /// One figure's median; 0 for a name that there is not.
    pub fn median(&self, name: &str) -> f64 {
        self.figures
            .iter()
            .find(|figure| figure.name == name)
            .map_or(0.0, |figure| figure.median)
    }
}

type Run = Box<dyn Fn(Duration) -> io::Result<Found>>;

enum Found {
    RoundTrip(Percentiles),
    One(f64),
}

struct Probe {
    name: String,
    what: String,
    unit: Unit,
    run: Run,
}

fn trip(
    name: &str,
    what: &str,
    run: impl Fn(Duration) -> io::Result<Percentiles> + 'static,
) -> Probe {
    Probe {
        name: name.into(),
        what: what.into(),
        unit: Unit::Nanoseconds,
        run: Box::new(move |duration| run(duration).map(Found::RoundTrip)),
    }
}

fn one(
    name: impl Into<String>,
    what: impl Into<String>,
    unit: Unit,
    run: impl Fn(Duration) -> io::Result<f64> + 'static,
) -> Probe {
    Probe {
        name: name.into(),
        what: what.into(),
        unit,
        run: Box::new(move |duration| run(duration).map(Found::One)),
    }
}

fn probes() -> Vec<Probe> {
    use Unit::{BytesPerSecond, PerSecond};
    let mut probes = vec![
        trip(
            "line_round_trip",
            "cache-line ping-pong between two cores",
            |d| Ok(line::ping_pong(d)),
        ),
        trip("ring_round_trip", "bare ring pair, 64 B, round trip", |d| {
            Ok(ring::round_trip(d))
        }),
    ];
    for outstanding in [1, 8, 64] {
        probes.push(one(
            format!("ring_pipelined_{outstanding}_per_s"),
            format!("bare ring pair, 64 B, {outstanding} outstanding"),
            PerSecond,
            move |d| Ok(ring::pipelined(outstanding, d)),
        ));
    }
    for together in [1, 8, 128] {
        probes.push(one(
            format!("spsc_by_{together}_per_s"),
            format!("one ring, 64 B messages, published by {together}"),
            PerSecond,
            move |d| Ok(ring::one_way(together, d)),
        ));
    }
    for (label, size) in [("4k", 4 << 10), ("64k", 64 << 10), ("1m", 1 << 20)] {
        probes.push(one(
            format!("copy_hot_{label}_bytes_per_s"),
            format!("copy {label}iB into shared memory, one core"),
            BytesPerSecond,
            move |d| copy::hot(size, d),
        ));
        probes.push(one(
            format!("copy_handed_{label}_bytes_per_s"),
            format!("copy {label}iB, then read by the other core"),
            BytesPerSecond,
            move |d| copy::handed_over(size, d),
        ));
    }
    probes.push(one(
        "copy_cold_64m_bytes_per_s",
        "copy 64 MiB, cold",
        BytesPerSecond,
        copy::cold,
    ));
    probes.push(trip(
        "udp_round_trip",
        "UDP loopback, 64 B, spinning",
        udp::round_trip,
    ));
    probes.push(one(
        "udp_plain_64_per_s",
        "UDP 64 B requests, 64 outstanding, plain",
        PerSecond,
        |d| udp::plain(64, d),
    ));
    probes.push(one(
        "udp_offload_128_per_s",
        "UDP 64 B requests, 128 outstanding, GSO and GRO",
        PerSecond,
        |d| udp::offloaded(128, d),
    ));
    probes.push(one(
        "udp_offload_4096_bytes_per_s",
        "UDP one way, 4096 B segments, GSO and GRO",
        BytesPerSecond,
        |d| udp::one_way_bytes_per_s(4096, d),
    ));
    probes.push(trip(
        "tcp_round_trip",
        "TCP loopback, 64 B, spinning",
        tcp::round_trip,
    ));
    probes.push(one(
        "tcp_batched_64_per_s",
        "TCP 64 B requests, 64 written together",
        PerSecond,
        |d| tcp::pipelined(64, d),
    ));
    probes.push(one(
        "tcp_1m_bytes_per_s",
        "TCP one way, 1 MiB writes",
        BytesPerSecond,
        tcp::one_way_bytes_per_s,
    ));
    probes
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
    while rounds == 0 || start.elapsed() + slice * (probes.len() as u32) <= duration {
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
    let figure = |suffix: &str, what: &str, pick: &dyn Fn(&Found) -> f64| {
        let mut values: Vec<f64> = found.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        Figure {
            name: format!("{}{suffix}", probe.name),
            what: format!("{}{what}", probe.what),
            unit: probe.unit,
            median: median(&values),
            low: values.first().copied().unwrap_or(0.0),
            high: values.last().copied().unwrap_or(0.0),
        }
    };
    let trip = |found: &Found, pick: fn(&Percentiles) -> u64| match found {
        Found::RoundTrip(trip) => pick(trip) as f64,
        Found::One(value) => *value,
    };
    if probe.unit == Unit::Nanoseconds {
        vec![
            figure("_p50_ns", ", p50", &|found| trip(found, |trip| trip.p50)),
            figure("_p99_ns", ", p99", &|found| trip(found, |trip| trip.p99)),
            figure("_p999_ns", ", p99.9", &|found| {
                trip(found, |trip| trip.p999)
            }),
            figure("_max_ns", ", slowest", &|found| {
                trip(found, |trip| trip.max)
            }),
        ]
    } else {
        vec![figure("", "", &|found| trip(found, |trip| trip.p50))]
    }
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
