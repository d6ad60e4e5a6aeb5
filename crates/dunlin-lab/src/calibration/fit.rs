//! The fit: changes parameters as long as the error falls, from several starts. It reads only calibration rows.
//!
//! Starts are compared by a sample of the rows. Shorter runs would be as cheap, but a run that is not yet in its steady
//! state shows other rates than a long one, by as much as an eighth, and would be fitted instead.

use std::fmt;
use std::time::Duration;

use dunlin_sim::NicParameters;

use super::knob::{Candidate, Knob};
use super::trials::{Model, Runs, Trials};
use super::{descent, newton, starts};
use crate::dice::Dice;

/// To find a start, one row in this many is used, and at least this many for each knob.
const ROWS_A_START: usize = 3;
const ROWS_A_KNOB: usize = 3;
/// Steps along the slopes, from each start and then with all rows.
const STEPS: usize = 5;
/// The first share of its value by which a knob alone is changed; half of it in each following round.
const SHARE: f64 = 0.25;

/// Bounds of a fit's search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Number of starts: the given values, and others drawn around them.
    pub starts: usize,
    /// Rounds with all rows, in which knobs are changed one after the other, each time by half as much.
    pub rounds: usize,
    /// Seed for drawing the starts and their rows.
    pub seed: u64,
    /// Time limit, after which nothing more is tried.
    pub within: Option<Duration>,
}

/// Stage of a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Starts are drawn.
    Draw,
    /// The search from one start, numbered from 1, with some of the rows.
    Start(usize),
    /// The result of a start, or with `None` the given values, is judged by all rows, in runs that no start has used.
    Choose(Option<usize>),
    /// The best result is refined with all rows.
    Refine,
}

/// A result found during a fit.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The stage of the fit.
    pub stage: Stage,
    /// Values of all knobs.
    pub knobs: &'a [Knob],
    /// The error with them.
    pub error: f64,
    /// Number of evaluations of the model.
    pub trials: usize,
    /// Time since the fit began.
    pub elapsed: Duration,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, trials) = (self.elapsed.as_secs(), self.trials);
        write!(
            f,
            "{:3}:{:02}, trial {trials}: ",
            seconds / 60,
            seconds % 60
        )?;
        match self.stage {
            Stage::Draw => write!(f, "given, some rows")?,
            Stage::Start(start) => write!(f, "start {start}, some rows")?,
            Stage::Choose(Some(start)) => write!(f, "start {start}, all rows, other runs")?,
            Stage::Choose(None) => write!(f, "given, all rows, other runs")?,
            Stage::Refine => write!(f, "refined, all rows")?,
        }
        write!(f, ": {:.2} %", self.error * 100.0)?;
        for (at, knob) in self.knobs.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{} {:.4}", knob.name, knob.value)?;
        }
        Ok(())
    }
}

/// Result of a fit.
#[derive(Clone, Debug)]
pub struct Found {
    /// The NIC.
    pub nic: NicParameters,
    /// The values that were fitted.
    pub knobs: Vec<Knob>,
    /// Root mean square error in the runs of the fit.
    pub error: f64,
    /// The same in other runs of the same rows. If it is far greater, the fit has fitted chance.
    pub fresh_error: f64,
    /// Number of evaluations of the model.
    pub trials: usize,
    /// Whether the time limit ended the search early.
    pub cut_short: bool,
}

/// Searches for values with a smaller error; returns the best.
pub fn fit(
    nic: &NicParameters,
    knobs: &[Knob],
    search: Search,
    model: &dyn Model,
    mut tell: impl FnMut(Progress<'_>),
) -> Found {
    let mut trials = Trials::new(model, search.within, &mut tell);
    let all: Vec<usize> = (0..model.rows()).collect();
    let some = some_rows(all.len(), knobs.len(), search.seed);
    trials.begin(Stage::Draw, &some, Runs::Fit);
    let given = trials.given(nic, knobs);
    trials.tell(&given);
    let mut begun = vec![given.clone()];
    begun.extend(starts::draw(&given, search, &mut trials));
    for (start, candidate) in (1..).zip(&mut begun) {
        trials.begin(Stage::Start(start), &some, Runs::Fit);
        trials.tell(candidate);
        newton::follow(candidate, STEPS, &mut trials);
        if descent::round(candidate, SHARE, &mut trials) {
            newton::follow(candidate, STEPS, &mut trials);
        }
    }
    let mut best = match begun.len() {
        1 => begun.remove(0),
        _ => choose(given, begun, &all, &mut trials),
    };
    trials.begin(Stage::Refine, &all, Runs::Fit);
    // Regardless of the time limit: errors are comparable only with the same rows and runs.
    best = trials.late(&best);
    trials.tell(&best);
    newton::follow(&mut best, STEPS, &mut trials);
    let mut share = SHARE / 2.0;
    for _ in 0..search.rounds {
        if descent::round(&mut best, share, &mut trials) {
            newton::follow(&mut best, 1, &mut trials);
        }
        share /= 2.0;
    }
    trials.begin(Stage::Refine, &all, Runs::Fresh);
    let fresh = trials.late(&best);
    Found {
        error: best.error(),
        fresh_error: fresh.error(),
        nic: best.nic,
        knobs: best.knobs,
        trials: trials.made(),
        cut_short: trials.cut_short(),
    }
}

/// The best of the results of the starts and the given values, by runs that none of them was fitted to: the least of
/// several errors that were each minimized is mostly the one that chance favoured. By some of the rows when the time is
/// up.
fn choose(
    given: Candidate,
    begun: Vec<Candidate>,
    all: &[usize],
    trials: &mut Trials<'_>,
) -> Candidate {
    let mut judged = Vec::new();
    for (start, candidate) in begun.iter().chain([&given]).enumerate() {
        let start = (start < begun.len()).then_some(start + 1);
        trials.begin(Stage::Choose(start), all, Runs::Fresh);
        if let Some(candidate) = trials.again(candidate) {
            trials.tell(&candidate);
            judged.push(candidate);
        }
    }
    let least = |of: Vec<Candidate>| {
        let by_error = |a: &Candidate, b: &Candidate| a.error().total_cmp(&b.error());
        of.into_iter().min_by(by_error)
    };
    let all_judged = judged.len() > begun.len();
    least(if all_judged { judged } else { begun }).unwrap_or(given)
}

/// Rows for comparing starts: one of each group of neighbours, at random, because settings of rows often repeat with a
/// period.
fn some_rows(rows: usize, knobs: usize, seed: u64) -> Vec<usize> {
    let count = rows
        .div_ceil(ROWS_A_START)
        .max(ROWS_A_KNOB * knobs)
        .min(rows);
    let mut dice = Dice::new(seed);
    let group = |at: usize| at * rows / count;
    (0..count)
        .map(|at| dice.between(group(at) as u64, group(at + 1) as u64 - 1) as usize)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Compared;

    /// Rows as a function of a NIC.
    struct Rows(fn(&NicParameters) -> Vec<f64>);

    impl Model for Rows {
        fn rows(&self) -> usize {
            (self.0)(&NicParameters::connectx_5()).len()
        }

        fn replay(&self, nic: &NicParameters, rows: &[usize], _: Runs) -> Vec<Compared> {
            let errors = (self.0)(nic);
            let row = |&row: &usize| Compared {
                label: String::new(),
                paper: 1.0,
                ours: 1.0 + errors[row],
            };
            rows.iter().map(row).collect()
        }
    }

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

    fn far(nic: &NicParameters, name: &str, from: f64) -> f64 {
        (nic.get(name).unwrap() / from).ln()
    }

    /// Two minima in `tx_wqe_ns`: a shallow one at 20, where a descent from there ends, and the true one at 60.
    fn two_valleys(nic: &NicParameters) -> Vec<f64> {
        let shallow = 0.3 + far(nic, "tx_wqe_ns", 20.0).abs();
        let deep = far(nic, "tx_wqe_ns", 60.0).abs();
        vec![shallow.min(deep), far(nic, "context_sets", 40.0)]
    }

    /// A valley across both knobs: the rows determine their product well, each of them alone hardly.
    fn across(nic: &NicParameters) -> Vec<f64> {
        let (one, other) = (far(nic, "tx_wqe_ns", 90.0), far(nic, "context_sets", 200.0));
        vec![one + other, 0.1 * (one - other)]
    }

    fn search(starts: usize) -> Search {
        Search {
            starts,
            rounds: 4,
            seed: 7,
            within: None,
        }
    }

    #[test]
    fn a_descent_stays_in_its_valley_and_several_starts_leave_it() {
        let begun = [20.0, 64.0];
        let found = |starts| {
            let model = Rows(two_valleys);
            let found = fit(&nic(begun), &knobs(begun), search(starts), &model, |_| ());
            // A NIC stores times in whole picoseconds.
            let value = |at: usize| found.knobs[at].value;
            assert!((found.nic.get("tx_wqe_ns").unwrap() - value(0)).abs() < 0.001);
            assert_eq!(found.nic.get("context_sets"), Some(value(1)));
            assert_eq!(value(1).fract(), 0.0);
            assert!(!found.cut_short);
            found.error
        };
        assert!(found(1) >= 0.2, "{}", found(1));
        assert!(found(6) < 0.1, "{}", found(6));
        assert_eq!(found(6), found(6));
    }

    #[test]
    fn a_valley_across_the_knobs_is_followed_to_its_end() {
        let begun = [30.0, 600.0];
        let found = fit(&nic(begun), &knobs(begun), search(1), &Rows(across), |_| ());
        assert!(found.error < 0.01, "{found:?}");
        assert!((found.knobs[0].value / 90.0 - 1.0).abs() < 0.1, "{found:?}");
        assert!(found.trials < 60, "{found:?}");
    }

    #[test]
    fn within_a_stage_each_thing_told_is_no_worse_than_the_one_before() {
        let begun = [20.0, 64.0];
        let mut told: Vec<(Stage, f64)> = Vec::new();
        let model = Rows(two_valleys);
        fit(&nic(begun), &knobs(begun), search(3), &model, |progress| {
            told.push((progress.stage, progress.error));
        });
        assert!(told.iter().any(|(stage, _)| *stage == Stage::Start(3)));
        assert!(told.iter().any(|(stage, _)| *stage == Stage::Refine));
        for pair in told.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[1].1 <= pair[0].1, "{told:?}");
        }
    }

    /// Of two minima the narrower is better only in the runs of the fit, by chance.
    struct Lucky;

    impl Model for Lucky {
        fn rows(&self) -> usize {
            1
        }

        fn replay(&self, nic: &NicParameters, rows: &[usize], runs: Runs) -> Vec<Compared> {
            let lucky = match runs {
                Runs::Fit => 0.0,
                Runs::Fresh => 0.3,
            };
            let (lucky, sound) = (
                lucky + 5.0 * far(nic, "tx_wqe_ns", 20.0).abs(),
                0.1 + far(nic, "tx_wqe_ns", 60.0).abs(),
            );
            let row = |_: &usize| Compared {
                label: String::new(),
                paper: 1.0,
                ours: 1.0 + lucky.min(sound),
            };
            rows.iter().map(row).collect()
        }
    }

    #[test]
    fn a_start_that_chance_helped_is_not_chosen() {
        let begun = [20.0, 64.0];
        let one = &knobs(begun)[..1];
        let found = fit(&nic(begun), one, search(6), &Lucky, |_| ());
        assert!((found.knobs[0].value / 60.0 - 1.0).abs() < 0.1, "{found:?}");
        assert!(found.fresh_error < 0.2);
    }

    #[test]
    fn when_the_time_is_up_the_best_so_far_is_given() {
        let begun = [20.0, 64.0];
        let search = Search {
            within: Some(Duration::ZERO),
            ..search(3)
        };
        let found = fit(
            &nic(begun),
            &knobs(begun),
            search,
            &Rows(two_valleys),
            |_| (),
        );
        assert!(found.cut_short);
        assert_eq!(found.nic, nic(begun));
    }

    #[test]
    fn without_knobs_the_nic_stays_as_it_is() {
        let begun = [20.0, 64.0];
        let found = fit(&nic(begun), &[], search(4), &Rows(two_valleys), |_| ());
        assert_eq!(found.nic, nic(begun));
        assert!(found.knobs.is_empty());
    }

    #[test]
    fn rows_of_starts_are_of_all_parts_and_not_of_one_place_in_each() {
        let rows = some_rows(47, 4, 1);
        assert_eq!(rows.len(), 16);
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        let places: std::collections::HashSet<usize> = rows.iter().map(|row| row % 3).collect();
        assert_eq!(places.len(), 3);
        assert_eq!(some_rows(5, 4, 1), [0, 1, 2, 3, 4]);
        assert!(some_rows(0, 4, 1).is_empty());
    }
}
