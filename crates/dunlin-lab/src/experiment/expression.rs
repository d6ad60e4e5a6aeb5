//! Expressions over the columns of all points, such as `max(rate[flock, 16..] / rate[erpc, 16..])`: numbers, columns,
//! `+`, `-`, `*`, `/`, parentheses and functions.
//!
//! A column is a table with a value for each point. Brackets select points: for each axis of the sweep, cases first, a
//! value, several separated by `|`, a range `16..48` including its ends, or `*`. Operators combine tables place by
//! place; if one of them is not swept over an axis of the other, its value applies to all places.
//!
//! A point that measured nothing is not a number, and so is every result that uses it: an extreme over other points is
//! not a number either, since an expectation must not hold because the worst point has no value.

use super::mistake::instead;
use super::outcome::Outcome;
use super::sweep::{number, Axis};

/// An expression over existing columns and values.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Number(f64),
    Column(String, Vec<Pick>),
    Minus(Box<Self>),
    Both(char, Box<Self>, Box<Self>),
    Call(Function, Vec<Self>),
}

/// The selected values of an axis.
#[derive(Clone, Debug)]
pub(super) enum Pick {
    /// One value: the result is not swept over the axis any more.
    One(usize),
    Some(Vec<usize>),
}

/// A function of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Max,
    Min,
    Mean,
    /// The value that is furthest from zero.
    Furthest,
    /// The first value at which a curve reaches a share of its maximum.
    Reaches,
    /// Whether a curve never falls by more than this from one value to the next.
    Rises,
}

const FUNCTIONS: [(&str, Function); 6] = [
    ("max", Function::Max),
    ("min", Function::Min),
    ("mean", Function::Mean),
    ("furthest", Function::Furthest),
    ("reaches", Function::Reaches),
    ("rises", Function::Rises),
];

/// A table: values with their places on the axes, `None` for an axis that it is not swept over.
#[derive(Clone, Debug)]
pub(super) struct Grid(Vec<(Vec<Option<usize>>, f64)>);

/// Maximum number of numbers, columns and parentheses in an expression: evaluation may recurse as deep as it has parts.
const PARTS_MOST: usize = 256;

/// Parses an expression over these axes and columns.
pub(super) fn parse(text: &str, axes: &[Axis], columns: &[&str]) -> Result<Expression, String> {
    let mut parser = Parser {
        rest: text,
        parts: 0,
        axes,
        columns,
    };
    let expression = parser.sum()?;
    match parser.rest.trim_start() {
        "" => Ok(expression),
        rest => Err(format!("`{rest}` is not understood")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// Number of parts begun so far.
    parts: usize,
    axes: &'a [Axis],
    columns: &'a [&'a str],
}

impl<'a> Parser<'a> {
    /// Takes one of these signs, if it comes next.
    fn takes(&mut self, signs: &[char]) -> Option<char> {
        self.rest = self.rest.trim_start();
        let sign = self.rest.chars().next().filter(|c| signs.contains(c))?;
        self.rest = &self.rest[sign.len_utf8()..];
        Some(sign)
    }

    fn must(&mut self, sign: char) -> Result<(), String> {
        let before = self.rest;
        match self.takes(&[sign]) {
            Some(_) => Ok(()),
            None => Err(format!("`{sign}` must stand before {before:?}")),
        }
    }

    /// Parses terms with signs between them.
    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        while let Some(sign) = self.takes(&['+', '-']) {
            let right = self.product()?;
            left = Expression::Both(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.value()?;
        while let Some(sign) = self.takes(&['*', '/']) {
            let right = self.value()?;
            left = Expression::Both(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Expression, String> {
        self.parts += 1;
        if self.parts > PARTS_MOST {
            return Err(format!("it has more than {PARTS_MOST} parts"));
        }
        if self.takes(&['-']).is_some() {
            return Ok(Expression::Minus(Box::new(self.value()?)));
        }
        if self.takes(&['(']).is_some() {
            let inner = self.sum()?;
            self.must(')')?;
            return Ok(inner);
        }
        self.rest = self.rest.trim_start();
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if let Ok(number) = name.parse() {
            self.rest = rest;
            return Ok(Expression::Number(number));
        }
        if name.is_empty() {
            return Err(format!(
                "a column, a function or a number must stand before {rest:?}"
            ));
        }
        self.rest = rest;
        if self.takes(&['(']).is_some() {
            return self.call(name);
        }
        if !self.columns.contains(&name) {
            let names = instead(name, self.columns);
            return Err(format!("`{name}` is not in `print.columns`{names}"));
        }
        Ok(Expression::Column(name.to_owned(), self.picks()?))
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        let Some((_, function)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
            let names = FUNCTIONS.map(|(known, _)| known);
            return Err(format!("no function `{name}`{}", instead(name, &names)));
        };
        let mut inner = vec![self.sum()?];
        while self.takes(&[',']).is_some() {
            inner.push(self.sum()?);
        }
        self.must(')')?;
        let right = match function {
            Function::Max | Function::Min => true,
            Function::Mean | Function::Furthest => inner.len() == 1,
            Function::Reaches | Function::Rises => self.is_curve(&inner),
        };
        match right {
            true => Ok(Expression::Call(*function, inner)),
            false if *function == Function::Reaches => Err(format!(
                "`{name}` takes a curve over numbers and a share, as `reaches(rate[erpc, *], 0.9)`"
            )),
            false if *function == Function::Rises => Err(format!(
                "`{name}` takes a curve over numbers and how far it may fall, as `rises(rate[erpc, *], 0.1)`"
            )),
            false => Err(format!("`{name}` takes one expression")),
        }
    }

    /// Whether the arguments are an expression over one axis of numbers, and a number.
    fn is_curve(&self, inner: &[Expression]) -> bool {
        let [curve, Expression::Number(_)] = inner else {
            return false;
        };
        let over = curve.over(self.axes.len());
        let mut over = over.iter().zip(self.axes).filter(|(over, _)| **over);
        over.next()
            .is_some_and(|(_, axis)| axis.numbers().is_some())
            && over.next().is_none()
    }

    /// Parses the selection in brackets, if there is one.
    fn picks(&mut self) -> Result<Vec<Pick>, String> {
        let all = |axis: &Axis| Pick::Some((0..axis.values.len()).collect());
        let mut picks: Vec<Pick> = self.axes.iter().map(all).collect();
        if self.takes(&['[']).is_none() {
            return Ok(picks);
        }
        let Some((inside, rest)) = self.rest.split_once(']') else {
            return Err("`[` has no `]`".to_owned());
        };
        self.rest = rest;
        let texts: Vec<&str> = inside.split(',').map(str::trim).collect();
        if texts.len() > self.axes.len() {
            let keys: Vec<&str> = self.axes.iter().map(|axis| axis.key.as_str()).collect();
            let count = texts.len();
            return Err(format!(
                "[{inside}] has {count} choices, but what is swept is: {}",
                keys.join(", ")
            ));
        }
        for ((text, axis), pick) in texts.iter().zip(self.axes).zip(&mut picks) {
            if *text != "*" {
                *pick = pick_of(text, axis)?;
            }
        }
        Ok(picks)
    }
}

/// The places of an axis that a text selects.
fn pick_of(text: &str, axis: &Axis) -> Result<Pick, String> {
    let labels: Vec<String> = axis.values.iter().map(|node| node.value.label()).collect();
    if let (Some((from, to)), Some(numbers)) = (text.split_once(".."), axis.numbers()) {
        let end = |text: &str, none: f64| match text.trim() {
            "" => Some(none),
            text => number_of(text),
        };
        if let (Some(from), Some(to)) = (end(from, f64::MIN), end(to, f64::MAX)) {
            let inside = (0..numbers.len()).filter(|&place| (from..=to).contains(&numbers[place]));
            let inside: Vec<usize> = inside.collect();
            return match inside.is_empty() {
                true => Err(format!("`{}` has no value in {text}", axis.key)),
                false => Ok(Pick::Some(inside)),
            };
        }
    }
    let place = |text: &str| {
        let by_number = || {
            let wanted = number_of(text)?;
            axis.numbers()?.iter().position(|&number| number == wanted)
        };
        let found = labels.iter().position(|label| label == text);
        found.or_else(by_number).ok_or_else(|| {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            format!(
                "`{}` has no value `{text}`{}",
                axis.key,
                instead(text, &labels)
            )
        })
    };
    match text.split_once('|') {
        None => place(text).map(Pick::One),
        Some(_) => {
            let places = text.split('|').map(|text| place(text.trim()));
            places.collect::<Result<_, _>>().map(Pick::Some)
        }
    }
}

fn number_of(text: &str) -> Option<f64> {
    number(&super::tree::scalar(text, super::mistake::Place::Nowhere).value)
}

impl Expression {
    /// Evaluates the expression; `places` are those of the outcome's points on the axes.
    pub(super) fn of(&self, outcome: &Outcome, places: &[&[usize]], axes: &[Axis]) -> Grid {
        let of = |inner: &Self| inner.of(outcome, places, axes);
        match self {
            Self::Number(number) => Grid(vec![(vec![None; axes.len()], *number)]),
            Self::Minus(inner) => of(inner).map(|value| -value),
            Self::Both(sign, left, right) => of(left).with(&of(right), |a, b| match sign {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                _ => a / b,
            }),
            Self::Column(name, picks) => column(name, picks, outcome, places),
            Self::Call(Function::Reaches, inner) => {
                let share = of(&inner[1]).number();
                of(&inner[0]).reaches(share, axes)
            }
            Self::Call(Function::Rises, inner) => {
                let fall = of(&inner[1]).number();
                of(&inner[0]).rises(fall)
            }
            Self::Call(function, inner) => match inner.as_slice() {
                [one] => of(one).reduced(*function),
                several => {
                    let mut tables = several.iter().map(of);
                    let first = tables.next().unwrap_or(Grid(Vec::new()));
                    tables.fold(first, |one, other| {
                        one.with(&other, |one, other| match function.prefers(one, other) {
                            true => other,
                            false => one,
                        })
                    })
                }
            },
        }
    }

    /// The values of the sweep at which an outermost `max`, `min` or `furthest` found its value.
    pub(super) fn found_at(
        &self,
        outcome: &Outcome,
        places: &[&[usize]],
        axes: &[Axis],
    ) -> Option<String> {
        match self {
            Self::Both(_, inner, other) if matches!(**other, Self::Number(_)) => {
                inner.found_at(outcome, places, axes)
            }
            Self::Call(Function::Mean | Function::Reaches | Function::Rises, _) => None,
            Self::Call(function, inner) => match inner.as_slice() {
                [one] => {
                    let grid = one.of(outcome, places, axes);
                    let (at, _) = grid.extreme(*function)?;
                    let at = axes.iter().zip(at);
                    let labels = at.filter_map(|(axis, place)| {
                        let value = axis.values.get((*place)?)?;
                        Some(value.value.label())
                    });
                    Some(labels.collect::<Vec<_>>().join(", ")).filter(|words| !words.is_empty())
                }
                several => {
                    let value = self.of(outcome, places, axes).number();
                    let same = |one: &&Self| {
                        let one = one.of(outcome, places, axes).number();
                        one == value || one.is_nan() && value.is_nan()
                    };
                    several.iter().find(same)?.found_at(outcome, places, axes)
                }
            },
            _ => None,
        }
    }

    /// For each axis, whether the result is swept over it.
    pub(super) fn over(&self, axes: usize) -> Vec<bool> {
        match self {
            Self::Number(_) => vec![false; axes],
            Self::Minus(inner) => inner.over(axes),
            Self::Both(_, left, right) => any(left.over(axes), &right.over(axes)),
            Self::Column(_, picks) => {
                let over = picks.iter().map(|pick| matches!(pick, Pick::Some(_)));
                over.collect()
            }
            Self::Call(Function::Max | Function::Min, inner) if inner.len() > 1 => {
                let all = inner.iter().map(|inner| inner.over(axes));
                all.fold(vec![false; axes], |one, other| any(one, &other))
            }
            Self::Call(..) => vec![false; axes],
        }
    }
}

impl Function {
    /// Whether `other` is preferred to `one` as the greatest, the least, or the furthest from zero. NaN is preferred to
    /// all numbers.
    fn prefers(self, one: f64, other: f64) -> bool {
        let further = match self {
            Self::Max => other > one,
            Self::Min => other < one,
            _ => other.abs() > one.abs(),
        };
        !one.is_nan() && (other.is_nan() || further)
    }
}

fn any(mut one: Vec<bool>, other: &[bool]) -> Vec<bool> {
    for (one, other) in one.iter_mut().zip(other) {
        *one |= other;
    }
    one
}

fn column(name: &str, picks: &[Pick], outcome: &Outcome, places: &[&[usize]]) -> Grid {
    let mut values = Vec::new();
    for (point, places) in outcome.points.iter().zip(places) {
        let place = |(pick, &place): (&Pick, &usize)| match pick {
            Pick::One(one) => (*one == place).then_some(None),
            Pick::Some(some) => some.contains(&place).then_some(Some(place)),
        };
        let at: Option<Vec<Option<usize>>> = picks.iter().zip(*places).map(place).collect();
        let found = point.columns.iter().find(|column| column.name == name);
        if let (Some(at), Some(column)) = (at, found) {
            values.push((at, column.whole()));
        }
    }
    Grid(values)
}

impl Grid {
    fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        for (_, value) in &mut self.0 {
            *value = change(*value);
        }
        self
    }

    /// Combines both tables, place by place.
    fn with(&self, other: &Self, both: impl Fn(f64, f64) -> f64) -> Self {
        let mut values = Vec::new();
        for (at, one) in &self.0 {
            for (there, other) in &other.0 {
                let same = |(a, b): (&Option<usize>, &Option<usize>)| match (a, b) {
                    (Some(a), Some(b)) => (a == b).then_some(Some(*a)),
                    (a, b) => Some(a.or(*b)),
                };
                let at: Option<Vec<_>> = at.iter().zip(there).map(same).collect();
                values.extend(at.map(|at| (at, both(*one, *other))));
            }
        }
        Self(values)
    }

    /// Reduces all values to one.
    fn reduced(self, function: Function) -> Self {
        let axes = self.0.first().map_or(0, |(at, _)| at.len());
        let value = match function {
            Function::Mean => {
                let sum: f64 = self.0.iter().map(|(_, value)| value).sum();
                sum / self.0.len() as f64
            }
            _ => self.extreme(function).map_or(f64::NAN, |(_, value)| *value),
        };
        Self(vec![(vec![None; axes], value)])
    }

    /// The greatest value, the least, or the furthest from zero, with its place.
    fn extreme(&self, function: Function) -> Option<&(Vec<Option<usize>>, f64)> {
        self.0
            .iter()
            .reduce(|one, other| match function.prefers(one.1, other.1) {
                true => other,
                false => one,
            })
    }

    /// The first value of the axis with this share of the maximum, if there is something to reach.
    fn reaches(&self, share: f64, axes: &[Axis]) -> Self {
        let most = self
            .extreme(Function::Max)
            .map_or(f64::NAN, |(_, value)| *value);
        let mut values = self.0.iter().filter(|_| most > 0.0);
        let first = values.find(|(_, value)| *value >= share * most);
        let value = first.and_then(|(at, _)| {
            let axis = at.iter().position(Option::is_some)?;
            axes[axis].numbers()?.get(at[axis]?).copied()
        });
        Self(vec![(vec![None; axes.len()], value.unwrap_or(f64::NAN))])
    }

    /// 1 if no value is lower by more than `fall` than the one before it, and 0 otherwise. NaN for a single point, or
    /// if a value is NaN.
    fn rises(&self, fall: f64) -> Self {
        let axes = self.0.first().map_or(0, |(at, _)| at.len());
        let known = self.0.len() > 1 && self.0.iter().all(|(_, value)| !value.is_nan());
        let mut pairs = self.0.windows(2);
        let rises = match known {
            true => f64::from(u8::from(pairs.all(|pair| pair[1].1 >= pair[0].1 - fall))),
            false => f64::NAN,
        };
        Self(vec![(vec![None; axes], rises)])
    }

    /// The only value; NaN if there is none.
    pub(super) fn number(&self) -> f64 {
        self.0.first().map_or(f64::NAN, |(_, value)| *value)
    }

    /// The values with their places on one axis.
    pub(super) fn along(&self, axis: usize) -> Vec<(usize, f64)> {
        let values = self.0.iter();
        values
            .filter_map(|(at, value)| Some((at[axis]?, *value)))
            .collect()
    }
}
