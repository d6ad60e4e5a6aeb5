//! Results of an experiment: means over repeats with confidence intervals, as rows and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::column::Column;
use super::expect::Judged;
use super::flows::FlowTime;
use super::model::Point;
use super::point::Shown;
use super::Experiment;
use crate::csv::quote;
use crate::figure::Findings;

/// The outcome of an experiment. The same file and seeds give the same outcome, on any number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Title of the experiment.
    pub title: String,
    /// Keys of the sweep.
    pub keys: Vec<String>,
    /// The points that were run, in the order of the sweep.
    pub points: Vec<OutcomePoint>,
    /// Whether all points were run, with all of their repeats.
    pub complete: bool,
    /// Digest of all events of all runs, in hexadecimal.
    pub digest: String,
    /// Expectations, and whether they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Judged>,
    /// The chart, as SVG.
    #[serde(skip)]
    pub chart: Option<String>,
    /// Lines of the chart.
    #[serde(skip)]
    pub(super) lines: Option<Findings>,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutcomePoint {
    /// The values of the swept keys.
    pub at: BTreeMap<String, String>,
    /// Columns, in the order of the file.
    pub columns: Vec<Statistic>,
    /// The time series, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Piece>,
    /// Results of the flows in the first repeat.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowTime>,
    /// Number of simulated events in all repeats.
    pub events: u64,
    /// Digests of the events of each repeat, in hexadecimal.
    pub digests: Vec<String>,
}

/// A piece of a time series.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Piece {
    /// End of the piece, in nanoseconds since the clients began.
    pub end_ns: u64,
    /// Columns.
    pub columns: Vec<Statistic>,
}

/// A column of a point, over its repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Statistic {
    /// The column.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Mean over the repeats that had a value; NaN where none had, which is `null` in JSON.
    pub mean: f64,
    /// Number of repeats that had a value.
    pub count: usize,
    /// Number of repeats.
    pub repeats: usize,
    /// Half of the 95 % confidence interval of the mean, by Student's distribution; `None` for a single run.
    pub interval: Option<f64>,
}

/// The 97.5 % quantile of Student's distribution, by degrees of freedom from 1.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more degrees of freedom.
const NORMAL: f64 = 1.96;

impl Statistic {
    fn new(column: &Column, values: &[f64]) -> Self {
        let repeats = values.len();
        let values: Vec<f64> = values
            .iter()
            .copied()
            .filter(|value| !value.is_nan())
            .collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let interval = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let student = STUDENT.get(values.len() - 2).copied().unwrap_or(NORMAL);
            student * (squares / (count - 1.0)).sqrt() / count.sqrt()
        });
        Self {
            name: column.name.clone(),
            unit: column.definition.unit,
            mean,
            count: values.len(),
            repeats,
            interval,
        }
    }

    /// The mean over all repeats; NaN unless each of them had a value.
    pub(super) fn whole(&self) -> f64 {
        match self.count == self.repeats {
            true => self.mean,
            false => f64::NAN,
        }
    }

    /// Text for people.
    pub fn shown(&self) -> String {
        let mean = match self.interval {
            _ if self.mean.is_nan() => return "-".to_owned(),
            None => number(self.mean),
            Some(interval) => format!("{} ± {}", number(self.mean), number(interval)),
        };
        match self.count == self.repeats {
            true => mean,
            false => format!("{mean} ({} of {})", self.count, self.repeats),
        }
    }
}

/// Formats whole numbers as they are, others with at least three digits.
pub(super) fn number(value: f64) -> String {
    match value {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => format!("{whole:.0}"),
        small if small.abs() < 10.0 => format!("{small:.3}"),
        middle if middle.abs() < 1000.0 => format!("{middle:.2}"),
        large => format!("{large:.0}"),
    }
}

fn statistics(columns: &[Column], runs: &[&[f64]]) -> Vec<Statistic> {
    let statistic = |(number, column): (usize, &Column)| {
        let values: Vec<f64> = runs.iter().map(|run| run[number]).collect();
        Statistic::new(column, &values)
    };
    columns.iter().enumerate().map(statistic).collect()
}

impl Outcome {
    pub(super) fn new(experiment: &Experiment, runs: Vec<Vec<Shown>>) -> Self {
        let mut points = Vec::new();
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        let mut kept = Vec::new();
        let mut complete = true;
        for ((places, point), runs) in experiment.points.iter().zip(runs) {
            complete &= runs.len() == point.run.repeats;
            if runs.is_empty() {
                continue;
            }
            for run in &runs {
                digest = (digest ^ run.digest).wrapping_mul(0x0000_0100_0000_01b3);
            }
            let axes = experiment.axes.iter().zip(places);
            let at =
                axes.map(|(axis, &place)| (axis.key.clone(), axis.values[place].value.label()));
            points.push(OutcomePoint {
                at: at.collect(),
                columns: statistics(
                    &point.columns,
                    &runs.iter().map(|run| &run.values[..]).collect::<Vec<_>>(),
                ),
                series: series(point, &runs),
                flows: runs[0].flows.clone(),
                events: runs.iter().map(|run| run.events).sum(),
                digests: runs
                    .iter()
                    .map(|run| format!("{:016x}", run.digest))
                    .collect(),
            });
            kept.push(places.as_slice());
        }
        let mut outcome = Self {
            title: experiment.title.clone(),
            keys: experiment
                .axes
                .iter()
                .map(|axis| axis.key.clone())
                .collect(),
            points,
            complete,
            digest: format!("{digest:016x}"),
            expected: Vec::new(),
            chart: None,
            lines: None,
        };
        let axes = &experiment.axes;
        let plot = experiment.plot.as_ref();
        outcome.lines = plot.map(|plot| plot.findings(&outcome, axes, &kept));
        outcome.chart = outcome.lines.as_ref().map(crate::report::chart);
        let expected = experiment.expected.iter();
        outcome.expected = expected
            .map(|one| one.judge(&outcome, &kept, axes))
            .collect();
        outcome
    }

    /// Whether there are time series.
    pub fn has_series(&self) -> bool {
        self.points.iter().any(|point| !point.series.is_empty())
    }

    /// Names of the columns of [`Self::rows`].
    pub fn header(&self) -> Vec<String> {
        let first = self.points.first();
        let columns = first.map_or(&[][..], |point| &point.columns);
        self.keys
            .iter()
            .cloned()
            .chain(columns.iter().map(heading))
            .collect()
    }

    /// A row for each point, as text for people.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |point: &OutcomePoint| {
            let keys = self.labels(point);
            keys.into_iter()
                .chain(point.columns.iter().map(Statistic::shown))
                .collect()
        };
        self.points.iter().map(row).collect()
    }

    /// Names of the columns of [`Self::series_rows`].
    pub fn series_header(&self) -> Vec<String> {
        let mut header = self.header();
        header.insert(self.keys.len(), "until, us".to_owned());
        header
    }

    /// A row for each piece of the time series of each point.
    pub fn series_rows(&self) -> Vec<Vec<String>> {
        let row = |(point, piece): (&OutcomePoint, &Piece)| {
            let mut row = self.labels(point);
            row.push(number(piece.end_ns as f64 / 1e3));
            row.extend(piece.columns.iter().map(Statistic::shown));
            row
        };
        let pieces = self.points.iter();
        let pieces = pieces.flat_map(|point| point.series.iter().map(move |piece| (point, piece)));
        pieces.map(row).collect()
    }

    fn labels(&self, point: &OutcomePoint) -> Vec<String> {
        let label = |key: &String| point.at.get(key).cloned().unwrap_or_default();
        self.keys.iter().map(label).collect()
    }

    /// Points as CSV: keys, then each column followed by half of its interval.
    pub fn csv(&self) -> String {
        let first = self.points.first();
        let columns = first.map_or(&[][..], |point| &point.columns);
        let mut text = self.csv_header(&[], columns);
        for point in &self.points {
            self.csv_row(&mut text, point, None, &point.columns);
        }
        text
    }

    /// Time series as CSV: keys and the end of the piece in nanoseconds, then columns as in [`Self::csv`].
    pub fn series_csv(&self) -> String {
        let first = self.points.first();
        let columns = first.map_or(&[][..], |point| &point.columns);
        let mut text = self.csv_header(&["end_ns"], columns);
        for point in &self.points {
            for piece in &point.series {
                self.csv_row(&mut text, point, Some(piece.end_ns), &piece.columns);
            }
        }
        text
    }

    /// Whether there are flows.
    pub fn has_flows(&self) -> bool {
        self.points.iter().any(|point| !point.flows.is_empty())
    }

    /// A line for each flow of the first repeat of each point, as CSV: keys, hosts by number, bytes, start and duration
    /// in nanoseconds; the duration is empty if the flow did not end.
    pub fn flows_csv(&self) -> String {
        let keys = self.keys.iter().map(|key| quote(key) + ",");
        let mut text = keys.collect::<String>() + "from,to,bytes,start_ns,took_ns\n";
        for point in &self.points {
            let labels = self.labels(point);
            let labels: String = labels.iter().map(|label| quote(label) + ",").collect();
            for flow in &point.flows {
                let took = flow.took_ns.map_or(String::new(), |took| took.to_string());
                let (from, to, bytes, start) = (flow.from, flow.to, flow.bytes, flow.start_ns);
                let _ = writeln!(text, "{labels}{from},{to},{bytes},{start},{took}");
            }
        }
        text
    }

    fn csv_header(&self, more: &[&str], columns: &[Statistic]) -> String {
        let keys = self.keys.iter().map(|key| quote(key));
        let more = more.iter().map(|&name| name.to_owned());
        let columns = columns.iter().flat_map(|column| {
            let heading = heading(column);
            [quote(&heading), quote(&format!("{heading}, half interval"))]
        });
        let all: Vec<String> = keys.chain(more).chain(columns).collect();
        all.join(",") + "\n"
    }

    fn csv_row(
        &self,
        text: &mut String,
        point: &OutcomePoint,
        end_ns: Option<u64>,
        columns: &[Statistic],
    ) {
        let mut cells: Vec<String> = self
            .labels(point)
            .iter()
            .map(|label| quote(label))
            .collect();
        cells.extend(end_ns.map(|end| end.to_string()));
        for column in columns {
            let value = match column.mean.is_nan() {
                true => String::new(),
                false => column.mean.to_string(),
            };
            let interval = column
                .interval
                .map_or(String::new(), |half| half.to_string());
            cells.extend([value, interval]);
        }
        let _ = writeln!(text, "{}", cells.join(","));
    }
}

fn heading(column: &Statistic) -> String {
    match column.unit {
        "" => column.name.clone(),
        unit => format!("{}, {unit}", column.name),
    }
}

/// Combines the pieces of all runs; all runs have the same ones.
fn series(point: &Point, runs: &[Shown]) -> Vec<Piece> {
    let count = runs.iter().map(|run| run.pieces.len()).min().unwrap_or(0);
    let piece = |number: usize| {
        let values: Vec<&[f64]> = runs.iter().map(|run| &run.pieces[number].1[..]).collect();
        Piece {
            end_ns: runs[0].pieces[number].0,
            columns: statistics(&point.columns, &values),
        }
    };
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::super::column;
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let groups = column::Groups {
            clients: vec!["0"],
            ..column::Groups::default()
        };
        let column = column::find("rate", &groups).unwrap();
        let of = |values: &[f64]| Statistic::new(&column, values);
        assert_eq!(of(&[2.0]).interval, None);
        assert_eq!(of(&[2.0]).shown(), "2");
        // Mean 2, deviation 1, of three: 4.303 / sqrt(3).
        let three = of(&[1.0, 2.0, 3.0]);
        assert_eq!(three.mean, 2.0);
        assert!((three.interval.unwrap() - 2.484).abs() < 0.001);
        assert_eq!(three.shown(), "2 ± 2.484");
        assert_eq!(of(&[f64::NAN]).shown(), "-");
        // A value missing in one run is not replaced by the others.
        let two = of(&[1.0, f64::NAN, 1.0]);
        assert_eq!((two.count, two.repeats), (2, 3));
        assert_eq!(two.shown(), "1 ± 0 (2 of 3)");
        assert!(two.whole().is_nan());
        assert!(of(&vec![1.5; 40]).interval.unwrap() < 1e-9);
    }
}
