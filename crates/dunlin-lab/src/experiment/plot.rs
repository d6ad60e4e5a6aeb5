//! The chart of an experiment: what is across, what is up, and which lines there are.

use super::check;
use super::column::Column;
use super::mistake::{instead, Mistake};
use super::model::Point;
use super::outcome::{Outcome, Piece, Statistic};
use super::sweep::Axis;
use super::tree::{Table, Value};
use crate::figure::Findings;

/// What a chart shows.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    x: Across,
    y: Column,
    log_x: bool,
}

#[derive(Clone, Debug)]
enum Across {
    /// A key of the sweep.
    Key(usize),
    Column(Column),
    Time,
}

/// There is no chart across a key that a `--set` has taken out of the sweep.
pub(super) fn without(root: &mut Table, fixed: &[&str]) {
    let across = match root.get("plot").map(|node| &node.value) {
        Some(Value::Table(table)) => table.get("x").map(|node| node.value.label()),
        _ => None,
    };
    if across.is_some_and(|across| fixed.contains(&across.as_str())) {
        root.entries.retain(|entry| entry.key != "plot");
    }
}

impl Plot {
    /// The chart of a file: none without a table for it.
    pub(super) fn read(
        root: &Table,
        axes: &[Axis],
        point: &Point,
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
            x,
            y: y.clone(),
            log_x: values.flag("log_x"),
        }))
    }

    /// Lines: one for each combination of the keys that are not across.
    pub(super) fn findings(
        &self,
        outcome: &Outcome,
        axes: &[Axis],
        places: &[&[usize]],
    ) -> Findings {
        // Along a line the last key changes when a column is across.
        let (label, across) = match &self.x {
            Across::Key(place) => (axes[*place].key.clone(), Some(*place)),
            Across::Column(column) => (column.heading(), axes.len().checked_sub(1)),
            Across::Time => ("time since the clients began, us".to_owned(), None),
        };
        let mut findings = Findings::new(&label, &self.y.heading(), self.log_x);
        let value = |columns: &[Statistic], name: &str| {
            let found = columns.iter().find(|column| column.name == name);
            found.map_or(f64::NAN, |column| column.mean)
        };
        for (point, places) in outcome.points.iter().zip(places) {
            let others = axes
                .iter()
                .enumerate()
                .filter(|(place, _)| Some(*place) != across);
            let names: Vec<String> = others
                .map(|(place, axis)| axis.values[places[place]].value.label())
                .collect();
            let name = match names.is_empty() {
                true => self.y.name.clone(),
                false => names.join(", "),
            };
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
        findings
    }
}
