//! The settings of a client.

use std::sync::Arc;
use std::time::Duration;

use dunlin_bootstrap::{Address, ClientTls, DialConfig, Secret};
use dunlin_verbs::VerbsError;

use super::recipe::{Opener, Origin, Recipe, Target, Way};
use super::report::Reporting;
use super::{Client, ConnectFuture, ConnectionInfo};
use crate::config::{ChannelConfig, WaitMode};
use crate::devices::{self, Kinds};
use crate::error::ConnectError;
use crate::fabric::{self, Fabric, Fabrics};
use crate::identity::Identity;
use crate::preset::Preset;

/// Settings of a client, each with a default.
#[derive(Clone, Debug)]
#[must_use = "a client does nothing until connect() is called"]
pub struct ClientBuilder {
    pub(super) channel: ChannelConfig,
    pub(super) device: Option<String>,
    pub(super) preset: Preset,
    pub(super) secret: Option<Secret>,
    pub(super) tls: Option<ClientTls>,
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) lanes: usize,
    pub(super) servers: usize,
    pub(super) one_sided: bool,
    pub(super) group: Option<usize>,
    pub(super) dispatched: bool,
    pub(super) reporting: Option<Reporting>,
}

/// Maximum number of lanes of a connection handle.
const MOST_LANES: usize = 256;

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            channel: ChannelConfig::default(),
            device: None,
            preset: Preset::default(),
            secret: None,
            tls: None,
            deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            lanes: std::thread::available_parallelism().map_or(1, usize::from),
            servers: 1,
            one_sided: false,
            group: None,
            dispatched: false,
            reporting: None,
        }
    }
}

impl ClientBuilder {
    /// Uses this device, and fails if that is not possible.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// The preset to use.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// The group of this client's connections, from zero, at servers of the preset `scalerpc` that switch groups
    /// together ([`crate::ServerBuilder::pace`]): a thread that calls several of them at the same time wants the same
    /// group at each. [`crate::Peers`] sets it by itself; otherwise the server chooses.
    pub fn group(mut self, group: usize) -> Self {
        self.group = Some(group);
        self
    }

    /// The deadline of a call, including the time to make a new connection if the old one was lost. 10 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The time limit for making a connection. 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The shared secret; both sides prove that they know it.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Runs the handshake in TLS 1.3: the server must have a certificate for the host of its address from a trusted
    /// authority; this client presents its own, if it has one. Only the handshake is inside TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Maximum number of lanes (queue pairs) of the connection handle, from 1 to 256, for presets whose threads share
    /// them. The number of cores by default, because no more threads send at once.
    pub fn lanes(mut self, most: usize) -> Self {
        self.lanes = most;
        self
    }

    /// Number of servers that one thread of the application calls at the same time, each through a client with this
    /// setting: 1 by default. The preset `auto` chooses by it, others ignore it. The number of clients in
    /// [`super::Peers`] takes precedence if it is larger.
    pub fn servers(mut self, number: usize) -> Self {
        self.servers = number;
        self
    }

    /// The client READs or WRITEs memory that its server has granted ([`super::Client::attach`]), which datagrams do
    /// not support: the preset `auto` then stays on reliable connections however many servers a thread calls; others
    /// ignore it. Off by default.
    pub fn one_sided(mut self, wanted: bool) -> Self {
        self.one_sided = wanted;
        self
    }

    /// Leaves taking responses to a thread of the connection handle that constantly polls all its lanes, as in FLOCK
    /// (§4.3), for presets whose threads share lanes; others ignore it. A waiting thread then only polls its own
    /// mailbox. Threads whose responses arrive together send together, so more requests share a message; but each
    /// response crosses from the dispatcher's core, and the dispatcher occupies a core even when there are no calls.
    /// Off by default: waiting threads poll for themselves, and an idle client sleeps.
    pub fn dispatched(mut self, always: bool) -> Self {
        self.dispatched = always;
        self
    }

    /// Reports the client's state to the server at this interval (at least 10 ms), under a name of at most 64 bytes:
    /// the lane of each thread, migrations, coalescing degree. `dunlin top` shows it for the server. A separate thread
    /// sends the reports, over a lane or port like any other. Off by default.
    pub fn reports_figures(mut self, name: impl Into<String>, every: Duration) -> Self {
        let name = name.into();
        self.reporting = Some(Reporting { name, every });
        self
    }

    /// Limits of each lane.
    pub fn channel(mut self, config: ChannelConfig) -> Self {
        self.channel = config;
        self
    }

    /// How threads wait for responses; the default polls for 50 µs and then sleeps.
    pub fn wait(mut self, wait: WaitMode) -> Self {
        self.channel.wait = wait;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When a setting is out of range, there is no server, no common device, or the handshake fails.
    pub fn connect(self, address: &str) -> Result<Client, ConnectError> {
        Client::start(self.towards(address)?, false)
    }

    /// As [`ClientBuilder::connect`], as a future: a thread of its own makes the connection, and none of an executor
    /// waits for it.
    pub fn connect_async(self, address: &str) -> ConnectFuture {
        ConnectFuture::start(self, address)
    }

    /// Connects on a thread that will not call.
    pub(super) fn connect_apart(self, address: &str) -> Result<Client, ConnectError> {
        Client::start(self.towards(address)?, true)
    }

    /// The recipe of connections to the server at an address.
    fn towards(self, address: &str) -> Result<Recipe, ConnectError> {
        self.validate()?;
        let target = Target::Port(address.parse()?);
        Recipe::new(Arc::new(Origin {
            builder: self,
            target,
            number: Identity::new().number(),
        }))
    }

    /// Connects through `opener`, over the open device that `given` has for a preset.
    pub(crate) fn connect_by(
        self,
        opener: Arc<dyn Opener>,
        given: impl Fn(Preset) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync + 'static,
    ) -> Result<Client, ConnectError> {
        self.validate()?;
        let origin = Origin {
            builder: self,
            target: Target::Given(opener, Box::new(given)),
            number: Identity::new().number(),
        };
        Client::start(Recipe::new(Arc::new(origin))?, true)
    }

    /// A client whose connections are opened by `opener`, over open devices; it belongs to the server with this number.
    /// It has no connection before its first call.
    pub(crate) fn given(
        self,
        opener: Arc<dyn Opener>,
        given: impl Fn(Preset) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync + 'static,
        (server, why): (u64, &str),
    ) -> Result<Client, ConnectError> {
        self.validate()?;
        let origin = Origin {
            builder: self,
            target: Target::Given(opener, Box::new(given)),
            number: 0,
        };
        let recipe = Recipe::new(Arc::new(origin))?.owned_by(server);
        let attributes = recipe
            .ground()
            .map(|(fabric, _)| fabric.attributes().clone());
        let info = attributes.map(|attributes| ConnectionInfo {
            device: attributes.name,
            why: why.to_owned(),
            pages: attributes.page_kind.to_string(),
            preset: recipe.preset(),
        });
        let info = info.ok_or_else(|| ConnectError::Setting("there is no device".to_owned()))?;
        Ok(Client::of(recipe, info))
    }

    /// The time limit for making a connection.
    pub(crate) fn connecting(&self) -> Duration {
        self.connect_timeout
    }

    /// Its preset if it can be used on such a device: presets over Flor need a device of Flor's, other presets one that
    /// is not.
    pub(crate) fn preset_on(&self, is_flor: bool) -> Preset {
        match (is_flor, self.preset.is_over_flor()) {
            (true, false) => Preset::Flor,
            (false, true) => Preset::Auto,
            _ => self.preset,
        }
    }

    fn validate(&self) -> Result<(), ConnectError> {
        self.channel.validate().map_err(ConnectError::Setting)?;
        if self.lanes == 0 || self.lanes > MOST_LANES {
            let words = format!("lanes is {}: it must be from 1 to {MOST_LANES}", self.lanes);
            return Err(ConnectError::Setting(words));
        }
        match &self.reporting {
            Some(reporting) => reporting.validate().map_err(ConnectError::Setting),
            None => Ok(()),
        }
    }

    /// The devices by which an address can be reached, and how to reach it over one of them.
    pub(super) fn reach(&self, address: &Address) -> Result<(Way, Fabrics), ConnectError> {
        let towards = devices::towards(address, self.connect_timeout)?;
        let kinds = Kinds::of(self.preset);
        let device = self.device.as_ref().map(|device| kinds.name(device));
        let fabrics = fabric::fabrics(device.as_deref(), towards, kinds);
        let fabrics = fabrics.map_err(|available| ConnectError::NoDevice {
            asked: device.clone().unwrap_or_default(),
            available,
        })?;
        let capabilities = fabric::capabilities(&fabrics).map_err(|error| {
            ConnectError::Setting(format!("cannot determine this host's identity: {error}"))
        })?;
        let dial = DialConfig {
            secret: self.secret.clone(),
            tls: self.tls.clone(),
            capabilities,
            device,
            timeout: self.connect_timeout,
        };
        let address = address.clone();
        Ok((Way::Port { address, dial }, fabrics))
    }
}
