//! The cases of an experiment: named values of several keys that belong together. They are swept like a key.

use super::check;
use super::mistake::{instead, Mistake, Place};
use super::path;
use super::sweep::{is_of_a_point, Axis};
use super::tree::{Node, Table, Value};

/// Name of the axis of cases; keys of the sweep have their path instead.
pub(super) const CASE: &str = "case";
/// Name of their tables.
pub(super) const TABLES: &str = "cases";
/// Keys of a case's table that describe the case itself.
const OWN: [&str; 2] = ["name", "label"];
/// Characters with a meaning in expressions.
const MEANING: [char; 5] = [',', '|', '[', ']', '*'];

/// A case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// Label in plots.
    pub(super) label: String,
    /// Keys and their values.
    sets: Vec<(String, Node)>,
}

impl Case {
    /// Sets the keys to their values.
    pub(super) fn apply(&self, root: &mut Table) -> Result<(), Mistake> {
        for (key, node) in &self.sets {
            path::set(root, key, node, node.place)?;
        }
        Ok(())
    }
}

/// Reads the cases of a file.
pub(super) fn read(root: &Table) -> Result<Vec<Case>, Mistake> {
    let mut cases = Vec::<Case>::new();
    for values in check::all_open(root, TABLES)? {
        let name = values.text("name").unwrap_or_default();
        let wrong = |must: &str| Err(values.wrong("name", &format!("{name:?}"), must));
        if name.contains(MEANING) {
            return wrong("a name has none of , | [ ] *");
        }
        if cases.iter().any(|other| other.name == name) {
            return wrong("another case has this name");
        }
        let mut sets = Vec::new();
        for entry in &values.table().entries {
            if !OWN.contains(&entry.key.as_str()) {
                flatten(&entry.key, &entry.node, &mut sets);
            }
        }
        for (key, node) in &sets {
            is_of_a_point(key, node.place)?;
        }
        cases.push(Case {
            label: values.text("label").unwrap_or_else(|| name.clone()),
            name,
            sets,
        });
    }
    Ok(cases)
}

/// Expands keys to their full paths: `clients.threads = 8` and `clients = { threads = 8 }` are the same.
pub(super) fn flatten(key: &str, node: &Node, sets: &mut Vec<(String, Node)>) {
    match &node.value {
        Value::Table(table) => {
            for entry in &table.entries {
                flatten(&format!("{key}.{}", entry.key), &entry.node, sets);
            }
        }
        _ => sets.push((key.to_owned(), node.clone())),
    }
}

/// The cases as an axis of the sweep; `None` if there are none.
pub(super) fn axis(cases: &[Case]) -> Option<Axis> {
    let name = |case: &Case| Node {
        value: Value::Text(case.name.clone()),
        place: Place::Nowhere,
    };
    (!cases.is_empty()).then(|| Axis {
        key: CASE.to_owned(),
        values: cases.iter().map(name).collect(),
        place: Place::Nowhere,
    })
}

/// The tables of the cases.
fn tables(root: &mut Table) -> impl Iterator<Item = &mut Table> {
    let mut entries = root.entries.iter_mut();
    let cases = entries.find(|entry| entry.key == TABLES);
    let list = match cases.map(|entry| &mut entry.node.value) {
        Some(Value::List(list)) => &mut list[..],
        _ => &mut [],
    };
    list.iter_mut().filter_map(|node| match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    })
}

/// Sets a key of one case: `NAME.KEY`.
pub(super) fn set(root: &mut Table, path: &str, node: &Node) -> Result<(), Mistake> {
    let name_of = |table: &Table| table.get("name").map(|node| node.value.label());
    let names: Vec<String> = tables(root).filter_map(|table| name_of(table)).collect();
    let (name, key) = path.split_once('.').unwrap_or((path, ""));
    let found = tables(root).find(|table| name_of(table).as_deref() == Some(name));
    match found {
        Some(table) if !key.is_empty() => {
            super::sweep::remove_from(table, key);
            table.set(key, node.clone());
            Ok(())
        }
        _ => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let words = format!("no key of a case `{path}`{}", instead(name, &names));
            Err(Mistake::new(node.place, words))
        }
    }
}

/// Removes a key from all cases, because it has one value for all.
pub(super) fn without(root: &mut Table, key: &str) {
    for table in tables(root) {
        super::sweep::remove_from(table, key);
    }
}
