//! Dotted paths into an experiment (`clients.threads`, `topology.hosts.servers.nic`), for `--set` and sweeps.
//!
//! Where there are several tables of one name, the path continues with a number from 0 or a table's name; without
//! either it refers to all of them.

use super::check::roots;
use super::keys::{PARAMETERS, SECTIONS};
use super::mistake::{instead, Mistake, Place};
use super::tree::{Node, Table, Value};

/// Sets the value that the path refers to.
pub(super) fn set(root: &mut Table, path: &str, value: &Node, at: Place) -> Result<(), Mistake> {
    let parts: Vec<&str> = path.split('.').map(str::trim).collect();
    let [first, ..] = parts.as_slice() else {
        return Err(no_such(path, at, ""));
    };
    let names = roots();
    if !names.contains(first) || *first == "sweep" {
        let names: Vec<&str> = names.into_iter().filter(|name| *name != "sweep").collect();
        return Err(no_such(path, at, &instead(first, &names)));
    }
    below(root, "", &parts, value, (path, at))
}

fn no_such(path: &str, at: Place, instead: &str) -> Mistake {
    Mistake::new(at, format!("no key `{path}`{instead}"))
}

/// Sets a value below a table of the section `name`.
fn below(
    table: &mut Table,
    name: &str,
    parts: &[&str],
    value: &Node,
    whole: (&str, Place),
) -> Result<(), Mistake> {
    let (path, at) = whole;
    let [first, rest @ ..] = parts else {
        return Err(no_such(path, at, ""));
    };
    if rest.is_empty() {
        let section = SECTIONS.iter().find(|section| section.name == name);
        let names: Vec<&str> = match section {
            Some(section) => section.keys.iter().map(|key| key.name).collect(),
            None => Vec::new(),
        };
        if section.is_some() && !names.contains(first) {
            return Err(no_such(path, at, &instead(first, &names)));
        }
        let node = Node {
            place: at,
            ..value.clone()
        };
        table.set(first, node);
        return Ok(());
    }
    let inner = match name {
        "" => (*first).to_owned(),
        name => format!("{name}.{first}"),
    };
    let section = SECTIONS.iter().find(|section| section.name == inner);
    if section.is_none() && !PARAMETERS.contains(&inner.as_str()) {
        let prefix = format!("{name}.");
        let known = SECTIONS
            .iter()
            .filter_map(|section| section.name.strip_prefix(&prefix));
        return Err(no_such(
            path,
            at,
            &instead(first, &known.collect::<Vec<_>>()),
        ));
    }
    let many = section.is_some_and(|section| section.many);
    if many && table.get(first).is_none() {
        let words = format!("no key `{path}`: the file has no [[{inner}]]");
        return Err(Mistake::new(at, words));
    }
    let node = table.table(first, at).expect("made if it was not there");
    match &mut node.value {
        Value::Table(table) => below(table, &inner, rest, value, whole),
        Value::List(list) => entries(list, &inner, rest, value, whole),
        other => {
            let words = format!("no key `{path}`: `{inner}` is {}", other.shown());
            Err(Mistake::new(at, words))
        }
    }
}

/// Sets a value in one of the tables of a name, or in all.
fn entries(
    list: &mut [Node],
    name: &str,
    parts: &[&str],
    value: &Node,
    whole: (&str, Place),
) -> Result<(), Mistake> {
    let (path, at) = whole;
    let named = |node: &Node| match &node.value {
        Value::Table(table) => match table.get("name").map(|node| &node.value) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    if let [_] = parts {
        for node in list {
            if let Value::Table(table) = &mut node.value {
                below(table, name, parts, value, whole)?;
            }
        }
        return Ok(());
    }
    let which = parts[0];
    let count = list.len();
    let names: Vec<String> = list.iter().filter_map(named).collect();
    let number = which.parse().ok().filter(|&number: &usize| number < count);
    let found = number.or_else(|| {
        list.iter()
            .position(|node| named(node).as_deref() == Some(which))
    });
    let Some(Value::Table(table)) = found.map(|number| &mut list[number].value) else {
        let mut known: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        known.extend(names);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return Err(no_such(path, at, &instead(which, &known)));
    };
    below(table, name, &parts[1..], value, whole)
}
