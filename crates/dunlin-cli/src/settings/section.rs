//! Keys and values as found in a file and in the environment, before they are interpreted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;

use toml::{Table, Value};

use crate::commands::Failure;
use crate::input;

/// Names of the sections, in the file and in variables.
const NAMES: [&str; 2] = ["client", "server"];
/// Longest file of settings.
const MOST_BYTES: usize = 1 << 20;
/// What most values are.
const SCALAR: &str = "expected a string or a number";

/// A value, and where it stands.
#[derive(Debug)]
struct Found {
    place: String,
    text: String,
    /// `true` or `false` of a file, without quotes.
    is_boolean: bool,
}

/// One section: what it has, and which of it was asked for.
#[derive(Debug, Default)]
pub(super) struct Section {
    name: &'static str,
    found: BTreeMap<String, Found>,
    known: Vec<&'static str>,
}

/// Both sections, in the order of [`NAMES`].
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) both: [Section; 2],
}

/// The sections of a file; empty ones without it.
pub(super) fn of_file(file: Option<&Path>) -> Result<Sections, Failure> {
    let mut sections = Sections {
        both: NAMES.map(|name| Section {
            name,
            ..Section::default()
        }),
    };
    let Some(file) = file else {
        return Ok(sections);
    };
    let wrong =
        |error: &dyn Display| Failure::usage(format!("settings of {}: {error}", file.display()));
    let bytes = std::fs::File::open(file)
        .and_then(|open| input::read_at_most(open, MOST_BYTES))
        .map_err(|error| wrong(&error))?
        .ok_or_else(|| wrong(&format_args!("larger than the limit of {MOST_BYTES} bytes")))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    let table: Table = text.parse().map_err(|error| wrong(&error))?;
    for (name, value) in table {
        let section = sections.both.iter_mut().find(|one| one.name == name);
        let (Some(section), Value::Table(keys)) = (section, value) else {
            let words = format!("unknown section `[{name}]`: available are [client] and [server]");
            return Err(wrong(&words));
        };
        for (key, value) in keys {
            let is_boolean = value.is_bool();
            let text = match value {
                Value::String(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Boolean(is_so) => is_so.to_string(),
                _ => {
                    let words = format!("[{name}] {key}: {SCALAR}");
                    return Err(wrong(&words));
                }
            };
            let found = Found {
                place: format!("{}: [{name}] {key}", file.display()),
                text,
                is_boolean,
            };
            section.found.insert(key, found);
        }
    }
    Ok(sections)
}

impl Sections {
    /// Adds `DUNLIN_CLIENT_...` and `DUNLIN_SERVER_...`, which take precedence over the file.
    pub(super) fn add_variables(
        &mut self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), Failure> {
        for (variable, value) in variables {
            let Some(variable) = variable.to_str() else {
                continue;
            };
            for section in &mut self.both {
                let prefix = format!("DUNLIN_{}_", section.name.to_uppercase());
                let Some(key) = variable.strip_prefix(&prefix) else {
                    continue;
                };
                let text = value
                    .to_str()
                    .ok_or_else(|| Failure::usage(format!("{variable}: not valid UTF-8")))?;
                let found = Found {
                    place: variable.to_owned(),
                    text: text.to_owned(),
                    is_boolean: false,
                };
                section.found.insert(key.to_lowercase(), found);
            }
        }
        Ok(())
    }
}

impl Section {
    /// The value of a key, if there is one. A boolean is none.
    pub(super) fn get<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        self.read(key, |found| match found.is_boolean {
            true => Err(SCALAR.to_owned()),
            false => parse(&found.text).map_err(|error| error.to_string()),
        })
    }

    /// The value of a boolean key, if there is one: a boolean of a file, or a word.
    pub(super) fn yes_or_no(&mut self, key: &'static str) -> Result<Option<bool>, Failure> {
        self.read(key, |found| match found.text.as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err("expected `true` or `false` (or `yes` or `no`)".to_owned()),
        })
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Found) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        self.known.push(key);
        let Some(found) = self.found.remove(key) else {
            return Ok(None);
        };
        let parsed = parse(&found);
        parsed.map(Some).map_err(|error| {
            let Found { place, text, .. } = &found;
            Failure::usage(format!("{place} = {text}: {error}"))
        })
    }

    /// After all keys were asked for.
    ///
    /// # Errors
    /// When an unknown key is left.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self.found.into_values().next() {
            None => Ok(()),
            Some(found) => Err(
                Failure::usage(format!("{}: unknown setting", found.place)).help(format!(
                    "settings of a {}: {}",
                    self.name,
                    self.known.join(", ")
                )),
            ),
        }
    }
}
