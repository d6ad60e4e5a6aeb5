//! `dunlin lab sensitivity`: halves and doubles every parameter that its file calls a guess, and reports which verdicts
//! change.

use dunlin_lab::figure::Setting;
use dunlin_lab::score::Failed;
use dunlin_lab::sensitivity::{self, Moved, Outcome};

use super::runner;
use crate::commands::lab::{frozen, Selection};
use crate::commands::Failure;
use crate::interrupt;
use crate::output;

/// Halve and double guessed parameters, and show which verdicts change
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Selection of figures and of how much of them to run
    #[command(flatten)]
    selection: Selection,
    /// Only parameters of this NIC, host or switch, such as ConnectX-5; may be given several times
    #[arg(long)]
    of: Vec<String>,
    /// Only this parameter; may be given several times
    #[arg(long)]
    parameter: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// When there is no such figure, or nothing to vary, or what is not frozen (no prediction has a verdict then that could
/// move), or a figure could not be run.
pub fn run(args: &Args) -> Result<(), Failure> {
    args.selection
        .no_seeds("sensitivity uses a single seed: use --seed S")?;
    let mut guesses = sensitivity::guesses();
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    guesses.retain(|guess| named(&args.of, &guess.of) && named(&args.parameter, &guess.name));
    if guesses.is_empty() {
        return Err(
            Failure::usage("no guessed parameter matches --of and --parameter").help(
                "the names are those in the files of crates/dunlin-sim/params, such as ConnectX-5",
            ),
        );
    }
    let tell = |moved: &Moved| {
        let setting = &moved.setting;
        output::print(format_args!(
            "{} {} {} -> {}: {}",
            setting.of,
            setting.name,
            moved.was,
            setting.value,
            if moved.claims.is_empty() {
                "no verdict moves".to_owned()
            } else {
                format!("{} verdicts move", moved.claims.len())
            }
        ))?;
        for (id, before, after, was, is) in &moved.claims {
            let number =
                |value: &Option<f64>| value.map_or("none".to_owned(), |v| format!("{v:.2}"));
            output::print(format_args!(
                "  {id}: {before} ({}) becomes {after} ({})",
                number(was),
                number(is)
            ))?;
        }
        for failed in &moved.failed {
            output::print(format_args!("  could not be run with it: {failed}"))?;
        }
        interrupt::check()
    };
    let figures = args.selection.figures()?;
    let effort = args.selection.effort();
    frozen(effort)?;
    let Outcome { moved, mut failed } = sensitivity::run(&figures, effort, &guesses, tell)?;
    let moving = moved.iter().filter(|moved| !moved.claims.is_empty());
    output::print(format_args!(
        "{} runs of {} guessed values; in {} a verdict moves",
        moved.len(),
        guesses.len(),
        moving.count()
    ))?;
    for Moved {
        setting: Setting { of, name, value },
        failed: with_it,
        ..
    } in moved
    {
        failed.extend(with_it.into_iter().map(|Failed { figure, why }| Failed {
            figure: format!("{figure} with {of} {name} = {value}"),
            why,
        }));
    }
    runner::check(&failed)
}
