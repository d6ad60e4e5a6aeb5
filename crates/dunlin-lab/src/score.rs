//! The scorecard: every claim with a verdict.
//!
//! A claim with several answers is within when all of them are. Its row shows the first that is not, or the first.
//! Answers without a claim, such as rows of the calibration data, have rows of their own behind the claims.

use serde::{Deserialize, Serialize};

use crate::claims::{claims, id_of, use_of, Claim, First, FirstVerdict, Use};
use crate::csv;
use crate::figure::{Answer, Figure, Findings, Seeds};
use crate::freeze::Freeze;

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our value is within the tolerance.
    Within,
    /// Our value is not within the tolerance.
    Miss,
    /// There is nothing to judge; the row gives the reason.
    NotRun,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Within => "within",
            Self::Miss => "MISS",
            Self::NotRun => "not-run",
        })
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The claim's id, or the name of a calibration measurement.
    pub id: String,
    /// The paper's value.
    pub paper: String,
    /// Our value.
    pub ours: Option<f64>,
    /// Least and greatest value that agree with the paper's.
    pub tolerance: Option<(f64, f64)>,
    /// The verdict.
    pub verdict: Verdict,
    /// What was measured; for a miss what is known about its reason; for a row that was not run, why not.
    pub why: String,
    /// What the claim may be used for.
    pub class: Use,
    /// The verdict of its first run.
    pub first: Option<First>,
    /// Whether one of its answers is within a tenth of a bound, on either side: another seed could decide it.
    pub near: bool,
    /// Results of several seeds, for the answer shown.
    pub seeds: Option<Seeds>,
    /// A remark that a reader of the verdict must know.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remark: String,
    /// All answers, if a claim has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// One of several answers of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The id, with the words that distinguish it from the others.
    pub id: String,
    /// Our value.
    pub ours: Option<f64>,
    /// Least and greatest value that agree with the paper's.
    pub tolerance: (f64, f64),
    /// The verdict.
    pub verdict: Verdict,
    /// Results of several seeds.
    pub seeds: Option<Seeds>,
    /// What was measured.
    pub why: String,
}

impl Row {
    /// Keeps the findings, but judges nothing by them.
    fn not_judged(&mut self, replaced: &[String]) {
        let what = replaced.join(", ");
        self.why = format!("not judged, since {what} is not the paper's: {}", self.why);
        self.verdict = Verdict::NotRun;
        self.near = false;
        for part in &mut self.parts {
            part.verdict = Verdict::NotRun;
        }
    }
}

/// Number of rows by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Rows within the tolerance.
    pub within: usize,
    /// Rows not within it.
    pub miss: usize,
    /// Rows not judged.
    pub not_run: usize,
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scorecard {
    /// The rows, claims first, in the order of `claims.csv`.
    pub rows: Vec<Row>,
    /// Summary of all rows.
    pub summary: Summary,
    /// Summary of the predictions by their first run: `not_run` are those that have none.
    pub first_run: Summary,
    /// Summary of the predictions today. A claim that is within here and was not at first is an explanation.
    pub predictions: Summary,
    /// The parameters.
    pub parameters: Parameters,
    /// Whether all requested figures have run.
    pub complete: bool,
    /// Figures that could not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
}

/// A figure that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failed {
    /// Its name.
    pub figure: String,
    /// Its panic message.
    pub why: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.figure, self.why)
    }
}

/// The parameters of a scorecard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// One hash of all files.
    pub hash: String,
    /// The day of the freeze.
    pub frozen: String,
    /// Changes since the freeze; predictions are not judged then.
    pub changed: Vec<String>,
    /// Calibrating rows that missed at the freeze.
    pub admitted: Vec<String>,
    /// The hash of the code that is experimented on.
    pub protocols: String,
    /// Whether the code that is experimented on differs from that of the freeze: verdicts are then of other code than
    /// the freeze's, and no first runs.
    pub protocols_changed: bool,
    /// Whether figures ran with little effort: claims that this cannot judge were not run.
    pub quick: bool,
    /// Number of seeds with which each figure ran; zero if not known.
    pub seeds: u16,
    /// What replaces the papers' parameters: nothing was judged by it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
}

impl Scorecard {
    /// Judges all claims by the findings of the figures.
    pub fn new(results: &[(&'static Figure, Findings)], freeze: &Freeze) -> Self {
        let answers: Vec<&Answer> = results
            .iter()
            .flat_map(|(_, findings)| &findings.answers)
            .collect();
        let reasons = reasons();
        let claims = claims();
        let mut rows: Vec<Row> = claims
            .iter()
            .map(|claim| judge(claim, &answers, freeze, &reasons))
            .collect();
        let known = |answer: &&&Answer| claims.iter().any(|claim| claim.id == id_of(&answer.id));
        let others = answers.iter().filter(|answer| !known(answer));
        rows.extend(others.map(|answer| row(&answer.id, use_of(&claims, &answer.id), &[answer])));
        if !freeze.replaced.is_empty() {
            let judged = rows.iter_mut().filter(|row| row.ours.is_some());
            judged.for_each(|row| row.not_judged(&freeze.replaced));
        }
        let count = |wanted: &dyn Fn(&Row) -> bool| {
            let mut summary = Summary::default();
            for row in rows.iter().filter(|row| wanted(row)) {
                match row.verdict {
                    Verdict::Within => summary.within += 1,
                    Verdict::Miss => summary.miss += 1,
                    Verdict::NotRun => summary.not_run += 1,
                }
            }
            summary
        };
        let mut first_run = Summary::default();
        for row in rows.iter().filter(|row| row.class == Use::Predict) {
            match row.first.as_ref().map(|first| first.verdict) {
                Some(FirstVerdict::Within) => first_run.within += 1,
                Some(FirstVerdict::Miss) => first_run.miss += 1,
                None => first_run.not_run += 1,
            }
        }
        Self {
            first_run,
            summary: count(&|_| true),
            predictions: count(&|row| row.class == Use::Predict),
            parameters: Parameters {
                hash: match freeze.replaced.as_slice() {
                    [] => freeze.hash.clone(),
                    // Nothing can be frozen with this hash.
                    replaced => format!("{} with {}", freeze.hash, replaced.join(", ")),
                },
                replaced: freeze.replaced.clone(),
                frozen: freeze.date.clone(),
                changed: freeze.differences.clone(),
                admitted: freeze.admitted.clone(),
                protocols: freeze.protocols.clone(),
                protocols_changed: freeze.protocols_changed,
                quick: false,
                seeds: 0,
            },
            complete: true,
            failed: Vec::new(),
            rows,
        }
    }

    /// Adds how the figures ran.
    #[must_use]
    pub fn ran(mut self, quick: bool, seeds: u16) -> Self {
        self.parameters.quick = quick;
        self.parameters.seeds = seeds;
        self
    }

    /// Leaves out these figures, which could not run, and records whether others were left out.
    #[must_use]
    pub fn without(mut self, failed: &[Failed], left_out: bool) -> Self {
        self.complete = failed.is_empty() && !left_out;
        self.failed = failed.to_vec();
        self
    }
}

/// Why a range of claims has no figure.
struct Reason {
    first: String,
    last: String,
    why: String,
}

const REASONS: &str = include_str!("../data/not_run.csv");

/// Why a claim that has a figure was not judged.
const NO_FIGURE: &str =
    "its figure was not among those that ran, or says nothing about it in the quick set";

fn reasons() -> Vec<Reason> {
    let reason = |line: &str| {
        let [first, last, why] = <[String; 3]>::try_from(csv::split(line)).expect("three columns");
        Reason { first, last, why }
    };
    REASONS.lines().skip(1).map(reason).collect()
}

/// Why a claim has no figure, if it has none.
pub(crate) fn reason(id: &str) -> Option<String> {
    why_no_figure(&reasons(), id).map(str::to_owned)
}

fn why_no_figure<'a>(reasons: &'a [Reason], id: &str) -> Option<&'a str> {
    let covers = |r: &&Reason| *r.first <= *id && *id <= *r.last;
    reasons
        .iter()
        .find(covers)
        .map(|reason| reason.why.as_str())
}

fn judge(claim: &Claim, answers: &[&Answer], freeze: &Freeze, reasons: &[Reason]) -> Row {
    let ours: Vec<&Answer> = answers
        .iter()
        .filter(|answer| id_of(&answer.id) == claim.id)
        .copied()
        .collect();
    let known = |row: Row| Row {
        paper: claim.value.clone(),
        first: claim.first.clone(),
        remark: claim.remark.clone(),
        ..row
    };
    if ours.is_empty() || (claim.used == Use::Predict && !freeze.holds()) {
        let by_itself = [Use::Tautology, Use::Duplicate].contains(&claim.used);
        let why = if by_itself {
            claim.remark.clone()
        } else if ours.is_empty() {
            why_no_figure(reasons, &claim.id)
                .unwrap_or(NO_FIGURE)
                .to_owned()
        } else {
            freeze.to_string()
        };
        return known(Row {
            id: claim.id.clone(),
            paper: String::new(),
            ours: None,
            tolerance: None,
            verdict: Verdict::NotRun,
            why,
            class: claim.used,
            first: None,
            near: false,
            seeds: None,
            remark: String::new(),
            parts: Vec::new(),
        });
    }
    known(row(&claim.id, claim.used, &ours))
}

/// Whether a value is within a tenth of a finite bound. What must be exact is never near. A lower bound of zero
/// together with an upper bound is only where counts and spreads begin, and no bound; alone it is one, and a tenth is
/// 0.1.
fn near(ours: f64, (low, high): (f64, f64)) -> bool {
    if ours.is_nan() || low == high {
        return false;
    }
    let open = high == f64::MAX;
    let to_low = match (low == 0.0, open) {
        (true, true) => ours.abs() <= 0.1,
        (true, false) => false,
        _ => (ours - low).abs() <= 0.1 * low.abs(),
    };
    let scale = if high == 0.0 { low.abs() } else { high.abs() };
    to_low || (!open && (ours - high).abs() <= 0.1 * scale)
}

fn verdict(answer: &Answer) -> Verdict {
    match (answer.ours.is_nan(), answer.within) {
        (true, _) => Verdict::NotRun,
        (false, true) => Verdict::Within,
        (false, false) => Verdict::Miss,
    }
}

fn row(id: &str, class: Use, answers: &[&Answer]) -> Row {
    let rank = |answer: &&&Answer| match verdict(answer) {
        Verdict::Miss => 0,
        Verdict::NotRun => 1,
        Verdict::Within => 2,
    };
    let shown = answers.iter().min_by_key(rank).expect("at least one");
    let known = |answer: &Answer| (!answer.ours.is_nan()).then_some(answer.ours);
    let seeds = |answer: &Answer| (!answer.ours.is_nan()).then_some(answer.seeds);
    let part = |answer: &&Answer| Part {
        id: answer.id.clone(),
        ours: known(answer),
        tolerance: answer.bounds,
        verdict: verdict(answer),
        seeds: seeds(answer),
        why: answer.why.clone(),
    };
    let parts = if answers.len() > 1 {
        answers.iter().map(part).collect()
    } else {
        Vec::new()
    };
    Row {
        id: id.to_owned(),
        paper: shown.paper.clone(),
        ours: known(shown),
        tolerance: Some(shown.bounds),
        verdict: verdict(shown),
        why: if shown.ours.is_nan() {
            format!("not measured by this run: {}", shown.why)
        } else {
            shown.why.clone()
        },
        class,
        first: None,
        near: answers.iter().any(|one| near(one.ours, one.bounds)),
        seeds: seeds(shown),
        remark: String::new(),
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freeze;

    const FIGURE: Figure = Figure {
        name: "test",
        title: "",
        says: "",
        run: |_| Findings::default(),
    };

    fn score(answers: &[(&'static str, f64)], freeze: &Freeze) -> Scorecard {
        let mut findings = Findings::default();
        for &(id, ours) in answers {
            findings.answer(id, "about 1", ours, (0.5, 2.0), "a number");
        }
        Scorecard::new(&[(&FIGURE, findings)], freeze)
    }

    fn verdict_of(card: &Scorecard, id: &str) -> Verdict {
        card.rows
            .iter()
            .find(|row| row.id == id)
            .expect("a row")
            .verdict
    }

    #[test]
    fn every_claim_has_one_row_and_every_missing_one_a_reason() {
        let card = score(&[], &freeze::check());
        assert_eq!(card.rows.len(), claims().len());
        assert_eq!(card.summary.not_run, card.rows.len());
        for row in &card.rows {
            assert!(!row.why.is_empty(), "{}", row.id);
        }
    }

    #[test]
    fn what_is_near_a_bound() {
        assert!(near(1.69, (1.2, 1.7)) && near(1.8, (1.2, 1.7)) && !near(1.5, (1.2, 1.7)));
        assert!(near(1.05, (1.0, f64::MAX)) && !near(1.2, (1.0, f64::MAX)));
        assert!(near(0.003, (0.0, f64::MAX)) && !near(0.0, (0.0, 0.1)));
        assert!(near(-0.095, (-0.1, 0.1)) && !near(0.0, (-0.1, 0.1)));
        assert!(!near(10.0, (10.0, 10.0)) && !near(f64::NAN, (1.0, 2.0)));
    }

    #[test]
    fn first_runs_are_counted_beside_todays() {
        let card = score(&[("RB-001", 1.0), ("RB-003", 9.0)], &freeze::check());
        assert_eq!((card.predictions.within, card.predictions.miss), (1, 1));
        let first = |id| {
            let row = card.rows.iter().find(|row| row.id == id).expect("a row");
            row.first.as_ref().expect("a first run").verdict
        };
        assert_eq!(first("RB-001"), FirstVerdict::Miss);
        assert_eq!(first("RB-003"), FirstVerdict::Within);
        // As recorded in the history: `data/first.csv`.
        assert_eq!((card.first_run.within, card.first_run.miss), (53, 136));
        assert_eq!(verdict_of(&card, "FL-002"), Verdict::NotRun);
        let same = card.rows.iter().find(|row| row.id == "FL-002").unwrap();
        assert!(same.class == Use::Duplicate && same.why.contains("FL-033"));
    }

    /// All text of the sources below a folder.
    fn sources(folder: &std::path::Path) -> String {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let text = entries.map(|entry| match entry.path() {
            folder if folder.is_dir() => sources(&folder),
            file => std::fs::read_to_string(file).expect("a source"),
        });
        text.collect()
    }

    #[test]
    fn no_claim_that_a_figure_answers_has_a_reason_why_none_does() {
        let figures = concat!(env!("CARGO_MANIFEST_DIR"), "/src/figures");
        let text = sources(figures.as_ref());
        let wrong: Vec<_> = claims()
            .into_iter()
            .filter(|claim| text.contains(&format!("\"{}", claim.id)))
            .filter(|claim| {
                let covers = |r: &Reason| *r.first <= *claim.id && *claim.id <= *r.last;
                reasons().iter().any(covers)
            })
            .map(|claim| claim.id)
            .collect();
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_claim_is_within_when_all_its_answers_are() {
        let card = score(
            &[
                ("SR-004 at 10", 1.0),
                ("SR-004 at 800", 3.0),
                ("RB-010", 1.0),
                ("a measurement", f64::NAN),
            ],
            &freeze::check(),
        );
        assert_eq!(verdict_of(&card, "SR-004"), Verdict::Miss);
        assert_eq!(verdict_of(&card, "RB-010"), Verdict::Within);
        assert_eq!(verdict_of(&card, "a measurement"), Verdict::NotRun);
        let row = card.rows.iter().find(|row| row.id == "SR-004").unwrap();
        assert_eq!((row.ours, row.parts.len()), (Some(3.0), 2));
        assert_eq!(row.paper, "2 Mops at 800");
    }

    #[test]
    fn nothing_is_judged_by_a_nic_that_is_not_the_papers() {
        let mut freeze = freeze::check();
        freeze.differences.clear();
        freeze.replaced = vec!["my-nic.toml".to_owned()];
        let card = score(
            &[("RB-004", 1.0), ("RB-010", 9.0), ("auto, x", 1.0)],
            &freeze,
        );
        assert_eq!((card.summary.within, card.summary.miss), (0, 0));
        for (id, ours) in [("RB-004", 1.0), ("RB-010", 9.0), ("auto, x", 1.0)] {
            let row = card.rows.iter().find(|row| row.id == id).expect("a row");
            assert_eq!((row.verdict, row.ours), (Verdict::NotRun, Some(ours)));
            assert!(
                row.why.contains("my-nic.toml is not the paper's"),
                "{}",
                row.why
            );
        }
        assert_ne!(card.parameters.hash, freeze.hash);
    }

    #[test]
    fn predictions_are_not_judged_by_parameters_that_are_not_frozen() {
        let mut freeze = freeze::check();
        freeze.differences = vec!["connectx-5.toml was changed after the freeze".to_owned()];
        let card = score(&[("RB-004", 1.0), ("RB-010", 1.0)], &freeze);
        assert_eq!(verdict_of(&card, "RB-004"), Verdict::NotRun);
        assert_eq!(verdict_of(&card, "RB-010"), Verdict::Within);
        let row = card.rows.iter().find(|row| row.id == "RB-004").unwrap();
        assert!(
            row.why.contains("connectx-5.toml was changed"),
            "{}",
            row.why
        );
        assert_eq!(card.predictions.within, 0);
    }
}
