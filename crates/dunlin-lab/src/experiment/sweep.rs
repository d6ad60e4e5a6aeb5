//! The points of an experiment: one for each value, or pair of values, of the swept keys, in each case.

use super::cases::{self, Case, CASE};
use super::mistake::{Mistake, Place};
use super::path;
use super::tree::{Node, Table, Value};

/// Maximum number of keys that can be swept together, and of points.
const KEYS_MOST: usize = 2;
const POINTS_MOST: usize = 10_000;

/// A swept key.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Its path.
    pub(super) key: String,
    pub(super) values: Vec<Node>,
    pub(super) place: Place,
}

impl Axis {
    /// The values as numbers, in base units where they have one; `None` when one is not a number.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|node| number(&node.value)).collect()
    }
}

pub(super) fn number(value: &Value) -> Option<f64> {
    use super::unit::{BANDWIDTH, BYTES, RATE, SHARE, TIME};
    match value {
        Value::Number(_, number) => Some(*number),
        Value::Text(text) => [SHARE, BYTES, TIME, BANDWIDTH, RATE]
            .iter()
            .find_map(|dimension| dimension.parse(text)),
        _ => None,
    }
}

/// The axes of the sweep: cases first, then keys in the order of the file.
pub(super) fn axes(root: &Table, cases: &[Case]) -> Result<Vec<Axis>, Mistake> {
    let axes: Vec<Axis> = cases::axis(cases).into_iter().chain(keys(root)?).collect();
    let points: usize = axes.iter().map(|axis| axis.values.len()).product();
    match axes.last() {
        Some(last) if points > POINTS_MOST => {
            let words = format!("`sweep` has {points} points: it must be {POINTS_MOST} at most");
            Err(Mistake::new(last.place, words))
        }
        _ => Ok(axes),
    }
}

/// Rejects a key that determines what is printed: all points have the same columns, those of the first.
pub(super) fn is_of_a_point(key: &str, at: Place) -> Result<(), Mistake> {
    match key.split('.').next() {
        Some("print") => {
            let words =
                format!("`{key}` is the same for all points: it cannot be swept or of a case");
            Err(Mistake::new(at, words))
        }
        _ => Ok(()),
    }
}

fn keys(root: &Table) -> Result<Vec<Axis>, Mistake> {
    let Some(node) = root.get("sweep") else {
        return Ok(Vec::new());
    };
    let Value::Table(table) = &node.value else {
        let words = format!(
            "`sweep` is {}: it must be a table, [sweep]",
            node.value.shown()
        );
        return Err(Mistake::new(node.place, words));
    };
    let mut axes = Vec::new();
    collect("", table, &mut axes)?;
    for axis in &axes {
        is_of_a_point(&axis.key, axis.place)?;
    }
    if let Some(more) = axes.get(KEYS_MOST) {
        let words = format!(
            "`sweep` has {} keys: it must be {KEYS_MOST} at most",
            axes.len()
        );
        return Err(Mistake::new(more.place, words));
    }
    Ok(axes)
}

/// Replaces the values of a swept key, or adds a key to the sweep.
pub(super) fn set(root: &mut Table, key: &str, values: Node) -> Result<(), Mistake> {
    let place = values.place;
    let sweep = root.table("sweep", place);
    match sweep.map(|node| &mut node.value) {
        Some(Value::Table(table)) => {
            if !replace_in(table, key, &values) {
                table.set(key, values);
            }
        }
        _ => {
            return Err(Mistake::new(
                place,
                "`sweep` is not a table: it must be [sweep]",
            ))
        }
    }
    Ok(())
}

/// Removes a key from the sweep, however it is written. Returns whether it was there.
pub(super) fn remove(root: &mut Table, key: &str) -> bool {
    let mut entries = root.entries.iter_mut();
    let sweep = entries.find(|entry| entry.key == "sweep");
    match sweep.map(|entry| &mut entry.node.value) {
        Some(Value::Table(table)) => remove_from(table, key),
        _ => false,
    }
}

/// Replaces the values of a key, however it is written. Returns whether it was there.
fn replace_in(table: &mut Table, key: &str, values: &Node) -> bool {
    table.entries.iter_mut().any(|entry| {
        let rest = key
            .strip_prefix(&entry.key)
            .and_then(|rest| rest.strip_prefix('.'));
        match (&mut entry.node.value, rest) {
            (Value::Table(inner), Some(rest)) => replace_in(inner, rest, values),
            (Value::Table(_), None) => false,
            _ if entry.key == key => {
                entry.node = values.clone();
                true
            }
            _ => false,
        }
    })
}

pub(super) fn remove_from(table: &mut Table, key: &str) -> bool {
    let before = table.entries.len();
    let is_list = |node: &Node| !matches!(node.value, Value::Table(_));
    table
        .entries
        .retain(|entry| !(entry.key == key && is_list(&entry.node)));
    let mut found = table.entries.len() < before;
    for entry in &mut table.entries {
        let rest = key
            .strip_prefix(&entry.key)
            .and_then(|rest| rest.strip_prefix('.'));
        if let (Some(rest), Value::Table(inner)) = (rest, &mut entry.node.value) {
            found |= remove_from(inner, rest);
        }
    }
    found
}

/// `"clients.threads" = [...]` and `clients.threads = [...]` are the same.
fn collect(prefix: &str, table: &Table, axes: &mut Vec<Axis>) -> Result<(), Mistake> {
    for entry in &table.entries {
        let key = match prefix {
            "" => entry.key.clone(),
            prefix => format!("{prefix}.{}", entry.key),
        };
        match &entry.node.value {
            Value::Table(table) => collect(&key, table, axes)?,
            Value::List(values) if !values.is_empty() => axes.push(Axis {
                key,
                values: values.clone(),
                place: entry.place,
            }),
            other => {
                let found = match other {
                    Value::List(_) => "an empty list".to_owned(),
                    other => other.shown(),
                };
                let words = format!("`sweep.{key}` is {found}: it must be a list of values");
                return Err(Mistake::new(entry.node.place, words));
            }
        }
    }
    Ok(())
}

/// The places of the values of each point; the last key changes fastest.
pub(super) fn places(axes: &[Axis]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let longer = |point: &Vec<usize>| {
            let one = |value| [&point[..], &[value]].concat();
            (0..axis.values.len()).map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// The tree of a point.
pub(super) fn at(
    root: &Table,
    (cases, axes): (&[Case], &[Axis]),
    places: &[usize],
) -> Result<Table, Mistake> {
    let mut root = root.clone();
    for (axis, &place) in axes.iter().zip(places) {
        if axis.key == CASE {
            cases[place].apply(&mut root)?;
            continue;
        }
        let value = &axis.values[place];
        // Errors of the path are reported at the key, errors of a value at the value.
        path::set(&mut root, &axis.key, value, axis.place)?;
        path::set(&mut root, &axis.key, value, value.place)?;
    }
    Ok(root)
}
