//! Line charts as SVG, without fonts or libraries.

use std::fmt::Write;

use crate::figure::Findings;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;
/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// Escapes text for SVG and HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A round number at or above `value`.
fn round_up(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .iter()
        .map(|step| step * magnitude)
        .find(|&top| top >= value)
        .unwrap_or(value)
}

/// The chart of a figure; a note when it has no lines.
pub(crate) fn chart(findings: &Findings) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let all: Vec<(f64, f64)> = findings
        .series
        .iter()
        .flat_map(|series| series.points.iter().copied())
        .collect();
    if all.is_empty() {
        return svg
            + "<text x=\"20\" y=\"40\">single values only: see the scorecard</text></svg>\n";
    }
    let scale = |x: f64| {
        if findings.log_x {
            x.max(1e-9).log2()
        } else {
            x
        }
    };
    let (low, high) = all.iter().fold((f64::MAX, f64::MIN), |(low, high), p| {
        (low.min(scale(p.0)), high.max(scale(p.0)))
    });
    let span = (high - low).max(1e-9);
    let top = round_up(all.iter().map(|point| point.1).fold(0.0, f64::max));
    let at_x = |x: f64| LEFT + (scale(x) - low) / span * (WIDTH - LEFT - RIGHT);
    let at_y = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM);
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let y = at_y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let mut marks: Vec<f64> = all.iter().map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let mut last = f64::MIN;
    for mark in marks {
        let x = at_x(mark);
        if x - last > 34.0 {
            last = x;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>",
                HEIGHT - BOTTOM + 16.0
            );
        }
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 12.0,
        escape(&findings.x)
    );
    let _ = writeln!(
        svg,
        "<text transform=\"rotate(-90)\" x=\"{}\" y=\"14\" text-anchor=\"middle\">{}</text>",
        -HEIGHT / 2.0,
        escape(&findings.y)
    );
    for (number, series) in findings.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> = series
            .points
            .iter()
            .map(|p| format!("{:.1},{:.1}", at_x(p.0), at_y(p.1)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for point in &path {
            let (x, y) = point.split_once(',').unwrap_or(("0", "0"));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let y = TOP + 14.0 * number as f64 + 6.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            WIDTH - RIGHT - 4.0,
            escape(&series.name)
        );
    }
    svg + "</svg>\n"
}
