//! The fit: changes one parameter after the other as long as the error falls, from several starts. It reads nothing but
//! calibration rows.

use std::fmt;

use dunlin_sim::NicParameters;

use super::starts;

/// Rounds that each start goes through; the best start alone goes through those that are left.
const COARSE_ROUNDS: usize = 2;

/// A parameter that may be changed, by its name in the file.
#[derive(Clone, Debug)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Whether it counts something.
    pub whole: bool,
}

impl Knob {
    /// The value times `factor`: for one that counts, the next whole number in that direction, and one at least.
    pub(super) fn times(&self, factor: f64) -> f64 {
        let value = self.value * factor;
        match (self.whole, factor > 1.0) {
            (false, _) => value,
            (true, true) => value.ceil(),
            (true, false) => value.floor().max(1.0),
        }
    }
}

/// How far a fit looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Where it begins: at the values that it is given, and at so many less one that are drawn around them.
    pub starts: usize,
    /// How often all knobs are gone through, each time with half the step.
    pub rounds: usize,
    /// Draws the starts.
    pub seed: u64,
}

/// What a fit has just found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Which start it is at, from 1.
    pub start: usize,
    /// The knob that was changed, and its value; `None` at the start itself.
    pub changed: Option<(&'a str, f64)>,
    /// The error with it.
    pub error: f64,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start {}: ", self.start)?;
        if let Some((name, value)) = self.changed {
            write!(f, "{name} = {value:.4}: ")?;
        }
        write!(f, "{:.2} %", self.error * 100.0)
    }
}

/// Values of all knobs and how far from the measurements they are.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) nic: NicParameters,
    pub(super) knobs: Vec<Knob>,
    pub(super) error: f64,
}

impl Candidate {
    /// This one with other values, in the knobs' order; `None` when the NIC cannot have one of them.
    pub(super) fn with(&self, values: &[f64]) -> Option<Self> {
        let mut other = self.clone();
        for (knob, value) in other.knobs.iter_mut().zip(values) {
            other.nic.set(&knob.name, *value).ok()?;
            knob.value = *value;
        }
        Some(other)
    }
}

/// Looks for values with a smaller `error`, by factors that shrink; gives the best.
pub fn fit(
    nic: &NicParameters,
    knobs: &[Knob],
    search: Search,
    mut error: impl FnMut(&NicParameters) -> f64,
    mut tell: impl FnMut(Progress<'_>),
) -> (NicParameters, Vec<Knob>) {
    let given = Candidate {
        nic: nic.clone(),
        knobs: knobs.to_vec(),
        error: error(nic),
    };
    let coarse = COARSE_ROUNDS.min(search.rounds);
    let (mut start, mut best) = (1, given.clone());
    begin(&mut best, coarse, start, &mut error, &mut tell);
    if search.starts > 1 && !knobs.is_empty() {
        for (other, mut candidate) in (2..).zip(starts::draw(&given, search, &mut error)) {
            begin(&mut candidate, coarse, other, &mut error, &mut tell);
            if candidate.error < best.error {
                (start, best) = (other, candidate);
            }
        }
    }
    for round in coarse..search.rounds {
        descend(&mut best, step(round), start, &mut error, &mut tell);
    }
    (best.nic, best.knobs)
}

/// The first rounds of a start.
fn begin(
    candidate: &mut Candidate,
    rounds: usize,
    start: usize,
    error: &mut impl FnMut(&NicParameters) -> f64,
    tell: &mut impl FnMut(Progress<'_>),
) {
    tell(Progress {
        start,
        changed: None,
        error: candidate.error,
    });
    for round in 0..rounds {
        descend(candidate, step(round), start, error, tell);
    }
}

/// By which share of its value a knob is changed in a round, from 0.
fn step(round: usize) -> f64 {
    0.25 / f64::from(1 << round.min(30))
}

/// One round: each knob up and down as long as that helps, then all of them once more by what they have moved
/// (Hooke and Jeeves), which follows a valley that lies across the knobs.
fn descend(
    best: &mut Candidate,
    step: f64,
    start: usize,
    error: &mut impl FnMut(&NicParameters) -> f64,
    tell: &mut impl FnMut(Progress<'_>),
) {
    let before: Vec<f64> = best.knobs.iter().map(|knob| knob.value).collect();
    for at in 0..best.knobs.len() {
        for factor in [1.0 + step, 1.0 / (1.0 + step)] {
            loop {
                let mut values: Vec<f64> = best.knobs.iter().map(|knob| knob.value).collect();
                let value = best.knobs[at].times(factor);
                if value == values[at] {
                    break;
                }
                values[at] = value;
                if !improve(best, &values, error) {
                    break;
                }
                tell(Progress {
                    start,
                    changed: Some((&best.knobs[at].name, value)),
                    error: best.error,
                });
            }
        }
    }
    let moved = best.knobs.iter().zip(&before);
    let further: Vec<f64> = moved
        .map(|(knob, before)| knob.times(knob.value / before))
        .collect();
    let changed = best
        .knobs
        .iter()
        .zip(&before)
        .filter(|(knob, before)| knob.value != **before);
    if changed.count() > 1 && improve(best, &further, error) {
        for knob in &best.knobs {
            tell(Progress {
                start,
                changed: Some((&knob.name, knob.value)),
                error: best.error,
            });
        }
    }
}

/// Takes these values if they are better.
fn improve(
    best: &mut Candidate,
    values: &[f64],
    error: &mut impl FnMut(&NicParameters) -> f64,
) -> bool {
    let Some(mut tried) = best.with(values) else {
        return false;
    };
    tried.error = error(&tried.nic);
    let is_better = tried.error < best.error;
    if is_better {
        *best = tried;
    }
    is_better
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(values: [f64; 2]) -> Vec<Knob> {
        let names = ["tx_wqe_ns", "context_sets"];
        let both = names.into_iter().zip(values).zip([false, true]);
        both.map(|((name, value), whole)| Knob {
            name: name.to_owned(),
            value,
            whole,
        })
        .collect()
    }

    fn nic(values: [f64; 2]) -> NicParameters {
        let mut nic = NicParameters::connectx_5();
        nic.set("tx_wqe_ns", values[0]).unwrap();
        nic.set("context_sets", values[1]).unwrap();
        nic
    }

    /// Two valleys in `tx_wqe_ns`: a shallow one at 20, where a descent from there stays, and the true one at 60.
    fn two_valleys(nic: &NicParameters) -> f64 {
        let far = |name, from: f64| (nic.get(name).unwrap() / from).ln().abs();
        let valleys: f64 = (0.3 + far("tx_wqe_ns", 20.0)).min(far("tx_wqe_ns", 60.0));
        valleys + far("context_sets", 40.0)
    }

    fn search(starts: usize) -> Search {
        Search {
            starts,
            rounds: 4,
            seed: 7,
        }
    }

    #[test]
    fn a_descent_stays_in_its_valley_and_several_starts_leave_it() {
        let begun = [20.0, 64.0];
        let found = |starts| {
            let (found, knobs) = fit(
                &nic(begun),
                &knobs(begun),
                search(starts),
                two_valleys,
                |_| (),
            );
            // A NIC keeps times in whole picoseconds.
            assert!((found.get("tx_wqe_ns").unwrap() - knobs[0].value).abs() < 0.001);
            assert_eq!(found.get("context_sets"), Some(knobs[1].value));
            assert_eq!(knobs[1].value.fract(), 0.0);
            two_valleys(&found)
        };
        assert!(found(1) >= 0.3, "{}", found(1));
        assert!(found(6) < 0.1, "{}", found(6));
        assert_eq!(found(6), found(6));
    }

    #[test]
    fn each_thing_told_is_no_worse_than_what_its_start_had() {
        let begun = [20.0, 64.0];
        let mut told: Vec<(usize, f64)> = Vec::new();
        fit(
            &nic(begun),
            &knobs(begun),
            search(3),
            two_valleys,
            |progress| {
                told.push((progress.start, progress.error));
            },
        );
        assert_eq!(told.iter().map(|(start, _)| *start).max(), Some(3));
        for pair in told.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[1].1 <= pair[0].1, "{told:?}");
        }
    }

    #[test]
    fn without_knobs_the_nic_stays_as_it_is() {
        let (found, none) = fit(&nic([20.0, 64.0]), &[], search(4), two_valleys, |_| ());
        assert_eq!(found, nic([20.0, 64.0]));
        assert!(none.is_empty());
    }
}
