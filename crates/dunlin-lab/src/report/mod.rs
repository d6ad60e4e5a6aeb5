//! Reports: text, scorecard, CSV, SVG and one HTML page with everything.

mod html;
mod svg;

use std::fmt::Write;
use std::path::Path;

use crate::csv::quote;
use crate::figure::{Figure, Findings};

/// Figures with what they gave.
pub type Results = [(&'static Figure, Findings)];

/// For a terminal.
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
    text + &scorecard(results)
}

/// The claims with verdicts.
pub fn scorecard(results: &Results) -> String {
    let mut text = format!(
        "\n{:52} {:>26} {:>10} {:>17}  verdict\n",
        "claim", "paper", "ours", "tolerance"
    );
    let (mut within, mut miss) = (0, 0);
    for answer in results.iter().flat_map(|(_, findings)| &findings.answers) {
        let bounds = format!("{}..{}", answer.bounds.0, answer.bounds.1);
        let verdict = if answer.within { "within" } else { "MISS" };
        *(if answer.within {
            &mut within
        } else {
            &mut miss
        }) += 1;
        let _ = writeln!(
            text,
            "{:52} {:>26} {:>10.2} {bounds:>17}  {verdict}: {}",
            answer.id, answer.paper, answer.ours, answer.why
        );
    }
    let _ = writeln!(text, "{within} within, {miss} miss");
    text
}

/// The scorecard for machines.
pub fn json(results: &Results) -> String {
    let text = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut rows = Vec::new();
    let mut counts = [0; 3];
    for answer in results.iter().flat_map(|(_, findings)| &findings.answers) {
        let (verdict, place) = match (answer.ours.is_nan(), answer.within) {
            (true, _) => ("not-run", 2),
            (_, true) => ("within", 0),
            (_, false) => ("miss", 1),
        };
        counts[place] += 1;
        let ours = if answer.ours.is_nan() {
            "null".to_owned()
        } else {
            format!("{:.4}", answer.ours)
        };
        rows.push(format!(
            "{{\"id\": {}, \"paper\": {}, \"ours\": {ours}, \"tolerance\": [{}, {}], \"verdict\": \"{verdict}\", \"why\": {}}}",
            text(answer.id),
            text(&answer.paper),
            answer.bounds.0,
            answer.bounds.1,
            text(&answer.why)
        ));
    }
    let [within, miss, not_run] = counts;
    format!(
        "{{\"rows\": [\n  {}\n], \"summary\": {{\"within\": {within}, \"miss\": {miss}, \"not_run\": {not_run}}}}}\n",
        rows.join(",\n  ")
    )
}

/// Writes `NAME.csv` and `NAME.svg` for each figure, and `report.html`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, results: &Results) -> std::io::Result<()> {
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
    std::fs::write(folder.join("report.html"), html::page(results))
}
