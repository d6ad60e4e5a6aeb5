//! The options by which commands reach a server.

use std::path::PathBuf;
use std::time::Duration;

use dunlin::{Client, ClientBuilder};

use super::serve::read_secret;
use super::Failure;

/// How to reach a server.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long)]
    device: Option<String>,
    /// Composition of transport, channel, sharing and admission: auto (chosen from device and load), plain, flock, or a rival of
    /// flock's (qp-per-thread, spinlock-2, spinlock-4, flock-no-coalescing, flock-no-scheduling), fasst, scalerpc, or a rival of
    /// theirs (rawwrite, selfrpc, erpc, herd)
    #[arg(long, default_value = "auto")]
    preset: String,
    /// File whose bytes the server must prove to have
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Tell the server each second what this client does, under this name, for `dunlin top`
    #[arg(long, value_name = "NAME")]
    report: Option<String>,
    /// Longest time for a call
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    deadline: f64,
}

impl Options {
    /// The device asked for.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The options as another process of this command takes them.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--preset".to_owned(),
            self.preset.clone(),
            "--deadline".to_owned(),
            self.deadline.to_string(),
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
        let deadline = Duration::try_from_secs_f64(self.deadline)
            .map_err(|error| Failure::usage(format!("--deadline: {error}")))?;
        let preset = self
            .preset
            .parse()
            .map_err(|e| Failure::usage(format!("--preset: {e}")))?;
        let mut builder = Client::builder().preset(preset).deadline(deadline);
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
    pub fn connect(&self, address: &str) -> Result<Client, Failure> {
        self.builder()?.connect(address).map_err(Failure::new)
    }
}
