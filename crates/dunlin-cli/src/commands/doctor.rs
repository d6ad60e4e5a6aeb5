//! `dunlin doctor`: reports what is available, what is missing, and how to get it.

use std::path::PathBuf;

use dunlin::Address;
use dunlin_bootstrap::DialConfig;
use serde::Serialize;

use super::{connect, Failure};
use crate::doctor::{connection, examine, Finding, State};
use crate::output;
use crate::settings;
use crate::tls::ClientOptions;

/// Report what is available, what is missing, and how to get it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing that `doctor` finds missing is required: Dunlin works without RDMA hardware, huge pages or privileges. What \
is missing makes it slower, or makes a device unavailable. With an address, `doctor` also asks the server which \
device a connection would use and why, why not the other devices of this host, and over UDP whether datagrams arrive; \
a server that cannot be used is a finding too, and ends with exit code 1.\n\n\
Examples:\n  \
  dunlin doctor\n  \
  dunlin doctor dunlin://127.0.0.1:7400\n  \
  dunlin doctor --json | jq '.findings[] | select(.state != \"ok\")'")]
pub struct Args {
    /// Address of a server to ask
    address: Option<Address>,
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, requires = "address", value_parser = connect::parse_device)]
    device: Option<String>,
    /// File with the shared secret; both sides must prove that they know it
    #[arg(long, value_name = "FILE", requires = "address")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    tls: ClientOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Examined {
    findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut findings = examine();
    let mut way = Ok(());
    if let Some(address) = &args.address {
        let set = &settings::get().client;
        let mut config = DialConfig {
            secret: connect::secret(args.secret_file.as_ref())?,
            tls: args.tls.client(&set.tls, set.tls_name.as_ref())?,
            device: connect::device(args.device.as_deref()).map(str::to_owned),
            ..DialConfig::default()
        };
        if let Some(timeout) = set.connect_timeout {
            config.timeout = timeout;
        }
        let about = connection::connection(address, config);
        if let Some(finding) = about.iter().find(|one| one.state == State::Missing) {
            let words = format!("cannot use {address}: {}", finding.found);
            way = Err(Failure::new(words));
        }
        // What was asked about comes first.
        findings.splice(0..0, about);
    }
    if args.json {
        output::print_json(&Examined { findings })?;
        return way;
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
    way
}
