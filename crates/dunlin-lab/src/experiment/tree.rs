//! The text of an experiment as a tree of values with their places: in the file, or in a `--set`.

use toml::de::{DeTable, DeValue};
use toml::Spanned;

use super::mistake::{Mistake, Place};

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    /// The text as written, and its value.
    Number(String, f64),
    Flag(bool),
    List(Vec<Node>),
    Table(Table),
    /// Values not used in experiments: dates.
    Date(String),
}

/// A table, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Sets a key, which may be missing.
    pub(super) fn set(&mut self, key: &str, node: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node = node,
            None => self.entries.push(Entry {
                key: key.to_owned(),
                place: node.place,
                node,
            }),
        }
    }

    /// The table with this name, created if it is missing. `None` if the name has another value.
    pub(super) fn table(&mut self, key: &str, place: Place) -> Option<&mut Node> {
        if self.entry(key).is_none() {
            let value = Value::Table(Self::default());
            self.set(key, Node { value, place });
        }
        let mut entries = self.entries.iter_mut();
        entries
            .find(|entry| entry.key == key)
            .map(|entry| &mut entry.node)
    }
}

impl Value {
    /// The value as shown in messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Number(text, _) | Self::Date(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }

    /// The value as a label of a point, without quotes.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.shown(),
        }
    }
}

/// Parses a file.
pub(super) fn parse(text: &str) -> Result<Table, Mistake> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let words = error.message().trim().replace('\n', "; ");
        Mistake::new(Place::File(at), format!("this is not TOML: {words}"))
    })?;
    Ok(table_of(table.get_ref(), &|offset| Place::File(offset)))
}

/// Parses a value on the command line: as in the file, but text needs no quotes.
pub(super) fn scalar(text: &str, place: Place) -> Node {
    match DeValue::parse(text) {
        Ok(value) => Node {
            place,
            ..node_of(&value, &|_| place)
        },
        Err(_) => Node {
            value: Value::Text(text.to_owned()),
            place,
        },
    }
}

fn table_of(table: &DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Table {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let text: &std::borrow::Cow<'_, str> = key.get_ref();
        Entry {
            key: text.to_string(),
            place: place(key.span().start),
            node: node_of(value, place),
        }
    };
    Table {
        entries: entries.into_iter().map(entry).collect(),
    }
}

fn node_of(value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Place) -> Node {
    let at = place(value.span().start);
    let number = |text: &str, value: Option<f64>| match value {
        Some(value) => Value::Number(text.to_owned(), value),
        None => Value::Text(text.to_owned()),
    };
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            number(integer.as_str(), parsed.ok().map(|value| value as f64))
        }
        DeValue::Float(float) => number(float.as_str(), float.as_str().parse().ok()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|value| node_of(value, place)).collect())
        }
        DeValue::Table(table) => Value::Table(table_of(table, place)),
    };
    Node { value, place: at }
}
