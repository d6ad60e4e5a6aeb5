//! The chart of an experiment: its axes and lines.

use super::cases::{Case, CASE};
use super::check::{self, Values};
use super::column::Column;
use super::expect::Which;
use super::expression::{self, Expression};
use super::mistake::{instead, Mistake};
use super::model::Point;
use super::outcome::{Outcome, Piece, Statistic};
use super::sweep::Axis;
use super::tree::{Table, Value};
use crate::figure::Findings;

/// Description of a chart.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    x: Across,
    y: Column,
    log_x: bool,
    x_label: Option<String>,
    y_label: Option<String>,
    /// Template for the names of lines, with keys in braces.
    line: Option<String>,
    /// Labels of the values of each axis.
    labels: Vec<Vec<String>>,
    /// Additional lines, with their names.
    lines: Vec<(String, Expression)>,
    /// Whether only the additional lines are drawn.
    only_lines: bool,
}

#[derive(Clone, Debug)]
enum Across {
    /// A key of the sweep.
    Key(usize),
    Column(Column),
    Time,
}

/// Removes the chart if its x axis is a key that a `--set` has removed from the sweep.
pub(super) fn without(root: &mut Table, fixed: &[&str]) {
    let across = match root.get("plot").map(|node| &node.value) {
        Some(Value::Table(table)) => table.get("x").map(|node| node.value.label()),
        _ => None,
    };
    if across.is_some_and(|across| fixed.contains(&across.as_str())) {
        root.entries.retain(|entry| entry.key != "plot");
        return;
    }
    let mut entries = root.entries.iter_mut();
    let plot = entries.find(|entry| entry.key == "plot");
    let plot = plot.map(|entry| &mut entry.node.value);
    if let (Some(Value::Table(table)), false) = (plot, fixed.is_empty()) {
        // They tell how many keys there are.
        table
            .entries
            .retain(|entry| !["line", "lines", "only_lines"].contains(&entry.key.as_str()));
    }
}

impl Plot {
    /// Reads the chart of a file; `None` if there is no table for it.
    pub(super) fn read(
        root: &Table,
        (cases, axes): (&[Case], &[Axis]),
        point: &Point,
        which: Which,
    ) -> Result<Option<Self>, Mistake> {
        let values = check::one(root, "plot")?;
        if root.get("plot").is_none() {
            return Ok(None);
        }
        let column = |name: &str| point.columns.iter().find(|column| column.name == name);
        let columns: Vec<&str> = point
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let y = match values.text("y") {
            None => &point.columns[0],
            Some(name) => column(&name).ok_or_else(|| {
                let must = format!("it is not in `print.columns`{}", instead(&name, &columns));
                values.wrong("y", &format!("{name:?}"), must)
            })?,
        };
        let numeric = |place: &usize| axes[*place].numbers().is_some();
        let x = match values.text("x") {
            None => match (0..axes.len()).find(numeric) {
                Some(place) => Across::Key(place),
                None if point.every_ns.is_some() => Across::Time,
                None => {
                    let words =
                        "[plot] has no `x`: there is no key in [sweep] whose values are numbers";
                    return Err(Mistake::new(values.place("x"), words));
                }
            },
            Some(name) => match axes.iter().position(|axis| axis.key == name) {
                Some(place) if numeric(&place) => Across::Key(place),
                Some(_) => {
                    let must = "values of this key are no numbers: let it be the lines";
                    return Err(values.wrong("x", &format!("{name:?}"), must));
                }
                None if name == "time" && point.every_ns.is_some() => Across::Time,
                None if name == "time" => {
                    let must = "it needs a time series: give `print.every`";
                    return Err(values.wrong("x", "\"time\"", must));
                }
                None => match column(&name) {
                    Some(column) => Across::Column(column.clone()),
                    None => {
                        let mut names: Vec<&str> =
                            axes.iter().map(|axis| axis.key.as_str()).collect();
                        names.extend(&columns);
                        names.push("time");
                        let must =
                            format!("no such key of [sweep] or column{}", instead(&name, &names));
                        return Err(values.wrong("x", &format!("{name:?}"), must));
                    }
                },
            },
        };
        Ok(Some(Self {
            lines: lines(root, which, &x, (axes, &columns))?,
            only_lines: only_lines(root, &values)?,
            x,
            y: y.clone(),
            log_x: values.flag("log_x"),
            x_label: values.text("x_label"),
            y_label: values.text("y_label"),
            line: line(&values, axes)?,
            labels: axes.iter().map(|axis| labels(axis, cases)).collect(),
        }))
    }

    /// The lines: one for each combination of the keys that are not on the x axis.
    pub(super) fn findings(
        &self,
        outcome: &Outcome,
        axes: &[Axis],
        places: &[&[usize]],
    ) -> Findings {
        // With a column on the x axis, the last key changes along a line.
        let (label, across) = match &self.x {
            Across::Key(place) => (axes[*place].key.clone(), Some(*place)),
            Across::Column(column) => (column.heading(), axes.len().checked_sub(1)),
            Across::Time => ("time since the clients began, us".to_owned(), None),
        };
        let label = self.x_label.as_ref().unwrap_or(&label);
        let heading = self.y.heading();
        let up = self.y_label.as_ref().unwrap_or(&heading);
        let mut findings = Findings::new(label, up, self.log_x);
        let value = |columns: &[Statistic], name: &str| {
            let found = columns.iter().find(|column| column.name == name);
            found.map_or(f64::NAN, |column| column.mean)
        };
        let points = outcome.points.iter().zip(places);
        for (point, places) in points.filter(|_| !self.only_lines) {
            let name = self.name_of(axes, places, across);
            let y = value(&point.columns, &self.y.name);
            let points: Vec<(f64, f64)> = match &self.x {
                Across::Key(place) => {
                    let numbers = axes[*place].numbers().unwrap_or_default();
                    vec![(numbers[places[*place]], y)]
                }
                Across::Column(column) => vec![(value(&point.columns, &column.name), y)],
                Across::Time => {
                    let pieces = point.series.iter();
                    let at = |piece: &Piece| {
                        (
                            piece.end_ns as f64 / 1e3,
                            value(&piece.columns, &self.y.name),
                        )
                    };
                    pieces.map(at).collect()
                }
            };
            let points = points
                .into_iter()
                .filter(|(x, y)| x.is_finite() && y.is_finite());
            match findings
                .series
                .iter_mut()
                .find(|series| series.name == name)
            {
                Some(series) => series.points.extend(points),
                None => findings.line(&name, points.collect()),
            }
        }
        if let Across::Key(place) = self.x {
            let numbers = axes[place].numbers().unwrap_or_default();
            for (name, value) in &self.lines {
                let along = value.of(outcome, places, axes).along(place);
                let points = along.into_iter().map(|(at, value)| (numbers[at], value));
                findings.line(name, points.filter(|(_, y)| y.is_finite()).collect());
            }
        }
        findings
    }

    /// Name of the line that a point is on.
    fn name_of(&self, axes: &[Axis], places: &[usize], across: Option<usize>) -> String {
        let label = |axis: usize| self.labels[axis][places[axis]].as_str();
        if let Some(line) = &self.line {
            let keys = axes.iter().enumerate();
            return keys.fold(line.clone(), |line, (axis, Axis { key, .. })| {
                line.replace(&format!("{{{key}}}"), label(axis))
            });
        }
        let others = (0..axes.len()).filter(|axis| Some(*axis) != across);
        let names: Vec<&str> = others.map(label).collect();
        match names.is_empty() {
            true => self.y.name.clone(),
            false => names.join(", "),
        }
    }
}

/// Labels of the values of an axis.
fn labels(axis: &Axis, cases: &[Case]) -> Vec<String> {
    match axis.key == CASE {
        true => cases.iter().map(|case| case.label.clone()).collect(),
        false => axis.values.iter().map(|node| node.value.label()).collect(),
    }
}

/// Template for the names of lines; the keys in braces must be swept.
fn line(values: &Values<'_>, axes: &[Axis]) -> Result<Option<String>, Mistake> {
    let Some(line) = values.text("line") else {
        return Ok(None);
    };
    let keys: Vec<&str> = axes.iter().map(|axis| axis.key.as_str()).collect();
    for piece in line.split('{').skip(1) {
        let key = piece.split('}').next().unwrap_or_default();
        if !keys.contains(&key) {
            let must = format!("`{key}` is not swept{}", instead(key, &keys));
            return Err(values.wrong("line", &format!("{line:?}"), must));
        }
    }
    Ok(Some(line))
}

/// Whether only the additional lines are drawn; then there must be at least one.
fn only_lines(root: &Table, values: &Values<'_>) -> Result<bool, Mistake> {
    let only = values.flag("only_lines");
    if only && check::all(root, "plot.lines")?.is_empty() {
        return Err(values.wrong("only_lines", "true", "there are no [[plot.lines]]"));
    }
    Ok(only)
}

/// Reads the additional lines.
fn lines(
    root: &Table,
    which: Which,
    x: &Across,
    (axes, columns): (&[Axis], &[&str]),
) -> Result<Vec<(String, Expression)>, Mistake> {
    let mut lines = Vec::new();
    for values in check::all(root, "plot.lines")? {
        let text = values.text("value").unwrap_or_default();
        let wrong = |why: String| values.wrong("value", &format!("{text:?}"), why);
        let Across::Key(across) = x else {
            return Err(wrong("`plot.x` must be a key of the sweep".to_owned()));
        };
        let value = match expression::parse(&text, axes, columns) {
            Ok(value) => value,
            Err(_) if which == Which::Possible => continue,
            Err(why) => return Err(wrong(why)),
        };
        let over = value.over(axes.len());
        if (0..axes.len()).any(|axis| over[axis] != (axis == *across)) {
            let key = &axes[*across].key;
            return Err(wrong(format!(
                "it must have a value for each of `{key}`, and of that alone"
            )));
        }
        lines.push((values.text("name").unwrap_or_default(), value));
    }
    Ok(lines)
}
