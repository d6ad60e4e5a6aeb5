//! A parameter file for a NIC, fitted to measurements by perftest.

use std::fmt::Write;

use dunlin_sim::{Confidence, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use super::perftest::{Measured, Test};
use super::{
    fit, open_changes, Compared, Found, Knob, Model, Open, Progress, Residual, Runs, Search,
};
use crate::load::{fan, one_read, ping_pong, rate, Choice, Direction, Fan, Plan, Verb, Window};
use crate::parallel;

/// The parameters that perftest can determine, each with whether it is a whole number. The fit uses them in this order.
const KNOBS: [(&str, bool); 15] = [
    ("pipeline_ns", false),
    ("dma_read_ns", false),
    ("dma_write_ns", false),
    ("mmio_ns", false),
    ("link_gbit_s", false),
    ("pcie_gbyte_s", false),
    ("tx_wqe_ns", false),
    ("tx_read_ns", false),
    ("rx_write_ns", false),
    ("rx_read_request_ns", false),
    ("rx_read_response_ns", false),
    ("tx_packet_ns", false),
    ("rx_packet_ns", false),
    ("context_miss_ns", false),
    ("context_sets", true),
];
/// A knob is not fitted when changing it by half changes no value by more than this share: the measurements do not
/// determine it.
const TELLING: f64 = 0.01;
/// Number of requests in the window over which a rate is taken, at the measured rate.
const REQUESTS: f64 = 2_000.0;

/// The two hosts on which perftest ran.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// The processors.
    pub host: HostParameters,
    /// The network between them.
    pub switch: SwitchParameters,
    /// Seed of the simulated runs.
    pub seed: u64,
    /// Number of points simulated at once.
    pub threads: usize,
}

impl Testbed {
    /// The model's value for each measured line.
    pub fn replay(&self, nic: &NicParameters, measured: &[Measured]) -> Vec<Compared> {
        parallel::map(self.threads, measured, |line| Compared {
            label: label(line),
            paper: line.value,
            ours: self.replay_one(nic, line),
        })
    }

    fn replay_one(&self, nic: &NicParameters, line: &Measured) -> f64 {
        let mut nic = nic.clone();
        if let Some(mtu) = line.mtu_bytes {
            nic.mtu_bytes = mtu as f64;
        }
        let words = line.bytes.next_multiple_of(8);
        match line.test {
            Test::WriteLatency => {
                ping_pong(self.seed, words, &self.host, &nic, &self.switch) / 2_000.0
            }
            Test::ReadLatency => {
                one_read(self.seed, line.bytes, &self.host, &nic, &self.switch) / 1_000.0
            }
            Test::WriteRate | Test::ReadRate => self.rate(&nic, line),
        }
    }

    /// Simulates one thread that serves its queue pairs in turn, as perftest does.
    fn rate(&self, nic: &NicParameters, line: &Measured) -> f64 {
        let read = line.test == Test::ReadRate;
        let inline = !read && line.bytes <= line.inline_bytes;
        let window = line.depth * line.queue_pairs;
        let plan = Plan {
            verb: if read { Verb::Read } else { Verb::Write },
            inline,
            signal_every: line.signal_every.min(window.div_ceil(2)),
            choice: Choice::InTurn,
            places: (64, 1),
            ..Plan::writes(line.bytes, window)
        };
        let load = Fan {
            direction: Direction::Outbound,
            machines: 1,
            queue_pairs: line.queue_pairs,
            threads: 1,
            transport: Transport::ReliableConnection,
            zone_bytes: line.bytes.next_multiple_of(4096) as u64,
            plan,
        };
        let requests = REQUESTS.max(4.0 * window as f64);
        let measured_ns = (requests * 1_000.0 / line.value) as u64;
        let cluster = fan(self.seed, load, [&self.host, &self.host], nic, &self.switch);
        let window = Window {
            warm_ns: measured_ns,
            measured_ns,
        };
        rate(&cluster, &cluster.hosts()[..1], window)[0].mops(|c| c.requests_started)
    }
}

/// The lines that a fit uses, on the model.
struct Shown<'a> {
    bed: &'a Testbed,
    lines: &'a [Measured],
}

impl Model for Shown<'_> {
    fn rows(&self) -> usize {
        self.lines.len()
    }

    fn replay(&self, nic: &NicParameters, rows: &[usize], runs: Runs) -> Vec<Compared> {
        let lines: Vec<Measured> = rows.iter().map(|&row| self.lines[row]).collect();
        let bed = Testbed {
            seed: match runs {
                Runs::Fit => self.bed.seed,
                Runs::Fresh => self.bed.seed.wrapping_add(1),
            },
            ..self.bed.clone()
        };
        bed.replay(nic, &lines)
    }
}

fn label(line: &Measured) -> String {
    format!(
        "{} {} B, {} queue pairs, {} outstanding",
        line.test.program(),
        line.bytes,
        line.queue_pairs,
        line.depth
    )
}

/// Result of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The NIC.
    pub nic: NicParameters,
    /// Parameters that were fitted: name, value before, and after.
    pub fitted: Vec<(String, f64, f64)>,
    /// Parameters that no measurement determines; they are unchanged.
    pub unknown: Vec<String>,
    /// Root mean square error over the lines that the fit used.
    pub error: f64,
    /// The same in runs with another seed.
    pub fresh_error: f64,
    /// Number of evaluations of the model.
    pub trials: usize,
    /// Whether the time limit ended the search early.
    pub cut_short: bool,
    /// Changes of the fitted values that hardly raise the error.
    pub open: Vec<Open>,
    /// All lines: the measurement, the model before and after, and whether the fit used the line.
    pub lines: Vec<Line>,
}

/// A measured line and the model's values for it.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub label: String,
    /// The line.
    pub source: Measured,
    /// Unit of the values.
    pub unit: &'static str,
    /// The measured value.
    pub measured: f64,
    /// The model's value before the fit.
    pub before: f64,
    /// The model's value after the fit.
    pub after: f64,
    /// Whether the line was held out from the fit.
    pub held_out: bool,
}

impl Line {
    /// Relative error of the model after the fit.
    pub fn error(&self) -> f64 {
        self.after / self.measured - 1.0
    }

    /// This error with the settings of perftest.
    pub fn residual(&self) -> Residual {
        let Measured {
            test,
            bytes,
            queue_pairs,
            depth,
            ..
        } = self.source;
        Residual {
            label: self.label.clone(),
            error: self.error(),
            kind: test.program(),
            settings: vec![
                ("bytes", bytes as f64),
                ("queue pairs", queue_pairs as f64),
                ("outstanding", depth as f64),
            ],
        }
    }
}

/// Fits `like` to the measurements. With `hold_out`, every other line is kept from the fit, to be predicted.
pub fn fit_nic(
    like: &NicParameters,
    bed: &Testbed,
    measured: &[Measured],
    search: Search,
    hold_out: bool,
    tell: impl FnMut(Progress<'_>),
) -> Fitted {
    let is_held_out = |at: usize| hold_out && at % 2 == 1;
    let shown: Vec<Measured> = measured
        .iter()
        .enumerate()
        .filter(|(at, _)| !is_held_out(*at))
        .map(|(_, line)| *line)
        .collect();
    let start = bed.replay(like, &shown);
    let (mut knobs, mut unknown) = (Vec::new(), Vec::new());
    for (name, whole) in KNOBS {
        let knob = Knob {
            name: name.to_owned(),
            value: like.get(name).expect("a parameter of NICs"),
            whole,
        };
        match tells_of(like, bed, &shown, &start, &knob) {
            true => knobs.push(knob),
            false => unknown.push(knob.name),
        }
    }
    let model = Shown { bed, lines: &shown };
    let Found {
        nic,
        knobs: found,
        fresh_error,
        trials,
        cut_short,
        ..
    } = fit(like, &knobs, search, &model, tell);
    let (error, open) = open_changes(&nic, &found, |nic| bed.replay(nic, &shown));
    let before = bed.replay(like, measured);
    let after = bed.replay(&nic, measured);
    let lines = before.into_iter().zip(after).zip(measured).enumerate();
    let lines = lines.map(|(at, ((before, after), line))| Line {
        label: before.label,
        source: *line,
        unit: line.test.unit(),
        measured: line.value,
        before: before.ours,
        after: after.ours,
        held_out: is_held_out(at),
    });
    Fitted {
        lines: lines.collect(),
        fitted: knobs
            .iter()
            .zip(found)
            .map(|(before, after)| (after.name, before.value, after.value))
            .collect(),
        nic,
        unknown,
        error,
        fresh_error,
        trials,
        cut_short,
        open,
    }
}

/// Whether a change of the parameter would change the measured values.
fn tells_of(
    nic: &NicParameters,
    bed: &Testbed,
    shown: &[Measured],
    start: &[Compared],
    knob: &Knob,
) -> bool {
    [1.5, 1.0 / 1.5].into_iter().any(|factor| {
        let mut changed = nic.clone();
        let value = match knob.whole {
            true => (knob.value * factor).round().max(1.0),
            false => knob.value * factor,
        };
        if changed.set(&knob.name, value).is_err() {
            return false;
        }
        let now = bed.replay(&changed, shown);
        let mut both = now.iter().zip(start);
        both.any(|(now, start)| (now.ours / start.ours - 1.0).abs() > TELLING)
    })
}

/// The text of a parameter file for the NIC, with the source of each value: `source` for those that were fitted.
pub fn write_nic(fitted: &Fitted, name: &str, source: &str) -> String {
    let mut text = format!("name = {name:?}\n\n");
    for origin in &fitted.nic.origins {
        let value = fitted.nic.get(&origin.name).unwrap_or_default();
        let is_fitted = fitted.fitted.iter().any(|(name, ..)| *name == origin.name);
        let (source, confidence) = match is_fitted {
            true => (source.to_owned(), Confidence::Medium),
            false => {
                let like = &fitted.nic.name;
                (
                    format!("as {like}: {}", origin.source),
                    origin.confidence.min(Confidence::Low),
                )
            }
        };
        let confidence = format!("{confidence:?}").to_lowercase();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} = {{ value = {value:?}, source = {source:?}, confidence = {confidence:?} }}",
            origin.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bed() -> Testbed {
        Testbed {
            host: HostParameters::epyc_7452(),
            switch: SwitchParameters::sb7890(),
            seed: 1,
            threads: 2,
        }
    }

    fn line(test: Test, bytes: usize) -> Measured {
        Measured {
            test,
            bytes,
            queue_pairs: 1,
            depth: if test.is_latency() { 1 } else { 64 },
            signal_every: 1,
            inline_bytes: 0,
            mtu_bytes: Some(4096),
            value: 1.0,
        }
    }

    /// A NIC that differs from the one that the fit begins with is recovered from its measurements, including lines
    /// held out from the fit.
    #[test]
    fn a_nic_is_found_by_its_measurements() {
        let mut truth = NicParameters::connectx_5();
        truth.set("pipeline_ns", 420.0).unwrap();
        truth.set("link_gbit_s", 46.0).unwrap();
        let mut measured: Vec<Measured> = [8, 256, 4096]
            .map(|bytes| line(Test::WriteLatency, bytes))
            .into_iter()
            .chain([2_048, 8_192].map(|bytes| line(Test::WriteRate, bytes)))
            .collect();
        // Twice: a rate is taken over a time that depends on its value.
        for _ in 0..2 {
            let values = bed().replay(&truth, &measured);
            for (line, value) in measured.iter_mut().zip(values) {
                line.value = value.ours;
            }
        }
        let like = NicParameters::connectx_5();
        let search = Search {
            starts: 1,
            rounds: 2,
            seed: 1,
            within: None,
        };
        let fitted = fit_nic(&like, &bed(), &measured, search, true, |_| ());
        assert_eq!(fitted.lines.len(), measured.len());
        let worst = |of: fn(&Line) -> f64| fitted.lines.iter().map(of).fold(0.0, f64::max);
        assert!(worst(|line| (line.before / line.measured - 1.0).abs()) > 0.5);
        assert!(
            worst(|line| line.error().abs()) < 0.1,
            "{:#?}",
            fitted.lines
        );
        assert!(fitted.lines.iter().any(|line| line.held_out));
        // READs were not measured.
        assert!(fitted.unknown.contains(&"rx_read_request_ns".to_owned()));
        let text = write_nic(&fitted, "mine", "perftest, 5 lines");
        let back = NicParameters::parse(&text).unwrap();
        assert_eq!(back.name, "mine");
        for origin in &back.origins {
            assert_eq!(back.get(&origin.name), fitted.nic.get(&origin.name));
        }
    }
}
