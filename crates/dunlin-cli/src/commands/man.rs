//! `dunlin man`: writes the manual pages, one for each subcommand.

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, Failure};
use crate::output;

/// Write the manual pages
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:\n  \
  dunlin man | man -l -                              the first page\n  \
  dunlin man --out ~/.local/share/man/man1           all of them: then `man dunlin-perf-rpc`")]
pub struct Args {
    /// Folder to which dunlin.1 and a page for each subcommand are written, instead of printing the first
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes them.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(out) = &args.out else {
        return output::write(&page(&command)?);
    };
    output::folder(out)?;
    for (name, page) in pages(&command)? {
        output::file(&out.join(name), page)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// The pages of a command and its subcommands, with their file names.
fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut all = vec![(format!("{name}.1"), page(command)?)];
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in shown {
        all.extend(pages(below)?);
    }
    Ok(all)
}
