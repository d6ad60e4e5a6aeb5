//! Curves over sizes as SVG, with logarithmic axes; written by hand, without a plotting library or fonts.

use std::fmt::Write;

use crate::output;

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Size and value, both above zero, the sizes ascending.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that can be distinguished with any colour vision (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// The unit of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::BytesPerSecond => output::bandwidth(value),
            Self::Nanoseconds => output::nanoseconds(value),
        }
    }
}

/// Draws the plot.
pub fn plot(title: &str, unit: Unit, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| &s.points);
    let positive = |value: f64| value.max(f64::MIN_POSITIVE);
    let range = |pick: fn(&(f64, f64)) -> f64| {
        points()
            .map(|p| positive(pick(p)))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
    };
    let (x_low, x_high) = range(|p| p.0);
    let (y_low, y_high) = range(|p| p.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    if !(x_low < x_high && y_low.is_finite()) {
        svg.push_str("</svg>\n");
        return svg;
    }
    let (y_low, y_high) = (
        10f64.powf(y_low.log10().floor()),
        10f64.powf(y_high.log10().ceil()),
    );
    let scale = |value: f64, low: f64, high: f64| {
        (positive(value).ln() - low.ln()) / (high.ln() - low.ln()).max(1e-9)
    };
    let x = |value: f64| LEFT + scale(value, x_low, x_high) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - scale(value, y_low, y_high) * (HEIGHT - TOP - BOTTOM);
    let line = |svg: &mut String, text: String| {
        let _ = writeln!(svg, "{text}");
    };
    let mut tick = y_low;
    while tick <= y_high * 1.001 {
        let at = y(tick);
        line(&mut svg, format!("<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", WIDTH - RIGHT, LEFT - 8.0, at + 4.0, unit.show(tick)));
        tick *= 10.0;
    }
    let mut tick = x_low;
    while tick <= x_high * 1.001 {
        let at = x(tick);
        line(&mut svg, format!("<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", HEIGHT - BOTTOM, HEIGHT - BOTTOM + 20.0, output::bytes(tick)));
        tick *= 4.0;
    }
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<String> = series
            .points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        line(
            &mut svg,
            format!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                points.join(" ")
            ),
        );
        let at = TOP + 18.0 * (index as f64 + 1.0);
        line(&mut svg, format!("<line x1=\"{0:.1}\" x2=\"{1:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{2:.1}\" y=\"{3:.1}\">{4}</text>", WIDTH - RIGHT + 10.0, WIDTH - RIGHT + 34.0, WIDTH - RIGHT + 40.0, at + 4.0, series.name));
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_curve_for_each_series() {
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: vec![(64.0, 1e6 * factor), (128.0, 3e7 * factor)],
        };
        let svg = plot(
            "rates",
            Unit::BytesPerSecond,
            &[series("one", 1.0), series("two", 2.0)],
        );
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">one<") && svg.contains("1.00 MB/s"));
        assert!(!svg.contains("NaN"));
        assert!(plot("nothing", Unit::Nanoseconds, &[]).ends_with("</svg>\n"));
    }
}
