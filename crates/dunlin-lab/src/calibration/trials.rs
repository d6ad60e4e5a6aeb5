//! Evaluations of the model by a search: rows for values of parameters, within a time limit.

use std::time::{Duration, Instant};

use dunlin_sim::NicParameters;

use super::knob::{Candidate, Knob};
use super::{Compared, Progress, Stage};

/// Which runs of a row are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Those that a fit uses repeatedly.
    Fit,
    /// Others of the same rows, with other seeds: they reveal a fit to chance.
    Fresh,
}

/// Measurements, and a model of them.
pub trait Model {
    /// Number of rows that a fit uses.
    fn rows(&self) -> usize;
    /// The model's results for these rows.
    fn replay(&self, nic: &NicParameters, rows: &[usize], runs: Runs) -> Vec<Compared>;
}

/// Counts and times the evaluations of the model, and reports progress.
pub(super) struct Trials<'a> {
    model: &'a dyn Model,
    tell: &'a mut dyn FnMut(Progress<'_>),
    started: Instant,
    within: Option<Duration>,
    stage: Stage,
    rows: Vec<usize>,
    runs: Runs,
    made: usize,
    cut_short: bool,
}

impl<'a> Trials<'a> {
    pub(super) fn new(
        model: &'a dyn Model,
        within: Option<Duration>,
        tell: &'a mut dyn FnMut(Progress<'_>),
    ) -> Self {
        Self {
            model,
            tell,
            started: Instant::now(),
            within,
            stage: Stage::Draw,
            rows: (0..model.rows()).collect(),
            runs: Runs::Fit,
            made: 0,
            cut_short: false,
        }
    }

    /// Begins a stage: what is tried from now on is judged by these rows and runs.
    pub(super) fn begin(&mut self, stage: Stage, rows: &[usize], runs: Runs) {
        self.stage = stage;
        self.rows = rows.to_vec();
        self.runs = runs;
    }

    /// Evaluates the given values.
    pub(super) fn given(&mut self, nic: &NicParameters, knobs: &[Knob]) -> Candidate {
        self.late(&Candidate::new(nic, knobs, &[]))
    }

    /// Evaluates the same values with the rows of this stage, regardless of the time limit.
    pub(super) fn late(&mut self, candidate: &Candidate) -> Candidate {
        self.made += 1;
        let rows = self.model.replay(&candidate.nic, &self.rows, self.runs);
        let mut found = candidate.clone();
        found.found(&rows);
        found
    }

    /// Evaluates `near` with other values; `None` when there are none within reach, the NIC cannot have them, or the
    /// time is up.
    pub(super) fn with(&mut self, near: &Candidate, values: &[f64]) -> Option<Candidate> {
        let there = near.with(values)?;
        self.again(&there)
    }

    /// Evaluates the same values with the rows of this stage; `None` when the time is up.
    pub(super) fn again(&mut self, candidate: &Candidate) -> Option<Candidate> {
        if self
            .within
            .is_some_and(|within| self.started.elapsed() >= within)
        {
            self.cut_short = true;
            return None;
        }
        Some(self.late(candidate))
    }

    /// Reports progress.
    pub(super) fn tell(&mut self, found: &Candidate) {
        (self.tell)(Progress {
            stage: self.stage,
            knobs: &found.knobs,
            error: found.error(),
            trials: self.made,
            elapsed: self.started.elapsed(),
        });
    }

    /// Number of evaluations of the model.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Whether something was not tried for lack of time.
    pub(super) fn cut_short(&self) -> bool {
        self.cut_short
    }
}
