//! `--nic FILE` and `--set nic.NAME=VALUE`: replacements for the papers' NICs, processors and switches.

use std::path::PathBuf;

use dunlin_lab::experiment::parameter;
use dunlin_lab::figure::{Effort, Setting};
use dunlin_sim::NicParameters;

use crate::commands::Failure;

/// Other NICs and parameters
#[derive(Debug, clap::Args)]
pub struct Replaced {
    /// Parameter file of a NIC that replaces all others, as made by `dunlin lab calibrate`; no claim is judged with it
    #[arg(long, value_name = "FILE")]
    nic: Option<PathBuf>,
    /// Change a parameter (nic.tx_wqe_ns=20, cpu.copy_ns=7.5, switch.lossless=0) or a key of an experiment's file
    /// (clients.threads=8); may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Replaced {
    /// The NIC of the file.
    ///
    /// # Errors
    /// When it cannot be read, or is not a parameter file.
    pub fn nic(&self) -> Result<Option<NicParameters>, Failure> {
        let Some(file) = &self.nic else {
            return Ok(None);
        };
        let nic = NicParameters::load(file).map_err(|error| {
            let why = error.to_string().trim().replace('\n', "; ");
            Failure::usage(format!("--nic {}: {why}", file.display())).help(
                "the format is that of crates/dunlin-sim/params/connectx-5.toml; `dunlin lab calibrate` creates one",
            )
        })?;
        Ok(Some(nic))
    }

    /// What was set.
    pub fn sets(&self) -> &[String] {
        &self.set
    }

    /// Whether something other than a parameter was set.
    pub fn sets_keys(&self) -> bool {
        let parameter = |set: &String| {
            ["nic.", "cpu.", "switch."]
                .iter()
                .any(|of| set.starts_with(of))
        };
        !self.set.iter().all(parameter)
    }

    /// The parameters that a figure runs with.
    ///
    /// # Errors
    /// When the NIC cannot be read, or there is no such parameter.
    pub fn effort(&self, effort: Effort) -> Result<Effort, Failure> {
        let settings = self.set.iter().map(|set| parameter(set));
        let settings: Vec<Setting> = settings.collect::<Result<_, _>>().map_err(Failure::usage)?;
        // Once, for the life of a command that ends soon.
        let nic = self.nic()?.map(|nic| &*Box::leak(Box::new(nic)));
        Ok(Effort {
            settings: Box::leak(settings.into_boxed_slice()),
            nic,
            ..effort
        })
    }

    /// Describes what differs from the papers.
    pub fn words(&self) -> Vec<String> {
        let nic = self.nic.iter().map(|file| file.display().to_string());
        nic.chain(self.set.iter().cloned()).collect()
    }
}
