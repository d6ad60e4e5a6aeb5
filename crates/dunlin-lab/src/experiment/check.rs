//! Checks a tree against the list of keys (unknown, missing, or of the wrong kind), and gives access to the values.

use super::keys::{section, PARAMETERS, SECTIONS};
use super::mistake::{instead, Mistake, Place};
use super::schema::{Key, Kind, Need, Section};
use super::tree::{scalar, Node, Table, Value};
use super::unit::Dimension;

/// A table of a section with known keys; values are checked when the table is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    section: &'static Section,
    table: &'a Table,
    /// Place of the table, for reporting missing keys.
    place: Place,
}

/// A value in its base unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read {
    Number(f64),
    Flag(bool),
    Texts(Vec<String>),
    Numbers(Vec<f64>),
}

/// The only table of a section; an empty one if it is missing and optional.
pub(super) fn one<'a>(root: &'a Table, name: &str) -> Result<Values<'a>, Mistake> {
    static NOTHING: Table = Table {
        entries: Vec::new(),
    };
    let section = section(name);
    let Some(node) = find(root, name) else {
        if section.needed {
            return Err(missing(section));
        }
        return Values::new(section, &NOTHING, Place::Nowhere);
    };
    match &node.value {
        Value::Table(table) => Values::new(section, table, node.place),
        other => Err(Mistake::new(
            node.place,
            format!(
                "`{name}` is {}: it must be a table, [{name}]",
                other.shown()
            ),
        )),
    }
}

/// The only table of a section that this file must have.
pub(super) fn one_of_needed<'a>(root: &'a Table, name: &str) -> Result<Values<'a>, Mistake> {
    match find(root, name) {
        Some(_) => one(root, name),
        None => Err(missing(section(name))),
    }
}

/// The tables of a section that may occur several times.
pub(super) fn all<'a>(root: &'a Table, name: &str) -> Result<Vec<Values<'a>>, Mistake> {
    tables(root, name, Values::new)
}

fn tables<'a>(
    root: &'a Table,
    name: &str,
    read: fn(&'static Section, &'a Table, Place) -> Result<Values<'a>, Mistake>,
) -> Result<Vec<Values<'a>>, Mistake> {
    let section = section(name);
    let Some(node) = find(root, name) else {
        return match section.needed {
            true => Err(missing(section)),
            false => Ok(Vec::new()),
        };
    };
    let wrong = |node: &Node| {
        let found = node.value.shown();
        let words = format!("`{name}` is {found}: it must be tables, each begun by [[{name}]]");
        Mistake::new(node.place, words)
    };
    let Value::List(list) = &node.value else {
        return Err(wrong(node));
    };
    if list.is_empty() && section.needed {
        return Err(missing(section));
    }
    let table = |node: &'a Node| match &node.value {
        Value::Table(table) => read(section, table, node.place),
        _ => Err(wrong(node)),
    };
    list.iter().map(table).collect()
}

/// The tables of a section that may have other keys, too.
pub(super) fn all_open<'a>(root: &'a Table, name: &str) -> Result<Vec<Values<'a>>, Mistake> {
    tables(root, name, Values::open)
}

fn missing(section: &Section) -> Mistake {
    let name = section.name;
    let shown = match section.many {
        true => format!("[[{name}]]"),
        false => format!("[{name}]"),
    };
    Mistake::new(Place::Nowhere, format!("there is no table {shown}"))
}

fn find<'a>(root: &'a Table, name: &str) -> Option<&'a Node> {
    let mut parts = name.split('.');
    let mut node = root.get(parts.next()?)?;
    for part in parts {
        let Value::Table(table) = &node.value else {
            return None;
        };
        node = table.get(part)?;
    }
    Some(node)
}

/// Keys and tables permitted at the root.
pub(super) fn roots() -> Vec<&'static str> {
    let names = SECTIONS
        .iter()
        .filter(|section| !section.name.is_empty() && !section.name.contains('.'));
    let at_top = section("").keys.iter().map(|key| key.name);
    let names = at_top.chain(names.map(|section| section.name));
    names.chain(PARAMETERS).chain(["sweep", "quick"]).collect()
}

/// The root: the title, and known tables.
pub(super) fn root(root: &Table) -> Result<Values<'_>, Mistake> {
    let names = roots();
    for entry in &root.entries {
        if !names.contains(&entry.key.as_str()) {
            let words = format!("unknown `{}`{}", entry.key, instead(&entry.key, &names));
            return Err(Mistake::new(entry.place, words));
        }
    }
    let values = Values {
        section: section(""),
        table: root,
        place: Place::Nowhere,
    };
    for key in values.section.keys {
        values.read(key.name)?;
    }
    Ok(values)
}

impl<'a> Values<'a> {
    fn new(section: &'static Section, table: &'a Table, place: Place) -> Result<Self, Mistake> {
        let below = format!("{}.", section.name);
        let inner = SECTIONS
            .iter()
            .filter_map(|other| other.name.strip_prefix(&below));
        let names: Vec<&str> = section
            .keys
            .iter()
            .map(|key| key.name)
            .chain(inner)
            .collect();
        for entry in &table.entries {
            if !names.contains(&entry.key.as_str()) {
                let name = section.name;
                let words = format!(
                    "unknown `{name}.{}`{}",
                    entry.key,
                    instead(&entry.key, &names)
                );
                return Err(Mistake::new(entry.place, words));
            }
        }
        Self::open(section, table, place)
    }

    /// Opens a table that may have other keys, too.
    fn open(section: &'static Section, table: &'a Table, place: Place) -> Result<Self, Mistake> {
        let values = Self {
            section,
            table,
            place,
        };
        // Checks all of them, so that errors are found whether a value is used or not.
        for key in section.keys {
            values.read(key.name)?;
        }
        Ok(values)
    }

    fn full_name(&self, key: &str) -> String {
        match self.section.name {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }

    /// The whole table.
    pub(super) fn table(&self) -> &'a Table {
        self.table
    }

    /// The place of a key, or of its table.
    pub(super) fn place(&self, key: &str) -> Place {
        self.table.get(key).map_or(self.place, |node| node.place)
    }

    /// An error about the value of a key.
    pub(super) fn wrong(&self, key: &str, found: &str, must: impl std::fmt::Display) -> Mistake {
        let name = self.full_name(key);
        Mistake::new(self.place(key), format!("`{name}` is {found}: {must}"))
    }

    /// Whether the key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// The value of a key or its default; `None` when there is neither.
    fn read(&self, name: &str) -> Result<Option<Read>, Mistake> {
        let key = self.section.key(name).expect("a key of the list");
        let node = match (self.table.get(name), key.need) {
            (Some(node), _) => node.clone(),
            (None, Need::Default(text)) => scalar(text, Place::Nowhere),
            (None, Need::Or(_)) => return Ok(None),
            (None, Need::Must) => {
                let table = self.section.name;
                let words = format!(
                    "[{table}] has no `{name}`, which must be there: {}",
                    key.kind.words()
                );
                return Err(Mistake::new(self.place, words));
            }
        };
        let read = value_of(key, &node.value);
        let wrong = || {
            let (name, kind) = (self.full_name(name), key.kind.words());
            let found = node.value.shown();
            let near = near(key, &node.value);
            let words = format!("`{name}` is {found}: it must be {kind}{near}");
            Mistake::new(node.place, words)
        };
        read.map(Some).ok_or_else(wrong)
    }

    fn get(&self, name: &str) -> Option<Read> {
        self.read(name).unwrap_or(None)
    }

    /// A number, in its base unit.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(Read::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// A number that has a default or is required.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_default().round() as u64
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(Read::Flag(true))
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            Some(Read::Texts(texts)) => texts,
            _ => Vec::new(),
        }
    }

    /// Whole numbers.
    pub(super) fn counts(&self, name: &str) -> Vec<u64> {
        match self.get(name) {
            Some(Read::Numbers(numbers)) => numbers.iter().map(|number| *number as u64).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.texts(name).into_iter().next()
    }
}

/// The end of an error message: the word that was probably meant.
fn near(key: &Key, value: &Value) -> String {
    let (Kind::Word(words), Value::Text(text)) = (key.kind, value) else {
        return String::new();
    };
    let words = instead(text, &words());
    match words.split_once(" (") {
        Some((meant, _)) => meant.to_owned(),
        None => String::new(),
    }
}

fn value_of(key: &Key, value: &Value) -> Option<Read> {
    let within = |number: f64, least: f64, most: f64| {
        let inside = (least..=most).contains(&number) && number.is_finite();
        inside.then_some(Read::Number(number))
    };
    match (key.kind, value) {
        (Kind::Count(least, most), Value::Number(_, number)) if number.fract() == 0.0 => {
            within(*number, least as f64, most as f64)
        }
        (Kind::Quantity(dimension, least, most), value) => {
            within(quantity(&dimension, value)?, least, most)
        }
        (Kind::Number(least), Value::Number(_, number)) => within(*number, least, f64::MAX),
        (Kind::Any, Value::Number(_, number)) => within(*number, f64::MIN, f64::MAX),
        (Kind::Flag, Value::Flag(flag)) => Some(Read::Flag(*flag)),
        (Kind::Text | Kind::Texts, Value::Text(text)) if !text.is_empty() => {
            Some(Read::Texts(vec![text.clone()]))
        }
        (Kind::Word(words), Value::Text(text)) if words().contains(&text.as_str()) => {
            Some(Read::Texts(vec![text.clone()]))
        }
        (Kind::Counts(least, most), Value::List(list)) if list.len() > 1 => {
            let number = |node: &Node| match &node.value {
                Value::Number(_, number) if number.fract() == 0.0 => {
                    Some(*number).filter(|number| (least as f64..=most as f64).contains(number))
                }
                _ => None,
            };
            let numbers = list.iter().map(number).collect::<Option<_>>();
            Some(Read::Numbers(numbers?))
        }
        (Kind::Texts, Value::List(list)) if !list.is_empty() => {
            let text = |node: &Node| match &node.value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            };
            Some(Read::Texts(list.iter().map(text).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

fn quantity(dimension: &Dimension, value: &Value) -> Option<f64> {
    match value {
        Value::Text(text) => dimension.parse(text),
        Value::Number(_, number) => dimension.number(*number),
        _ => None,
    }
}
