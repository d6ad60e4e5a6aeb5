//! Reports: text, scorecard, CSV, SVG and one HTML page with everything.

mod html;
mod svg;

use std::fmt::Write;
use std::path::Path;

pub(crate) use svg::chart;

use crate::claims::FirstVerdict;
use crate::csv::quote;
use crate::figure::{Figure, Findings};
use crate::score::{Row, Scorecard, Summary, Verdict};

/// Figures with their findings.
pub type Results = [(&'static Figure, Findings)];

/// The lines of all figures, for a terminal.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    for (figure, findings) in results {
        let _ = writeln!(text, "\n{}\n  paper: {}", figure.title, figure.says);
        for series in &findings.series {
            let _ = writeln!(
                text,
                "  {} ({} over {})",
                series.name, findings.y, findings.x
            );
            for (x, y) in &series.points {
                let _ = writeln!(text, "    {x:>8} {y:10.2}");
            }
        }
    }
    text
}

/// The scorecard for a terminal: the judged rows, then why the others were not judged.
pub fn scorecard(card: &Scorecard) -> String {
    let mut text = judged(card);
    text.push_str(&left_out(card));
    text.push_str(&counts(card));
    text.push_str(&provenance(card));
    text
}

/// The verdicts of a run of some figures, for a terminal. Claims of other figures are left out, as they were not run.
pub fn verdicts(card: &Scorecard) -> String {
    judged(card) + "\n" + &provenance(card)
}

fn judged(card: &Scorecard) -> String {
    let mut text = format!(
        "{:38} {:9} {:>26} {:>10} {:>17}  verdict\n",
        "claim", "class", "paper", "ours", "tolerance"
    );
    let found = |row: &&Row| row.verdict != Verdict::NotRun || row.ours.is_some();
    let judged = card.rows.iter().filter(found);
    for row in judged {
        let bounds = bounds(row.tolerance);
        let ours = row.ours.map_or(String::new(), |ours| format!("{ours:.2}"));
        let class = format!("{:?}", row.class).to_lowercase();
        let _ = writeln!(
            text,
            "{:38} {class:9} {:>26} {ours:>10} {bounds:>17}  {}{}: {}",
            row.id,
            shorten(&row.paper, 26),
            row.verdict,
            beside(row),
            row.why
        );
        if !row.remark.is_empty() {
            let _ = writeln!(text, "  {:36} {}", "", row.remark);
        }
        for part in &row.parts {
            let ours = part.ours.map_or(String::new(), |ours| format!("{ours:.2}"));
            let _ = writeln!(
                text,
                "  {:36} {:36} {ours:>10} {:>17}  {}: {}",
                part.id,
                "",
                self::bounds(Some(part.tolerance)),
                part.verdict,
                part.why
            );
        }
    }
    text
}

/// The reasons why rows have no verdict.
fn left_out(card: &Scorecard) -> String {
    let mut text = String::new();
    let missing: Vec<&Row> = card.rows.iter().filter(|row| row.ours.is_none()).collect();
    for run in missing.chunk_by(|one, other| one.why == other.why) {
        let ids: Vec<&str> = run.iter().map(|row| row.id.as_str()).collect();
        let ids = match ids.as_slice() {
            [first, .., last] => format!("{first} to {last}"),
            _ => ids.concat(),
        };
        let _ = writeln!(text, "{ids:38} not-run: {}", run[0].why);
    }
    text
}

fn counts(card: &Scorecard) -> String {
    let Summary {
        within,
        miss,
        not_run,
    } = card.summary;
    let mut text = String::new();
    let predictions = card.predictions;
    let _ = writeln!(text, "\n{within} within, {miss} miss, {not_run} not run");
    let first = card.first_run;
    let _ = writeln!(
        text,
        "predictions at their first run: {} within, {} miss, {} not run yet",
        first.within, first.miss, first.not_run
    );
    let _ = writeln!(
        text,
        "the same today, explanations included: {} within, {} miss, {} not run",
        predictions.within, predictions.miss, predictions.not_run
    );
    text
}

/// The parameters of the run.
fn provenance(card: &Scorecard) -> String {
    let mut text = String::new();
    for failed in &card.failed {
        let _ = writeln!(text, "could not be run: {failed}");
    }
    if !card.complete && card.failed.is_empty() {
        text.push_str("not complete: figures that were asked for were left out\n");
    }
    if !card.parameters.admitted.is_empty() {
        let _ = writeln!(
            text,
            "frozen although a calibrating row misses: {}",
            card.parameters.admitted.join(", ")
        );
    }
    if card.parameters.protocols_changed {
        text.push_str("the protocols' code is not what it was at the freeze: no verdict of this run is a first one\n");
    }
    let parameters = &card.parameters;
    if parameters.quick {
        text.push_str("a quick run: what would be another experiment then is not judged\n");
    }
    if !parameters.replaced.is_empty() {
        let what = parameters.replaced.join(", ");
        let _ = writeln!(
            text,
            "with {what}, which is not the papers': no claim was judged"
        );
        return text;
    }
    let _ = if parameters.changed.is_empty() {
        writeln!(
            text,
            "parameters {}, frozen {}",
            parameters.hash, parameters.frozen
        )
    } else {
        writeln!(
            text,
            "parameters {} are NOT FROZEN, so no prediction was judged: {}",
            parameters.hash,
            few_of(&parameters.changed)
        )
    };
    text
}

/// The first of these, and the number of others: people get a line, and `--json` has all.
fn few_of(differences: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = differences.len().saturating_sub(SHOWN);
    let shown = differences[..differences.len() - more].join("; ");
    match more {
        0 => shown,
        more => format!("{shown}; and {more} more, which --json names"),
    }
}

/// Additions to a verdict: the first verdict, whether it is near a bound, and the results of several seeds.
fn beside(row: &Row) -> String {
    let mut words = Vec::new();
    if let Some(first) = &row.first {
        let verdict = match first.verdict {
            FirstVerdict::Within => "within",
            FirstVerdict::Miss => "MISS",
        };
        words.push(format!("first {verdict}"));
    }
    if row.near {
        words.push("near".to_owned());
    }
    if let Some(seeds) = row.seeds.filter(|seeds| seeds.count > 1) {
        let (least, most) = (seeds.least, seeds.most);
        words.push(format!("{least:.2} to {most:.2} by {} seeds", seeds.count));
    }
    if words.is_empty() {
        return String::new();
    }
    format!(" ({})", words.join(", "))
}

fn bounds(tolerance: Option<(f64, f64)>) -> String {
    tolerance.map_or(String::new(), |(low, high)| {
        if high == f64::MAX {
            format!("from {low}")
        } else {
            format!("{low}..{high}")
        }
    })
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Writes `NAME.csv` and `NAME.svg` for each figure, and `report.html`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, results: &Results, card: &Scorecard) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (figure, findings) in results {
        let mut lines = format!("series,{},{}\n", quote(&findings.x), quote(&findings.y));
        for series in &findings.series {
            for (x, y) in &series.points {
                let _ = writeln!(lines, "{},{x},{y}", quote(&series.name));
            }
        }
        std::fs::write(folder.join(format!("{}.csv", figure.name)), lines)?;
        std::fs::write(
            folder.join(format!("{}.svg", figure.name)),
            svg::chart(findings),
        )?;
    }
    std::fs::write(folder.join("report.html"), html::page(results, card))
}
