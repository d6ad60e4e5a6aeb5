//! What a key of an experiment is: its kind, its default and what it means. What is read, what is refused and the
//! tables of `docs/experiments.md` all come from the list of them ([`super::keys`]).

use super::unit::Dimension;

/// What may stand behind a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A whole number between these.
    Count(u64, u64),
    /// A quantity between these, in its base unit.
    Quantity(Dimension, f64, f64),
    /// Any number from this one.
    Number(f64),
    /// Any number.
    Any,
    Flag,
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A text, or several in a list.
    Texts,
    /// A list of two whole numbers or more between these.
    Counts(u64, u64),
}

impl Kind {
    /// What it allows, for messages and the page.
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

/// A quantity in the largest of its units that leaves a whole number.
fn in_unit(dimension: &Dimension, value: f64) -> String {
    let whole = |(_, factor): &&(&str, f64)| value >= *factor && (value / factor).fract() == 0.0;
    let units = dimension.units.iter().filter(whole);
    let largest = units.max_by(|one, other| one.1.total_cmp(&other.1));
    let (unit, factor) = largest.unwrap_or(&dimension.units[0]);
    format!("{}{unit}", value / factor)
}

/// What holds when a key is not there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// It must be there.
    Must,
    /// This is taken, as if it stood in the file.
    Default(&'static str),
    /// Nothing is taken; what that means.
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
    /// Its name; dots for tables in tables.
    pub(super) name: &'static str,
    /// It can come several times, as `[[name]]`, and must come once at least if it is needed.
    pub(super) many: bool,
    pub(super) needed: bool,
    pub(super) keys: &'static [Key],
}

impl Section {
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}
