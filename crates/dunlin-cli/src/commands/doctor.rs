//! `dunlin doctor`: what is here, what is missing, and how to get it.

use serde::Serialize;

use super::Failure;
use crate::doctor::{examine, Finding, State};
use crate::output;

/// See what is there, what is missing, and how to get it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing that `doctor` finds missing is needed to run: Dunlin works without RDMA hardware, huge pages\n\
or privileges. What is missing makes it slower, or leaves a device out.\n\n\
Examples:\n  \
  dunlin doctor\n  \
  dunlin doctor --json | jq '.findings[] | select(.state != \"ok\")'")]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Examined {
    findings: Vec<Finding>,
}

/// Looks and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let findings = examine();
    if args.json {
        output::print_json(&Examined { findings })?;
        return Ok(());
    }
    let mut text = String::new();
    for finding in &findings {
        let state = match finding.state {
            State::Ok => "ok     ",
            State::Warn => "warn   ",
            State::Missing => "missing",
        };
        text.push_str(&format!(
            "{state}  {:<22} {}\n",
            finding.name, finding.found
        ));
        if let Some(advice) = &finding.advice {
            text.push_str(&format!("{:33}{advice}\n", ""));
        }
    }
    output::print(text.trim_end())?;
    Ok(())
}
