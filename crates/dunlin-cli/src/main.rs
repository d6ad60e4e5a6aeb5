//! The `dunlin` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    dunlin_cli::commands::main()
}
