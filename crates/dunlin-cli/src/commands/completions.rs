//! `dunlin completions`: prints shell completion scripts.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Failure};
use crate::output;

/// Print a shell completion script
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:\n  \
  dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin\n  \
  dunlin completions zsh > ~/.zfunc/_dunlin\n  \
  dunlin completions fish > ~/.config/fish/completions/dunlin.fish")]
pub struct Args {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dunlin", &mut script);
    output::write(&script)
}
