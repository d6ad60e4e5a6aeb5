//! How a client is made: its settings.

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
use crate::fabric::{Fabric, Fabrics};
use crate::identity::Identity;
use crate::preset::Preset;

/// Settings of a client, each with its default.
#[derive(Clone, Debug)]
#[must_use = "a client begins with connect()"]
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

/// Most lanes of a connection handle.
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
    /// Uses this device or fails.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// The composition to use.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// The group of this client's connections at servers of the preset `scalerpc` that change turns together
    /// ([`crate::ServerBuilder::pace`]), from zero: who calls several of them at the same time wants the same at each.
    /// [`crate::Peers`] sees to that by itself; without either the server chooses.
    pub fn group(mut self, group: usize) -> Self {
        self.group = Some(group);
        self
    }

    /// How long a call may take, with the making of its connection if it was lost. 10 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long making a connection may take. 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What both sides prove to know.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Runs the handshake in TLS 1.3: the server must have a certificate for the host of its address, of an authority
    /// that is trusted here, and is shown this client's, if it has one. What comes after the handshake is not inside
    /// TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Most lanes (queue pairs) of the connection handle, for presets whose threads share them: from 1 to 256. As many
    /// as there are cores by default, because more threads do not send at once.
    pub fn lanes(mut self, most: usize) -> Self {
        self.lanes = most;
        self
    }

    /// Servers that one thread of the caller's calls at the same time, each by a client with this setting: 1 by
    /// default. The preset `auto` chooses by it, others ignore it. [`super::Peers`] of more clients count for more.
    pub fn servers(mut self, number: usize) -> Self {
        self.servers = number;
        self
    }

    /// The client READs or WRITEs memory that its server has granted ([`super::Client::attach`]), which datagrams
    /// cannot: the preset `auto` then stays on reliable connections however many servers a thread calls, others ignore
    /// it. Off by default.
    pub fn one_sided(mut self, wanted: bool) -> Self {
        self.one_sided = wanted;
        self
    }

    /// Leaves taking answers to a thread of the connection handle that polls all its lanes always, as in FLOCK (§4.3),
    /// for presets whose threads share lanes; others ignore it. A thread that waits then looks into its own mailbox
    /// alone. Threads whose answers come together send together, so more requests share a message; but each answer
    /// crosses from the dispatcher's core, and the dispatcher needs one, also while nothing is called. Off by default:
    /// threads that wait look for themselves, and an idle client sleeps.
    pub fn dispatched(mut self, always: bool) -> Self {
        self.dispatched = always;
        self
    }

    /// Tells the server each so often (at least 10 ms) what the client does, under a name of at most 64 bytes: which
    /// thread is on which lane, migrations, coalescing degree. Whoever watches the server sees it (`dunlin top`). A
    /// thread of its own does it, with a lane or port like any other. Off by default.
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

    /// How threads wait for answers; the default polls for 50 µs and then sleeps.
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

    /// The way to the server at an address.
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

    /// A client of whoever opens connections for it, over devices that are open; the server of this number has it. It
    /// has no connection before its first call.
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

    /// How long making a connection may take.
    pub(crate) fn connecting(&self) -> Duration {
        self.connect_timeout
    }

    /// Its preset where that can be used on such a device: those over Flor are for Flor's, and the others are not.
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

    /// The devices that lead to an address, and how to reach it by one of them.
    pub(super) fn reach(&self, address: &Address) -> Result<(Way, Fabrics), ConnectError> {
        let towards = devices::towards(address, self.connect_timeout)?;
        let kinds = Kinds::of(self.preset);
        let device = self.device.as_ref().map(|device| kinds.name(device));
        let fabrics = devices::fabrics(device.as_deref(), towards, kinds);
        let fabrics = fabrics.map_err(|available| ConnectError::NoDevice {
            asked: device.clone().unwrap_or_default(),
            available,
        })?;
        let capabilities = devices::capabilities(&fabrics)
            .map_err(|error| ConnectError::Setting(format!("this host's identity: {error}")))?;
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
