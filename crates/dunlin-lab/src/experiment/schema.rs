//! Definition of a key of an experiment: its kind, its default and its meaning. Reading, error checking and the tables
//! of `docs/experiments.md` all use the list of keys ([`super::keys`]).

use super::unit::Dimension;

/// Kind of a key's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A quantity in this range, in its base unit.
    Quantity(Dimension, f64, f64),
    /// Any number not below this one.
    Number(f64),
    /// Any number.
    Any,
    Flag,
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A text, or a list of texts.
    Texts,
    /// A list of at least two whole numbers in this range.
    Counts(u64, u64),
}

impl Kind {
    /// The permitted values, for messages and the page.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::Quantity(dimension, least, most) => {
                let range = match (*least > 0.0, most.is_finite()) {
                    (false, false) => String::new(),
                    (true, false) => format!(", from {}", in_unit(dimension, *least)),
                    (_, true) => format!(
                        ", from {} to {}",
                        in_unit(dimension, *least),
                        in_unit(dimension, *most)
                    ),
                };
                format!("{}{range}", dimension.words())
            }
            Self::Number(least) => format!("a number from {least}"),
            Self::Any => "a number".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Word(words) => format!("one of {}", words().join(", ")),
            Self::Texts => "a text, or a list of texts".to_owned(),
            Self::Counts(least, most) => {
                format!("a list of two whole numbers or more, each from {least} to {most}")
            }
        }
    }
}

/// A quantity in the largest unit that gives a whole number.
fn in_unit(dimension: &Dimension, value: f64) -> String {
    let whole = |(_, factor): &&(&str, f64)| value >= *factor && (value / factor).fract() == 0.0;
    let units = dimension.units.iter().filter(whole);
    let largest = units.max_by(|one, other| one.1.total_cmp(&other.1));
    let (unit, factor) = largest.unwrap_or(&dimension.units[0]);
    format!("{}{unit}", value / factor)
}

/// What applies when a key is missing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// The key is required.
    Must,
    /// The default, as it would be written in the file.
    Default(&'static str),
    /// There is no default; a description of what that means.
    Or(&'static str),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) need: Need,
    pub(super) meaning: &'static str,
}

/// A table of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name; dots separate nested tables.
    pub(super) name: &'static str,
    /// Whether it can occur several times, as `[[name]]`; then it must occur at least once if it is needed.
    pub(super) many: bool,
    pub(super) needed: bool,
    pub(super) keys: &'static [Key],
}

impl Section {
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}
