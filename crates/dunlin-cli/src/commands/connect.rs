//! The options by which commands reach a server.

use std::path::PathBuf;
use std::time::Duration;

use dunlin::{Address, Client, ClientBuilder, Preset};

use super::perf::parse_seconds;
use super::serve::read_secret;
use super::Failure;

/// Reads the name of a device, as `dunlin devices` prints it. Whether it can be used here shows when it is opened.
///
/// # Errors
/// When there is no device of this name on any host.
pub fn parse_device(name: &str) -> Result<String, &'static str> {
    let below = name.strip_prefix("flor-").unwrap_or(name);
    match below.split_once(':') {
        None if matches!(below, "shm" | "ibv" | "roce") => Ok(name.to_owned()),
        Some(("ibv", nic)) if !nic.is_empty() => Ok(name.to_owned()),
        _ => Err("devices are shm, roce, ibv and ibv:NIC (see `dunlin devices`), and flor- in front of one"),
    }
}

/// How to reach a server.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, value_parser = parse_device)]
    device: Option<String>,
    /// Composition of transport, channel, sharing and admission: auto (chosen from device and load), plain, flock, or a
    /// rival of flock's (qp-per-thread, spinlock-2, spinlock-4, flock-no-coalescing, flock-no-scheduling), fasst,
    /// scalerpc, a rival of theirs (rawwrite, selfrpc, erpc, herd), flor or its rival xrdma
    #[arg(long, default_value = "auto")]
    preset: Preset,
    /// File whose bytes the server must prove to have
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Tell the server each second what this client does, under this name, for `dunlin top`
    #[arg(long, value_name = "NAME")]
    report: Option<String>,
    /// Longest time for a call
    #[arg(long, default_value = "10", value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    deadline: Duration,
}

impl Options {
    /// The device asked for.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The preset asked for.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    /// The same with another preset.
    pub fn with_preset(&self, preset: Preset) -> Self {
        Self {
            preset,
            ..self.clone()
        }
    }

    /// The options as another process of this command takes them.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--preset".to_owned(),
            self.preset.to_string(),
            "--deadline".to_owned(),
            self.deadline.as_secs_f64().to_string(),
        ];
        if let Some(device) = &self.device {
            arguments.extend(["--device".to_owned(), device.clone()]);
        }
        if let Some(file) = &self.secret_file {
            let file = file.to_string_lossy().into_owned();
            arguments.extend(["--secret-file".to_owned(), file]);
        }
        arguments
    }

    /// A client's settings.
    pub fn builder(&self) -> Result<ClientBuilder, Failure> {
        let mut builder = Client::builder()
            .preset(self.preset)
            .deadline(self.deadline);
        if let Some(device) = &self.device {
            builder = builder.device(device);
        }
        if let Some(file) = &self.secret_file {
            builder = builder.secret(read_secret(file)?);
        }
        if let Some(name) = &self.report {
            builder = builder.reports_figures(name, Duration::from_secs(1));
        }
        Ok(builder)
    }

    /// A client of the server at `address`.
    pub fn connect(&self, address: &Address) -> Result<Client, Failure> {
        Ok(self.builder()?.connect(&address.to_string())?)
    }
}
