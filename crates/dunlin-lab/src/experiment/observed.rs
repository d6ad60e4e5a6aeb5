//! Observing an experiment: its first run, shown to an observer of the simulated cluster.

use dunlin_sim::Observer;

use super::load::RunError;
use super::outcome::Outcome;
use super::{Experiment, Runs};

impl Experiment {
    /// Like [`Experiment::run`], and shows the first run to `observer`: that of the first point with the first seed,
    /// from the beginning of its clients to the end of the measurement. The outcome is the same.
    ///
    /// # Errors
    /// Those of [`Experiment::run`].
    pub fn run_observed(
        &self,
        threads: usize,
        stop: impl Fn() -> bool + Sync,
        observer: Box<dyn Observer>,
    ) -> Result<Outcome, RunError> {
        let runs = Runs::default();
        self.run_into(&runs, threads, stop, Some(observer));
        self.outcome(&runs)
    }

    /// Describes the first run: the values of the sweep, and the seed.
    pub fn first_run(&self) -> String {
        let Some((places, point)) = self.points.first() else {
            return String::new();
        };
        let mut words = String::new();
        for (axis, &place) in self.axes.iter().zip(places) {
            words += &format!("{}={}, ", axis.key, axis.values[place].value.label());
        }
        words + &format!("seed {}", point.run.seed)
    }

    /// Names of the hosts of the first run, in the order of their numbers: the name of the group, with a number in a
    /// group of several hosts: `clients.2`.
    pub fn hosts(&self) -> Vec<String> {
        let groups = self.points.first().into_iter();
        let groups = groups.flat_map(|(_, point)| &point.hosts);
        let names = groups.flat_map(|group| {
            (0..group.count).map(|number| match group.count {
                1 => group.name.clone(),
                _ => format!("{}.{number}", group.name),
            })
        });
        names.collect()
    }
}
