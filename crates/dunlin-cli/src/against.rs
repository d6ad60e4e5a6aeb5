//! `--against`: alternates a measurement with the machine's raw limits, or another program, within the same second.
//!
//! The host moves its virtual cores between near and far placements, which changes every figure of shared memory. So a
//! ratio is taken only between a measured slice and the limits measured right before and right after it, and only if
//! those two agree about the distance of the cores. The result is the median of these ratios.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::limits::survey::median;
use crate::limits::{copy, ring, tcp, udp};
use crate::report::{AnyLimits, Report, Setting, Tally};

/// How long each limit is measured each time.
const LIMIT_SLICE: Duration = Duration::from_millis(25);
/// How long the command is measured each time.
pub const MEASURED_SLICE: Duration = Duration::from_millis(150);
/// Limits before and after further apart than this: the placement changed in between.
const SAME_PLACEMENT: f64 = 1.3;
/// Bytes of a datagram where many go together: the largest MTU of RoCE.
const UDP_SEGMENT_BYTES: usize = 4096;
/// Payload that fits a ring slot's cache line; more is copied beside it.
const SLOT_BYTES: usize = 64;

/// What the bare machine does with one client thread and one server thread, for one size and number outstanding: with
/// shared memory, or with UDP sockets where the device is made of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The bare ring's round trip, with one copy of the payload where it is larger than a slot. With more
    /// than one outstanding: how long each takes at the bare ring's rate (outstanding / rate).
    pub latency_ns: f64,
    /// The bare ring's rate with as many outstanding; no more than one copy of each payload allows.
    pub rate_per_s: f64,
    /// One copy of that size by one core, again and again: what the ratio of bandwidth is made with.
    pub bytes_per_s: f64,
    /// The same, each copy read by the other core before the next: what a receiver that looks at all of it
    /// leaves. On a network device what kernel TCP carries one way. No ratio is made with it.
    pub handed_over_bytes_per_s: f64,
}

/// Measured over limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The measured median latency over the limit's: above 1, and lower is better.
    pub latency: f64,
    /// The measured rate over the limit's: below 1, and higher is better.
    pub rate: f64,
    /// The measured bytes a second over the limit's: below 1, and higher is better.
    pub bandwidth: f64,
}

/// What the ratios are medians of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    /// Pairs of measurement and limit that count.
    pub counted: usize,
    /// Pairs that do not, because the cores' placement changed within them.
    pub discarded: usize,
    /// Whether any pair counts. If none does, the ratios are those of all pairs, and say little.
    pub steady: bool,
    /// The lowest of each ratio.
    pub low: Ratio,
    /// The highest of each ratio.
    pub high: Ratio,
}

/// What [`interleave`] found.
#[derive(Debug, Clone)]
pub struct Against {
    /// All measured slices together.
    pub tally: Tally,
    /// The medians of the limits.
    pub bounds: Bounds,
    /// The medians of the ratios.
    pub ratio: Ratio,
    /// What they are medians of.
    pub pairs: Pairs,
}

impl Against {
    /// The report to print.
    pub fn report(self, setting: Setting) -> Report {
        Report {
            limits: Some(AnyLimits::Bounds(self.bounds)),
            ratio: Some(self.ratio),
            pairs: Some(self.pairs),
            ..Report::new(setting, &self.tally)
        }
    }
}

/// One look at the limits, and at how far apart the cores are.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    bounds: Bounds,
    round_trip_ns: f64,
}

impl Look {
    /// What another program did, and how far apart the cores are.
    pub fn of_another(tally: &Tally) -> Self {
        let bytes_per_s = tally.bytes_per_s();
        let bounds = Bounds {
            latency_ns: tally.latencies.percentiles().p50 as f64,
            rate_per_s: tally.rate_per_s(),
            bytes_per_s,
            handed_over_bytes_per_s: bytes_per_s,
        };
        Self {
            bounds,
            round_trip_ns: ring::round_trip(LIMIT_SLICE).p50.max(1) as f64,
        }
    }

    /// The limits of one way: the rate is the bare ring's with `together` messages published at a time and read, no
    /// more than one copy of each payload allows; the latency is half the bare ring's round trip, with one copy where
    /// the payload is larger than a slot.
    ///
    /// # Errors
    /// When a limit cannot be measured.
    pub fn one_way(size: usize, together: u64) -> io::Result<Self> {
        let round_trip_ns = ring::round_trip(LIMIT_SLICE).p50.max(1) as f64;
        let bytes_per_s = copy::hot(size, LIMIT_SLICE)?;
        let handed_over_bytes_per_s = copy::handed_over(size, LIMIT_SLICE)?;
        let mut rate_per_s = ring::one_way_read(together, LIMIT_SLICE);
        let mut latency_ns = round_trip_ns / 2.0;
        if size > SLOT_BYTES {
            rate_per_s = rate_per_s.min(bytes_per_s / size as f64);
            latency_ns += size as f64 / bytes_per_s * 1e9;
        }
        let bounds = Bounds {
            latency_ns,
            rate_per_s,
            bytes_per_s,
            handed_over_bytes_per_s,
        };
        Ok(Self {
            bounds,
            round_trip_ns,
        })
    }
}

fn look(setting: &Setting) -> io::Result<Look> {
    let bare = if setting.device == "roce" {
        Bare::of_udp(setting)?
    } else {
        Bare::of_memory(setting)?
    };
    Ok(bare.look(setting))
}

/// The raw limits that were measured.
struct Bare {
    round_trip_ns: f64,
    /// Messages of a slot's bytes.
    rate_per_s: f64,
    bytes_per_s: f64,
    handed_over_bytes_per_s: f64,
}

impl Bare {
    /// Of the bare ring and of copies.
    fn of_memory(setting: &Setting) -> io::Result<Self> {
        Ok(Self {
            round_trip_ns: ring::round_trip(LIMIT_SLICE).p50.max(1) as f64,
            bytes_per_s: copy::hot(setting.size, LIMIT_SLICE)?,
            handed_over_bytes_per_s: copy::handed_over(setting.size, LIMIT_SLICE)?,
            rate_per_s: ring::pipelined(setting.outstanding, LIMIT_SLICE),
        })
    }

    /// Of UDP sockets: the round trip with a system call for each datagram, rate and bandwidth with the kernel's
    /// segmentation and its reverse.
    fn of_udp(setting: &Setting) -> io::Result<Self> {
        Ok(Self {
            round_trip_ns: udp::round_trip(LIMIT_SLICE)?.p50.max(1) as f64,
            bytes_per_s: udp::one_way_bytes_per_s(UDP_SEGMENT_BYTES, LIMIT_SLICE)?,
            handed_over_bytes_per_s: tcp::one_way_bytes_per_s(LIMIT_SLICE)?,
            rate_per_s: udp::offloaded(setting.outstanding, LIMIT_SLICE)?,
        })
    }

    fn look(&self, setting: &Setting) -> Look {
        let size = setting.size.max(1) as f64;
        let mut rate_per_s = self.rate_per_s;
        let mut latency_ns = self.round_trip_ns;
        if setting.size > SLOT_BYTES {
            rate_per_s = rate_per_s.min(self.bytes_per_s / size);
            latency_ns += size / self.bytes_per_s * 1e9;
        }
        if setting.outstanding > 1 {
            latency_ns = setting.outstanding as f64 / rate_per_s * 1e9;
        }
        Look {
            bounds: Bounds {
                latency_ns,
                rate_per_s,
                bytes_per_s: self.bytes_per_s,
                handed_over_bytes_per_s: self.handed_over_bytes_per_s,
            },
            round_trip_ns: self.round_trip_ns,
        }
    }
}

/// Measures limit, command, limit, command, ... limit for `duration` (at least three commands, unless Ctrl-C comes
/// before). What Ctrl-C cut short is left out; `None`: that was all.
///
/// `measured` runs the command for about the duration it is given and returns what it counted. It is
/// called again and again over a running client and server, and must guarantee:
///
/// - nothing is outstanding when it returns, and everything it counted finished within `Tally::elapsed`;
/// - between its calls none of its threads or processes spins: each limit needs both cores to itself, so
///   clients have ended or wait, and a server that has been polling dozes before the call returns;
/// - waking up is not counted: a few operations first, outside of the tally;
/// - `Tally::bytes` counts each payload once, in the direction in which `--size` bytes go.
///
/// `progress` hears how far it is, 0 to 1.
pub fn interleave<E: From<io::Error>>(
    setting: &Setting,
    duration: Duration,
    measured: impl FnMut(Duration) -> Result<Tally, E>,
    progress: impl FnMut(f64),
) -> Result<Option<Against>, E> {
    interleave_with(|| Ok(look(setting)?), duration, measured, progress)
}

/// As [`interleave`], beside whatever `look` measures.
///
/// # Errors
/// Of either.
pub fn interleave_with<E>(
    mut look: impl FnMut() -> Result<Look, E>,
    duration: Duration,
    mut measured: impl FnMut(Duration) -> Result<Tally, E>,
    mut progress: impl FnMut(f64),
) -> Result<Option<Against>, E> {
    let start = Instant::now();
    let mut looks = vec![look()?];
    let mut slices = Vec::new();
    while (slices.len() < 3 || start.elapsed() < duration) && !interrupt::came() {
        let slice = measured(MEASURED_SLICE)?;
        if interrupt::came() {
            break;
        }
        slices.push(slice);
        looks.push(look()?);
        progress((start.elapsed().as_secs_f64() / duration.as_secs_f64()).min(1.0));
    }
    let slices: Vec<_> = slices
        .into_iter()
        .zip(looks.windows(2))
        .map(|(slice, sides)| (slice, sides[0], sides[1]))
        .collect();
    Ok((!slices.is_empty()).then(|| conclude(&slices)))
}

/// What slices, each with the looks before and after it, come to.
pub fn conclude(slices: &[(Tally, Look, Look)]) -> Against {
    let mut tally = Tally::default();
    for (slice, _, _) in slices {
        tally.merge_after(slice);
    }
    let all: Vec<Pair> = slices
        .iter()
        .map(|(slice, before, after)| pair(slice, *before, *after))
        .collect();
    let steady: Vec<Pair> = all.iter().filter(|pair| pair.steady).copied().collect();
    let shown = if steady.is_empty() { &all } else { &steady };
    let of = |pick: fn(&Pair) -> f64| spread(shown.iter().map(pick));
    let [latency, rate, bandwidth] = [
        of(|p| p.ratio.latency),
        of(|p| p.ratio.rate),
        of(|p| p.ratio.bandwidth),
    ];
    let ratio = |at: usize| Ratio {
        latency: latency[at],
        rate: rate[at],
        bandwidth: bandwidth[at],
    };
    let bounds = Bounds {
        latency_ns: of(|p| p.bounds.latency_ns)[1],
        rate_per_s: of(|p| p.bounds.rate_per_s)[1],
        bytes_per_s: of(|p| p.bounds.bytes_per_s)[1],
        handed_over_bytes_per_s: of(|p| p.bounds.handed_over_bytes_per_s)[1],
    };
    let pairs = Pairs {
        counted: steady.len(),
        discarded: all.len() - steady.len(),
        steady: !steady.is_empty(),
        low: ratio(0),
        high: ratio(2),
    };
    Against {
        tally,
        bounds,
        ratio: ratio(1),
        pairs,
    }
}

/// A measured slice and the limits around it.
#[derive(Debug, Clone, Copy)]
struct Pair {
    bounds: Bounds,
    ratio: Ratio,
    steady: bool,
}

fn pair(slice: &Tally, before: Look, after: Look) -> Pair {
    let mean = |pick: fn(&Bounds) -> f64| f64::midpoint(pick(&before.bounds), pick(&after.bounds));
    let bounds = Bounds {
        latency_ns: mean(|b| b.latency_ns),
        rate_per_s: mean(|b| b.rate_per_s),
        bytes_per_s: mean(|b| b.bytes_per_s),
        handed_over_bytes_per_s: mean(|b| b.handed_over_bytes_per_s),
    };
    let ratio = Ratio {
        latency: slice.latencies.percentiles().p50 as f64 / bounds.latency_ns,
        rate: slice.rate_per_s() / bounds.rate_per_s,
        bandwidth: slice.bytes_per_s() / bounds.bytes_per_s,
    };
    let apart = before.round_trip_ns / after.round_trip_ns;
    Pair {
        bounds,
        ratio,
        steady: (1.0 / SAME_PLACEMENT..=SAME_PLACEMENT).contains(&apart),
    }
}

/// The lowest, the median and the highest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.first().copied(), sorted.last().copied());
    [low.unwrap_or(0.0), median(&sorted), high.unwrap_or(0.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(round_trip_ns: f64) -> Look {
        let bounds = Bounds {
            latency_ns: round_trip_ns,
            rate_per_s: 1e6,
            bytes_per_s: 1e9,
            handed_over_bytes_per_s: 5e8,
        };
        Look {
            bounds,
            round_trip_ns,
        }
    }

    fn slice() -> Tally {
        let mut tally = Tally {
            operations: 500_000,
            bytes: 250_000_000,
            elapsed: Duration::from_secs(1),
            ..Tally::default()
        };
        tally.latencies.record(300);
        tally
    }

    #[test]
    fn a_pair_is_measured_over_the_limits_on_both_sides() {
        let pair = pair(&slice(), seen(140.0), seen(160.0));
        assert!(pair.steady);
        assert_eq!(
            pair.ratio,
            Ratio {
                latency: 2.0,
                rate: 0.5,
                bandwidth: 0.25
            }
        );
    }

    #[test]
    fn a_pair_does_not_count_when_the_cores_moved_within_it() {
        assert!(!pair(&slice(), seen(150.0), seen(550.0)).steady);
        assert!(!pair(&slice(), seen(550.0), seen(150.0)).steady);
    }

    #[test]
    fn pairs_that_do_not_count_are_not_said_to() {
        let (near, far) = (seen(150.0), seen(550.0));
        let unsteady = [
            (slice(), near, far),
            (slice(), far, near),
            (slice(), near, far),
        ];
        let Against { ratio, pairs, .. } = conclude(&unsteady);
        assert_eq!((pairs.counted, pairs.discarded), (0, 3));
        assert!(!pairs.steady);
        assert_eq!(ratio.rate, 0.5);
        let [first, second, _] = unsteady;
        let pairs = conclude(&[first, (slice(), near, near), second]).pairs;
        assert_eq!((pairs.counted, pairs.discarded), (1, 2));
        assert!(pairs.steady);
    }

    #[test]
    fn interleaving_calls_the_command_and_ends() {
        let setting = Setting {
            device: "none".into(),
            preset: "none".into(),
            threads: 1,
            outstanding: 4,
            size: 4096,
            response_size: None,
        };
        let mut calls = 0;
        let against = interleave::<io::Error>(
            &setting,
            Duration::ZERO,
            |_| {
                calls += 1;
                Ok(slice())
            },
            |_| {},
        )
        .unwrap()
        .expect("nothing interrupts it");
        assert_eq!(calls, 3);
        assert_eq!(against.tally.operations, 1_500_000);
        let report = serde_json::to_value(against.report(setting)).unwrap();
        for key in ["latency", "rate", "bandwidth"] {
            assert!(
                report["ratio"][key]
                    .as_f64()
                    .is_some_and(|ratio| ratio > 0.0),
                "{report}"
            );
        }
        for key in [
            "latency_ns",
            "rate_per_s",
            "bytes_per_s",
            "handed_over_bytes_per_s",
        ] {
            assert!(
                report["limits"][key]
                    .as_f64()
                    .is_some_and(|limit| limit > 0.0),
                "{report}"
            );
        }
    }
}
