//! What an experiment is expected to show: expressions over its columns, with bounds. In a figure they are a paper's
//! claims.

use serde::Serialize;

use super::check;
use super::expression::{self, Expression};
use super::mistake::Mistake;
use super::outcome::Outcome;
use super::sweep::Axis;
use super::tree::Table;

/// An expectation.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    name: String,
    value: Expression,
    bounds: (f64, f64),
    says: String,
    why: String,
}

/// An expectation and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// The value found; `null` in JSON if points were not run.
    pub value: f64,
    /// Lower bound.
    pub least: Option<f64>,
    /// Upper bound.
    pub most: Option<f64>,
    /// Whether the value is within the bounds; `None` if the experiment is not complete.
    pub holds: Option<bool>,
    /// The value stated elsewhere.
    pub says: String,
    /// A description, and at which of several points the value was found.
    pub why: String,
}

impl Judged {
    /// Names of the columns of [`Self::row`].
    pub const HEADER: [&'static str; 5] = ["expected", "value", "bounds", "says", "what"];

    /// A row for people.
    pub fn row(&self) -> [String; 5] {
        let bound = |bound: Option<f64>| bound.map_or(String::new(), |bound| bound.to_string());
        let holds = match self.holds {
            Some(true) => "",
            Some(false) => ", does not hold",
            None => ", not judged",
        };
        [
            self.name.clone(),
            super::outcome::number(self.value),
            format!("{}..{}{holds}", bound(self.least), bound(self.most)),
            self.says.clone(),
            self.why.clone(),
        ]
    }
}

/// Which expectations are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those for the quick points.
    Quick,
    /// Those whose points still exist, since the sweep has other values.
    Possible,
    /// None, since another key is swept.
    None,
}

/// Reads the expectations of a file.
pub(super) fn read(
    root: &Table,
    which: Which,
    axes: &[Axis],
    columns: &[&str],
) -> Result<Vec<Expected>, Mistake> {
    let mut all = Vec::new();
    for values in check::all(root, "expect")? {
        let wanted = match which {
            Which::All | Which::Possible => true,
            Which::Quick => values.flag("quick"),
            Which::None => false,
        };
        if !wanted {
            continue;
        }
        let text = values.text("value").unwrap_or_default();
        let wrong = |why: String| values.wrong("value", &format!("{text:?}"), why);
        let value = match expression::parse(&text, axes, columns) {
            Ok(value) => value,
            Err(_) if which == Which::Possible => continue,
            Err(why) => return Err(wrong(why)),
        };
        if let Some(place) = value.over(axes.len()).iter().position(|over| *over) {
            let key = &axes[place].key;
            let why =
                format!("it has a value for each of `{key}`: choose one, or take `max` or `min`");
            return Err(wrong(why));
        }
        let (least, most) = (values.number("least"), values.number("most"));
        if least.is_none() && most.is_none() {
            return Err(wrong("it needs `least`, `most` or both".to_owned()));
        }
        all.push(Expected {
            name: values.text("name").unwrap_or_default(),
            bounds: (least.unwrap_or(f64::MIN), most.unwrap_or(f64::MAX)),
            says: values.text("says").unwrap_or_default(),
            why: values.text("why").unwrap_or_else(|| text.clone()),
            value,
        });
    }
    Ok(all)
}

impl Expected {
    pub(super) fn judge(&self, outcome: &Outcome, places: &[&[usize]], axes: &[Axis]) -> Judged {
        let value = self.value.of(outcome, places, axes).number();
        let (least, most) = self.bounds;
        let at = self.value.found_at(outcome, places, axes);
        let at = at.map_or(String::new(), |at| format!(": at {at}"));
        Judged {
            name: self.name.clone(),
            value,
            least: (least > f64::MIN).then_some(least),
            most: (most < f64::MAX).then_some(most),
            holds: outcome.complete.then(|| (least..=most).contains(&value)),
            says: self.says.clone(),
            why: format!("{}{at}", self.why),
        }
    }
}
