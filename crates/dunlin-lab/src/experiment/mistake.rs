//! Errors in an experiment, with their place: file, line and column, or the `--set`.

use std::fmt;

/// Where something was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this byte of the file.
    File(usize),
    /// In this `--set`, from zero.
    Set(usize),
    /// Not written: a default.
    Nowhere,
}

/// An error, before the name of the file is known.
#[derive(Debug)]
pub(super) struct Mistake {
    place: Place,
    words: String,
}

impl Mistake {
    pub(super) fn new(place: Place, words: impl Into<String>) -> Self {
        Self {
            place,
            words: words.into(),
        }
    }
}

/// An experiment that cannot be run as written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongFile {
    /// The file, or the `--set`.
    pub source: String,
    /// Line and column, from 1, if the error is in the file.
    pub at: Option<(usize, usize)>,
    /// The key, the value found, and the permitted values.
    pub message: String,
}

impl fmt::Display for WrongFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => write!(f, "{}:{line}:{column}: ", self.source)?,
            None => write!(f, "{}: ", self.source)?,
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for WrongFile {}

/// The texts that places refer to.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) sets: Vec<String>,
}

impl Sources {
    pub(super) fn wrong(&self, mistake: Mistake) -> WrongFile {
        let Mistake { place, words } = mistake;
        let (source, at) = match place {
            Place::File(offset) => (self.name.clone(), Some(self.line_and_column(offset))),
            Place::Set(number) => {
                let set = self.sets.get(number).map_or("", String::as_str);
                (format!("--set {set}"), None)
            }
            Place::Nowhere => (self.name.clone(), None),
        };
        WrongFile {
            source,
            at,
            message: words,
        }
    }

    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        (line, before[begin..].chars().count() + 1)
    }
}

/// The end of a message about an unknown name: the name that was probably meant, and all names.
pub(super) fn instead(name: &str, names: &[&str]) -> String {
    let nearest = names
        .iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .min_by_key(|(distance, _)| *distance);
    let meant = match nearest {
        // A third of its letters may be wrong.
        Some((distance, other)) if distance * 3 <= name.len().max(other.len()) => {
            format!("; did you mean `{other}`?")
        }
        _ => String::new(),
    };
    format!("{meant} (there are: {})", names.join(", "))
}
