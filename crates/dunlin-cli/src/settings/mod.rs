//! Settings from a file and from the environment, for values not given on the command line.
//!
//! A key has the name of the builder's method or of the channel's field: `deadline` below `[client]` in the file is
//! `DUNLIN_CLIENT_DEADLINE` in the environment, and sets [`dunlin::ClientBuilder::deadline`]. An option of the command
//! line takes precedence over a variable, a variable over the file, the file over the default.

mod section;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use dunlin::{Address, ChannelConfig, Datagrams, Preset, WaitMode};

use self::section::Section;
use crate::commands::connect::parse_device;
use crate::commands::perf::parse_seconds;
use crate::commands::Failure;
use crate::input::parse_bytes;
use crate::tls::Files;

/// Names the file where `--config` does not.
pub const VARIABLE: &str = "DUNLIN_CONFIG";

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings of file and environment.
#[derive(Debug, Default)]
pub struct Settings {
    /// `[client]` and `DUNLIN_CLIENT_...`.
    pub client: Client,
    /// `[server]` and `DUNLIN_SERVER_...`.
    pub server: Server,
}

/// Of clients.
#[derive(Debug, Default)]
pub struct Client {
    /// Use this device or fail.
    pub device: Option<String>,
    /// Composition of transport, channel, sharing and admission.
    pub preset: Option<Preset>,
    /// Longest time for a call.
    pub deadline: Option<Duration>,
    /// Longest time to connect.
    pub connect_timeout: Option<Duration>,
    /// Most lanes of a connection handle.
    pub lanes: Option<usize>,
    /// File of the secret.
    pub secret_file: Option<PathBuf>,
    /// Certificates: those the client trusts, and its own.
    pub tls: Files,
    /// The name that a server's certificate must have, if it is not the host of the address.
    pub tls_name: Option<String>,
    /// The name under which figures are reported to the server.
    pub reports_figures: Option<String>,
    /// Limits of the channel.
    pub channel: Channel,
}

/// Of servers.
#[derive(Debug, Default)]
pub struct Server {
    /// Address to listen on.
    pub listen: Option<Address>,
    /// Serve over this device only.
    pub device: Option<String>,
    /// Polling threads.
    pub pollers: Option<usize>,
    /// Threads for handlers that take long.
    pub workers: Option<usize>,
    /// First core that polling threads are pinned to.
    pub pin_pollers: Option<usize>,
    /// Connections at a time.
    pub max_connections: Option<usize>,
    /// Queue pairs that may send at a time, of clients that count credits.
    pub max_active_queue_pairs: Option<usize>,
    /// When clients of the preset `auto` are asked for datagrams.
    pub datagrams: Option<Datagrams>,
    /// Time limit for a client to connect.
    pub handshake_timeout: Option<Duration>,
    /// Clients may see the calls of all others.
    pub allows_capture: Option<bool>,
    /// File of the secret.
    pub secret_file: Option<PathBuf>,
    /// Certificates: the server's own, and of which authority clients need one.
    pub tls: Files,
    /// Clients need none.
    pub tls_optional: Option<bool>,
    /// What clients may do: a file of rules.
    pub rights: Option<PathBuf>,
    /// Where Prometheus is answered.
    pub metrics: Option<SocketAddr>,
    /// Limits of the channel.
    pub channel: Channel,
}

/// Limits of a channel, of either side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Channel {
    /// Bytes of the ring that the peer writes into.
    pub ring_bytes: Option<usize>,
    /// Payload bytes that travel inside the ring.
    pub eager_bytes: Option<usize>,
    /// Longest request or response.
    pub max_message_bytes: Option<usize>,
    /// Calls outstanding on a connection.
    pub max_outstanding: Option<usize>,
    /// How threads wait.
    pub wait: Option<WaitMode>,
}

impl Channel {
    fn read(section: &mut Section) -> Result<Self, Failure> {
        Ok(Self {
            ring_bytes: section.get("ring_bytes", bytes)?,
            eager_bytes: section.get("eager_bytes", bytes)?,
            max_message_bytes: section.get("max_message_bytes", bytes)?,
            max_outstanding: section.get("max_outstanding", number)?,
            wait: section.get("wait", wait)?,
        })
    }

    /// The channel's defaults with what is set here.
    pub fn config(self) -> ChannelConfig {
        let default = ChannelConfig::default();
        let longest = self.max_message_bytes.unwrap_or(default.max_message_bytes);
        ChannelConfig {
            ring_bytes: self.ring_bytes.unwrap_or(default.ring_bytes),
            // No longer than the longest message, which would be refused.
            eager_bytes: self.eager_bytes.unwrap_or(default.eager_bytes.min(longest)),
            max_message_bytes: longest,
            max_outstanding: self.max_outstanding.unwrap_or(default.max_outstanding),
            wait: self.wait.unwrap_or(default.wait),
            ..default
        }
    }
}

impl Client {
    fn read(section: &mut Section) -> Result<Self, Failure> {
        Ok(Self {
            device: section.get("device", parse_device)?,
            preset: section.get("preset", str::parse)?,
            deadline: section.get("deadline", parse_seconds)?,
            connect_timeout: section.get("connect_timeout", parse_seconds)?,
            lanes: section.get("lanes", number)?,
            secret_file: section.get("secret_file", path)?,
            tls: files(section)?,
            tls_name: section.get("tls_name", str::parse)?,
            reports_figures: section.get("reports_figures", str::parse)?,
            channel: Channel::read(section)?,
        })
    }
}

impl Server {
    fn read(section: &mut Section) -> Result<Self, Failure> {
        Ok(Self {
            listen: section.get("listen", str::parse)?,
            device: section.get("device", parse_device)?,
            pollers: section.get("pollers", number)?,
            workers: section.get("workers", number)?,
            pin_pollers: section.get("pin_pollers", number)?,
            max_connections: section.get("max_connections", number)?,
            max_active_queue_pairs: section.get("max_active_queue_pairs", number)?,
            datagrams: section.get("datagrams", str::parse)?,
            handshake_timeout: section.get("handshake_timeout", parse_seconds)?,
            allows_capture: section.yes_or_no("allows_capture")?,
            secret_file: section.get("secret_file", path)?,
            tls: files(section)?,
            tls_optional: section.yes_or_no("tls_optional")?,
            rights: section.get("rights", path)?,
            metrics: section.get("metrics", str::parse)?,
            channel: Channel::read(section)?,
        })
    }
}

impl Settings {
    /// The settings of this file and these variables.
    ///
    /// # Errors
    /// When the file cannot be read, or a key or value of either makes no sense: exit code 2.
    pub fn read(
        file: Option<&Path>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Failure> {
        let mut sections = section::of_file(file)?;
        sections.add_variables(variables)?;
        let [mut client, mut server] = sections.both;
        let settings = Self {
            client: Client::read(&mut client)?,
            server: Server::read(&mut server)?,
        };
        client.finish()?;
        server.finish()?;
        Ok(settings)
    }
}

/// Reads the file that `--config` names, else the one of `DUNLIN_CONFIG`, and the environment; once in a process.
/// Processes that this one starts read the same.
///
/// # Errors
/// As for [`Settings::read`].
pub fn load(config: Option<&Path>) -> Result<(), Failure> {
    let file = match config {
        Some(file) => {
            std::env::set_var(VARIABLE, file);
            Some(file.to_owned())
        }
        None => std::env::var_os(VARIABLE).map(PathBuf::from),
    };
    let settings = Settings::read(file.as_deref(), std::env::vars_os())?;
    // If another thread was first, it has read the same.
    let _ = SETTINGS.set(settings);
    Ok(())
}

/// The loaded settings; before loading, nothing is set.
pub fn get() -> &'static Settings {
    static NONE: OnceLock<Settings> = OnceLock::new();
    SETTINGS
        .get()
        .unwrap_or_else(|| NONE.get_or_init(Settings::default))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected an integer".to_owned())
}

fn bytes(text: &str) -> Result<usize, String> {
    parse_bytes(0..=u32::MAX)(text).map(|bytes| bytes as usize)
}

fn files(section: &mut Section) -> Result<Files, Failure> {
    Ok(Files {
        ca: section.get("tls_ca", path)?,
        cert: section.get("tls_cert", path)?,
        key: section.get("tls_key", path)?,
    })
}

fn path(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("expected a file name"),
        file => Ok(file.into()),
    }
}

/// `spin`, or for how many seconds a thread polls before it sleeps.
fn wait(text: &str) -> Result<WaitMode, String> {
    if text == "spin" {
        return Ok(WaitMode::Spin);
    }
    match parse_seconds(text) {
        Ok(spin) => Ok(WaitMode::Doze { spin }),
        Err(_) => {
            Err("expected `spin`, or the seconds of polling before sleep, such as 0.00005".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, variables: &[(&str, &str)]) -> Result<Settings, Failure> {
        let name = format!("dunlin-settings-{}-{:p}", std::process::id(), text);
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let read = Settings::read(Some(&file), variables);
        std::fs::remove_file(&file).unwrap();
        read
    }

    #[test]
    fn a_variable_goes_before_the_file() {
        let text = "[client]\ndeadline = 2.5\nmax_message_bytes = '1MiB'\n[server]\npollers = 2\nwait = 'spin'\n";
        let settings = with(text, &[("DUNLIN_CLIENT_DEADLINE", "4")]).unwrap();
        let client = settings.client;
        assert_eq!(client.deadline, Some(Duration::from_secs(4)));
        assert_eq!(client.channel.config().max_message_bytes, 1 << 20);
        assert_eq!(settings.server.pollers, Some(2));
        assert_eq!(settings.server.channel.config().wait, WaitMode::Spin);
        assert_eq!(settings.server.workers, None);
        let short = with("[client]\nmax_message_bytes = 1024\n", &[]).unwrap();
        assert_eq!(short.client.channel.config().eager_bytes, 1024);
    }

    #[test]
    fn yes_is_a_boolean_or_a_word() {
        for (value, expected) in [
            ("true", true),
            ("false", false),
            ("'true'", true),
            ("'yes'", true),
            ("'no'", false),
        ] {
            let text = format!("[server]\nallows_capture = {value}\ntls_optional = {value}\n");
            let server = with(&text, &[]).unwrap().server;
            assert_eq!(server.allows_capture, Some(expected), "{value}");
            assert_eq!(server.tls_optional, Some(expected), "{value}");
        }
        let text = "[server]\nallows_capture = true\n";
        for (word, expected) in [("no", false), ("false", false), ("yes", true)] {
            let server = with(text, &[("DUNLIN_SERVER_ALLOWS_CAPTURE", word)]);
            assert_eq!(server.unwrap().server.allows_capture, Some(expected));
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, variables, why) in [
            ("[client]\ndeadlin = 2\n", &[][..], "[client] deadlin"),
            ("[clients]\n", &[], "[clients]"),
            ("deadline = 2\n", &[], "deadline"),
            ("[server]\npollers = [1]\n", &[], "pollers"),
            ("[server]\npollers = 'many'\n", &[], "expected an integer"),
            (
                "[client]\npreset = 'flick'\n",
                &[],
                "unknown preset 'flick'",
            ),
            ("[server]\npollers = true\n", &[], "a string or a number"),
            ("[client]\ntls_name = true\n", &[], "[client] tls_name"),
            ("[client]\nallows_capture = true\n", &[], "unknown setting"),
            ("[server]\nallows_capture = 1\n", &[], "`true` or `false`"),
            ("[client\n", &[], "dunlin-settings"),
            ("", &[("DUNLIN_SERVER_POLERS", "2")], "DUNLIN_SERVER_POLERS"),
            (
                "",
                &[("DUNLIN_CLIENT_DEADLINE", "soon")],
                "DUNLIN_CLIENT_DEADLINE",
            ),
        ] {
            let failure = with(text, variables).unwrap_err();
            assert!(failure.message().contains(why), "{}", failure.message());
        }
        let absent = Settings::read(Some(Path::new("/no/such/file")), std::iter::empty());
        assert!(absent.unwrap_err().message().contains("/no/such/file"));
    }
}
