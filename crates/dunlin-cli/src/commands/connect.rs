//! The options with which commands connect to a server.

use std::path::PathBuf;
use std::time::Duration;

use dunlin::{Address, Client, ClientBuilder, Preset, Secret};
use dunlin_bootstrap::device_name;

use super::perf::parse_seconds;
use super::serve::read_secret;
use super::Failure;
use crate::input::parse_bytes;
use crate::settings;
use crate::tls::ClientOptions;

/// Parses the name of a device, as printed by `dunlin devices`. Whether it can be used here is known only when it is
/// opened.
///
/// # Errors
/// When no host can have a device of this name.
pub fn parse_device(name: &str) -> Result<String, &'static str> {
    match device_name::is_known(name) {
        true => Ok(name.to_owned()),
        false => Err(
            "available devices are shm, roce, ibv and ibv:NIC (see `dunlin devices`), each optionally with the prefix \
             flor-"),
    }
}

/// The same for commands whose rings need a device's own queue pairs.
///
/// # Errors
/// When no host can have a device of this name, or it is one of Flor's.
pub fn parse_own_device(name: &str) -> Result<String, &'static str> {
    match device_name::below(name).is_some() {
        true => Err("available devices are shm, roce, ibv and ibv:NIC: rings do not run over Flor"),
        false => parse_device(name),
    }
}

/// Reads the secret from this file, or else from the one in the settings.
///
/// # Errors
/// When the file cannot be read.
pub fn secret(said: Option<&PathBuf>) -> Result<Option<Secret>, Failure> {
    let file = said.or(settings::get().client.secret_file.as_ref());
    file.map(read_secret).transpose()
}

/// The given preset, or else that of the settings.
pub fn preset(said: Option<Preset>) -> Preset {
    said.or(settings::get().client.preset).unwrap_or_default()
}

/// The given device, or else that of the settings.
pub fn device(said: Option<&str>) -> Option<&str> {
    said.or(settings::get().client.device.as_deref())
}

/// Options of a client. Those not given are taken from the settings ([`settings::Client`]).
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, value_parser = parse_device)]
    device: Option<String>,
    /// Composition of transport, channel, sharing and admission: auto (chosen from device and load), plain, flock or
    /// one of its competitors (qp-per-thread, spinlock-2, spinlock-4, flock-no-coalescing, flock-no-scheduling), fasst,
    /// scalerpc or one of their competitors (rawwrite, selfrpc, erpc, herd), flor or its competitor xrdma, rb2
    /// [default: auto]
    #[arg(long)]
    preset: Option<Preset>,
    /// File with the shared secret; both sides must prove that they know it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    tls: ClientOptions,
    /// Report this client's figures to the server every second under this name, for `dunlin top`
    #[arg(long, value_name = "NAME")]
    report: Option<String>,
    /// Time limit for a call, in seconds [default: 10]
    #[arg(long, value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    deadline: Option<Duration>,
    /// Time limit for connecting, in seconds [default: 5]
    #[arg(long, value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    connect_timeout: Option<Duration>,
    /// Longest response accepted, such as 64KiB or 1GiB [default: 16MiB]
    #[arg(long, value_parser = parse_bytes(24..=u32::MAX), value_name = "BYTES")]
    max_message_bytes: Option<u32>,
}

impl Options {
    /// The device to use, if one is set.
    pub fn device(&self) -> Option<&str> {
        device(self.device.as_deref())
    }

    /// The preset to use.
    pub fn preset(&self) -> Preset {
        preset(self.preset)
    }

    /// The deadline of a call, if one is set.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline.or(settings::get().client.deadline)
    }

    /// The same options with another preset.
    pub fn with_preset(&self, preset: Preset) -> Self {
        Self {
            preset: Some(preset),
            ..self.clone()
        }
    }

    /// The same options with another device.
    pub fn with_device(&self, device: &str) -> Self {
        Self {
            device: Some(device.to_owned()),
            ..self.clone()
        }
    }

    /// The options as arguments of another process of this command, which reads the same settings.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("--preset", self.preset.map(|preset| preset.to_string()));
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
        option("--deadline", seconds(self.deadline));
        option("--connect-timeout", seconds(self.connect_timeout));
        let bytes = self.max_message_bytes.map(|bytes| bytes.to_string());
        option("--max-message-bytes", bytes);
        option("--device", self.device.clone());
        let file = self.secret_file.as_ref();
        option(
            "--secret-file",
            file.map(|file| file.to_string_lossy().into_owned()),
        );
        arguments.extend(self.tls.arguments());
        arguments
    }

    /// The builder of a client with these options.
    pub fn builder(&self) -> Result<ClientBuilder, Failure> {
        let set = &settings::get().client;
        let mut channel = set.channel;
        if let Some(bytes) = self.max_message_bytes {
            channel.max_message_bytes = Some(bytes as usize);
        }
        let mut builder = Client::builder()
            .preset(self.preset())
            .channel(channel.config());
        if let Some(deadline) = self.deadline() {
            builder = builder.deadline(deadline);
        }
        if let Some(timeout) = self.connect_timeout.or(set.connect_timeout) {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(lanes) = set.lanes {
            builder = builder.lanes(lanes);
        }
        if let Some(device) = self.device() {
            builder = builder.device(device);
        }
        if let Some(secret) = secret(self.secret_file.as_ref())? {
            builder = builder.secret(secret);
        }
        if let Some(tls) = self.tls.client(&set.tls, set.tls_name.as_ref())? {
            builder = builder.tls(tls);
        }
        if let Some(name) = self.report.as_ref().or(set.reports_figures.as_ref()) {
            builder = builder.reports_figures(name, Duration::from_secs(1));
        }
        Ok(builder)
    }

    /// Connects to the server at `address`.
    pub fn connect(&self, address: &Address) -> Result<Client, Failure> {
        Ok(self.builder()?.connect(&address.to_string())?)
    }
}
