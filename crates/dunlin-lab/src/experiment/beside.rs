//! Comparison of an outcome with recorded results of other simulators or measurements: means of their runs from a file,
//! and the difference of ours.

use serde::Serialize;

use super::outcome::{number, Outcome, OutcomePoint};
use crate::csv;

/// Columns that identify a line; all others are columns of experiments.
const OF: [&str; 5] = ["experiment", "point", "peer", "model", "run"];

/// Recorded runs, one per line.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    columns: Vec<String>,
    runs: Vec<Run>,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    /// Experiment, point, peer, model.
    of: [String; 4],
    values: Vec<f64>,
}

/// Why a file of recorded runs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// The header is wrong.
    #[error("line 1 must begin with experiment,point,peer,model,run, followed by columns of experiments")]
    Header,
    /// A line has the wrong number of fields.
    #[error("line {line}: {found} fields, but the first line has {wanted}")]
    Fields {
        /// Line number, from 1.
        line: usize,
        /// Number of its fields.
        found: usize,
        /// Number of fields expected.
        wanted: usize,
    },
    /// A value is not a number.
    #[error("line {line}: `{column}` is \"{found}\": it must be a number")]
    Number {
        /// Line number, from 1.
        line: usize,
        /// The column.
        column: String,
        /// The text found.
        found: String,
    },
}

/// A column of ours compared with that of a peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Values of the swept keys.
    pub point: String,
    /// The peer.
    pub peer: String,
    /// How it was set up.
    pub model: String,
    /// The column.
    pub column: String,
    /// Its unit.
    pub unit: &'static str,
    /// Number of runs of the peer.
    pub runs: usize,
    /// Mean of the peer's runs.
    pub theirs: f64,
    /// Their minimum.
    pub least: f64,
    /// Their maximum.
    pub most: f64,
    /// Ours: the mean of its repeats.
    pub ours: f64,
}

impl Comparison {
    /// How far ours is above theirs, as a share of theirs; NaN where theirs is zero and ours is not.
    pub fn difference(&self) -> f64 {
        match self.ours == self.theirs {
            true => 0.0,
            false if self.theirs == 0.0 => f64::NAN,
            false => self.ours / self.theirs - 1.0,
        }
    }

    /// Text for people, with the columns [`Comparison::HEADER`].
    pub fn row(&self) -> Vec<String> {
        let column = match self.unit {
            "" => self.column.clone(),
            unit => format!("{}, {unit}", self.column),
        };
        let range = match self.runs {
            1 => String::new(),
            _ => format!("{} to {}", number(self.least), number(self.most)),
        };
        let difference = match self.difference() {
            none if none.is_nan() => "-".to_owned(),
            difference => format!("{:+.1} %", difference * 100.0),
        };
        let (theirs, ours) = (number(self.theirs), number(self.ours));
        let words = [&self.point, &self.peer, &self.model, &column];
        words
            .into_iter()
            .cloned()
            .chain([theirs, range, ours, difference])
            .collect()
    }

    /// Columns of [`Comparison::row`].
    pub const HEADER: [&'static str; 8] = [
        "point",
        "peer",
        "model",
        "column",
        "theirs",
        "of their runs",
        "ours",
        "difference",
    ];
}

impl Recorded {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        let mut lines = text.lines().zip(1..);
        let header = lines.next().map(|(line, _)| csv::split(line));
        let header = header.ok_or(RecordedError::Header)?;
        let columns = match header.strip_prefix(OF.map(str::to_owned).as_slice()) {
            Some(columns) if !columns.is_empty() => columns.to_vec(),
            _ => return Err(RecordedError::Header),
        };
        let run = |(text, line): (&str, usize)| {
            let fields = csv::split(text);
            if fields.len() != header.len() {
                return Err(RecordedError::Fields {
                    line,
                    found: fields.len(),
                    wanted: header.len(),
                });
            }
            let value = |(column, field): (&String, &String)| {
                let value = field.parse().ok().filter(|value: &f64| value.is_finite());
                value.ok_or_else(|| RecordedError::Number {
                    line,
                    column: column.clone(),
                    found: field.clone(),
                })
            };
            let values = columns.iter().zip(&fields[OF.len()..]).map(value);
            Ok(Run {
                of: std::array::from_fn(|place| fields[place].clone()),
                values: values.collect::<Result<_, _>>()?,
            })
        };
        let lines = lines.filter(|(line, _)| !line.trim().is_empty());
        let runs = lines.map(run).collect::<Result<_, _>>()?;
        Ok(Self { columns, runs })
    }

    /// Compares the records of this experiment with an outcome of ours, in the columns that both have.
    pub fn beside(&self, experiment: &str, outcome: &Outcome) -> Vec<Comparison> {
        let mut all = Vec::new();
        for point in &outcome.points {
            let label = label(point);
            let of_point = |run: &&Run| run.of[0] == experiment && run.of[1] == label;
            let runs: Vec<&Run> = self.runs.iter().filter(of_point).collect();
            let mut seen: Vec<&[String]> = Vec::new();
            for run in &runs {
                let who = &run.of[2..];
                if seen.contains(&who) {
                    continue;
                }
                seen.push(who);
                let alike: Vec<&Run> = runs
                    .iter()
                    .copied()
                    .filter(|other| other.of[2..] == *who)
                    .collect();
                all.extend(self.of_peer(&label, &alike, point));
            }
        }
        all
    }

    fn of_peer<'a>(
        &'a self,
        label: &'a str,
        runs: &'a [&Run],
        point: &'a OutcomePoint,
    ) -> impl Iterator<Item = Comparison> + 'a {
        let comparison = move |(place, name): (usize, &String)| {
            let ours = point.columns.iter().find(|column| column.name == *name)?;
            let values = || runs.iter().map(|run| run.values[place]);
            Some(Comparison {
                point: label.to_owned(),
                peer: runs[0].of[2].clone(),
                model: runs[0].of[3].clone(),
                column: name.clone(),
                unit: ours.unit,
                runs: runs.len(),
                theirs: values().sum::<f64>() / runs.len() as f64,
                least: values().fold(f64::MAX, f64::min),
                most: values().fold(f64::MIN, f64::max),
                ours: ours.mean,
            })
        };
        self.columns.iter().enumerate().filter_map(comparison)
    }
}

/// The swept keys with their values, as in files of recorded runs.
fn label(point: &OutcomePoint) -> String {
    let keys = point.at.iter().map(|(key, value)| format!("{key}={value}"));
    keys.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Settings};

    const HEADER: &str = "experiment,point,peer,model,run,unfinished,switch_drops,nothing\n";

    fn outcome() -> Outcome {
        let text = r#"
            [topology]
            [[topology.hosts]]
            name = "hosts"
            count = 2
            [[flows]]
            senders = "hosts.0"
            receivers = "hosts.1"
            size = "1GB"
            [run]
            warm_up = "0ns"
            duration = "10us"
            [sweep]
            "run.seed" = [1, 2]
            [print]
            columns = ["unfinished", "switch_drops"]
        "#;
        let settings = Settings::default();
        let experiment = Experiment::parse("e.toml", text, std::path::Path::new(""), &settings);
        experiment.unwrap().run(1, || false).unwrap()
    }

    #[test]
    fn runs_of_a_peer_are_taken_together() {
        let text = format!(
            "{HEADER}e,run.seed=1,p,m,1,0.5,0,7\ne,run.seed=1,p,m,2,1,0,7\n\
             e,run.seed=2,p,m,1,2,3,7\nother,run.seed=1,p,m,1,9,9,9\n"
        );
        let all = Recorded::parse(&text).unwrap().beside("e", &outcome());
        let names: Vec<(&str, &str)> = all
            .iter()
            .map(|one| (&one.point[..], &one.column[..]))
            .collect();
        let (first, second) = ("run.seed=1", "run.seed=2");
        assert_eq!(
            names,
            [
                (first, "unfinished"),
                (first, "switch_drops"),
                (second, "unfinished"),
                (second, "switch_drops")
            ]
        );
        assert_eq!(all[0].runs, 2);
        assert_eq!((all[0].theirs, all[0].least, all[0].most), (0.75, 0.5, 1.0));
        assert_eq!(all[0].ours, 1.0);
        assert!((all[0].difference() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(all[1].difference(), 0.0);
        assert_eq!(all[2].difference(), -0.5);
        assert_eq!(all[3].row()[7], "-100.0 %");
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for (text, message) in [
            ("", "line 1 must begin"),
            ("experiment,point,peer,model,run\n", "line 1 must begin"),
            (
                "point,experiment,peer,model,run,fct_p50\n",
                "line 1 must begin",
            ),
        ] {
            let error = Recorded::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let line = |line: &str| Recorded::parse(&format!("{HEADER}{line}\n")).unwrap_err();
        assert_eq!(
            line("e,,p,m,1,2").to_string(),
            "line 2: 6 fields, but the first line has 8"
        );
        assert_eq!(
            line("e,,p,m,1,2,many,4").to_string(),
            "line 2: `switch_drops` is \"many\": it must be a number"
        );
    }
}
