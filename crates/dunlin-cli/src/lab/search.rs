//! The extent of the search of `lab calibrate` and `lab fit`, and its progress messages.

use std::time::Duration;

use dunlin_lab::calibration::{Progress, Search};

use crate::commands::Failure;
use crate::output;

/// Number of rounds with all rows.
const ROUNDS: usize = 2;

/// Options of both commands.
#[derive(Debug, clap::Args)]
pub(super) struct SearchArgs {
    /// Number of starts: the given values, and others drawn around them; the best one is refined
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    starts: u16,
    /// Minutes after which the search ends with the best values so far; checks of the result follow
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
}

impl SearchArgs {
    pub(super) fn search(&self, seed: u64) -> Search {
        Search {
            starts: usize::from(self.starts),
            rounds: ROUNDS,
            seed,
            within: Some(Duration::from_secs(60 * u64::from(self.minutes))),
        }
    }
}

/// Prints the progress of a search on standard error.
pub(super) fn tell(progress: Progress<'_>) {
    output::note(format_args!("{progress}"));
}

/// Prints how a search ended, with its errors in the runs that it used and in others of the same rows.
pub(super) fn print_end(errors: (f64, f64), trials: usize, cut_short: bool) -> Result<(), Failure> {
    let (error, fresh) = (errors.0 * 100.0, errors.1 * 100.0);
    output::print(format_args!(
        "root mean square error {error:.1} % in the runs of the fit, {fresh:.1} % in others of the same rows; \
         {trials} trials"
    ))?;
    match cut_short {
        true => output::print(
            "the time limit was reached before the search ended (--minutes): this is the best result so far",
        ),
        false => Ok(()),
    }
}
