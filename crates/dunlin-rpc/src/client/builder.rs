//! How a client is made, and how its lanes are.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dunlin_bootstrap::{dial, dial_until, Address, DialConfig, Dialed, OpenRequest, Secret};
use dunlin_verbs::{thread, Device, EndpointAddress, VerbsError};

use super::report::Reporting;
use super::spares::Spares;
use super::{Client, ConnectFuture, ConnectionInfo};
use crate::admission::{
    FEW_PARAMETER, GROUP_PARAMETER, GROUP_WISH_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER,
};
use crate::call::lane::Lane;
use crate::call::timeout::{Told, DEFAULT_PARAMETER};
use crate::channel::Parameters;
use crate::config::{ChannelConfig, WaitMode};
use crate::devices::{self, Kinds};
use crate::error::ConnectError;
use crate::fabric::{DeviceFabric, Fabric, Fabrics, LaneMaker, Owner, SessionSetup};
use crate::preset::{ChannelKind, Preset, Situation, AUTO_DEEP_CALLS, AUTO_OWN_LANES};
use crate::server::identity::{self, SERVER_PARAMETER};
use crate::server::LocalAcceptor;
use crate::sharing::dispatcher;
use crate::sharing::handle::Handle;
use crate::sharing::lane::SharedLane;
use crate::sharing::Sharing;

/// Settings of a client, each with its default.
#[derive(Clone, Debug)]
#[must_use = "a client begins with connect()"]
pub struct ClientBuilder {
    channel: ChannelConfig,
    device: Option<String>,
    preset: Preset,
    secret: Option<Secret>,
    deadline: Duration,
    connect_timeout: Duration,
    lanes: usize,
    servers: usize,
    group: Option<usize>,
    dispatched: bool,
    reporting: Option<Reporting>,
}

/// Why a device was chosen that was given.
const GIVEN: &str = "given with the server";
/// Most lanes of a connection handle.
const MOST_LANES: usize = 256;

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            channel: ChannelConfig::default(),
            device: None,
            preset: Preset::default(),
            secret: None,
            deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            lanes: std::thread::available_parallelism().map_or(1, usize::from),
            servers: 1,
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
        }))
    }

    /// Connects over a device that the caller has opened, to a server of this process: what a handshake would bring
    /// across is handed over at the server's acceptor. This is how clients run on simulated hosts. There, each
    /// simulated thread has a [`crate::Pipeline`] of its own, made before; the lanes of threads and futures are those
    /// of the real thread that drives the cluster.
    ///
    /// # Errors
    /// When a setting is out of range, the server refuses, or the device fails.
    pub fn connect_on<D: Device>(
        self,
        device: D,
        acceptor: &LocalAcceptor,
    ) -> Result<Client, ConnectError> {
        self.validate()?;
        let given = move |preset: Preset| -> Result<Arc<dyn Fabric>, VerbsError> {
            match preset.is_over_flor() && !devices::is_flor(&device.attributes().name) {
                true => Ok(Arc::new(DeviceFabric(devices::flor_over(&device)?))),
                false => Ok(Arc::new(DeviceFabric(device.clone()))),
            }
        };
        let target = Target::Local(acceptor.clone(), Box::new(given));
        let origin = Origin {
            builder: self,
            target,
        };
        Client::start(Recipe::new(Arc::new(origin))?, true)
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
    fn reach(&self, address: &Address) -> Result<(Way, Fabrics), ConnectError> {
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
            capabilities,
            device,
            timeout: self.connect_timeout,
        };
        let address = address.clone();
        Ok((Way::Port { address, dial }, fabrics))
    }
}

/// What a client was made of: enough to make it again with another preset.
#[derive(Debug)]
struct Origin {
    builder: ClientBuilder,
    target: Target,
}

/// Where its server is.
enum Target {
    /// At a port.
    Port(Address),
    /// In this process, over a device that the caller has opened: what it is for a preset.
    #[allow(clippy::type_complexity)]
    Local(
        LocalAcceptor,
        Box<dyn Fn(Preset) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync>,
    ),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(address) => f.debug_tuple("Port").field(address).finish(),
            Self::Local(..) => f.debug_tuple("Local").finish_non_exhaustive(),
        }
    }
}

/// A server that was reached, over which device, and why it is that one. Given at a local acceptor nothing was dialled.
struct Reached {
    dialed: Option<Dialed>,
    fabric: Arc<dyn Fabric>,
    device: String,
    why: String,
}

/// How the server is found.
#[derive(Debug)]
enum Way {
    /// At its port.
    Port { address: Address, dial: DialConfig },
    /// In this process.
    Local(LocalAcceptor),
}

/// Lanes are in use, or those that are one thread's alone are given up for shared ones, or all are given up because
/// another recipe has taken this one's place.
const IN_USE: u8 = 0;
const TO_SHARE: u8 = 1;
const REPLACED: u8 = 2;

/// All that it takes to make one more lane.
#[derive(Debug)]
pub(super) struct Recipe {
    origin: Arc<Origin>,
    way: Way,
    fabrics: Fabrics,
    /// The one that the first lane went over.
    first: OnceLock<Arc<dyn Fabric>>,
    pub(super) channel: ChannelConfig,
    preset: Preset,
    pub(super) deadline: Duration,
    /// What servers hear of it when a connection is made.
    pub(super) told: Told,
    lanes: usize,
    servers: usize,
    group: Option<usize>,
    dispatched: bool,
    pub(super) reporting: Option<Reporting>,
    /// Held by each lane that is one thread's own while another preset, `auto`, could have it share.
    own: Arc<()>,
    /// The same of pipelines that keep many calls out.
    deep: Arc<()>,
    /// Whether lanes are given up: one of the three above.
    renewal: AtomicU8,
    /// Lanes that nobody has yet.
    pub(super) spares: Spares,
    /// Held by each pipeline.
    pipelines: Arc<()>,
    /// The connection handle, for presets that share lanes.
    shared: Mutex<Option<Arc<Shared>>>,
    /// A packet was lost, and that ends the client.
    fatal: Arc<AtomicBool>,
    /// Which server the last lane was made to; zero before the first.
    server: AtomicU64,
}

/// A connection handle and what makes its lanes.
struct Shared {
    handle: Arc<Handle>,
    maker: Arc<dyn LaneMaker>,
    /// What the first lane uses.
    info: OnceLock<ConnectionInfo>,
    /// Which client this is to the server's scheduler.
    sender: u64,
    /// Its thread begins with its first port.
    has_dispatcher: Mutex<bool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

impl Recipe {
    fn new(origin: Arc<Origin>) -> Result<Self, ConnectError> {
        let preset = origin.builder.preset;
        Self::with_preset(origin, preset)
    }

    /// As this one, with another preset; nothing is connected yet.
    pub(super) fn changed(&self, preset: Preset) -> Result<Self, ConnectError> {
        Self::with_preset(Arc::clone(&self.origin), preset)
    }

    fn with_preset(origin: Arc<Origin>, preset: Preset) -> Result<Self, ConnectError> {
        let builder = ClientBuilder {
            preset,
            ..origin.builder.clone()
        };
        let (way, fabrics) = match &origin.target {
            Target::Port(address) => builder.reach(address)?,
            Target::Local(acceptor, given) => {
                let fabric = given(preset).map_err(|source| ConnectError::Device {
                    device: preset.name().to_owned(),
                    source,
                })?;
                (Way::Local(acceptor.clone()), vec![fabric])
            }
        };
        Ok(Self {
            origin,
            way,
            fabrics,
            first: OnceLock::new(),
            channel: builder.channel,
            preset,
            deadline: builder.deadline,
            told: Told::new(builder.deadline),
            lanes: builder.lanes,
            servers: builder.servers,
            group: builder.group,
            dispatched: builder.dispatched,
            reporting: builder.reporting,
            own: Arc::new(()),
            deep: Arc::new(()),
            renewal: AtomicU8::new(IN_USE),
            spares: Spares::default(),
            pipelines: Arc::new(()),
            shared: Mutex::new(None),
            fatal: Arc::default(),
            server: AtomicU64::new(0),
        })
    }

    /// Whether a lane that a thread has is given up, as far as the recipe goes.
    #[inline]
    pub(super) fn gives_up(&self, lane: &dyn Lane) -> bool {
        match self.renewal.load(Ordering::Relaxed) {
            IN_USE => false,
            TO_SHARE => !lane.is_shared() && lane.outstanding() == 0,
            _ => true,
        }
    }

    /// Whether a pipeline leaves its lane: another recipe has taken this one's place, or the lanes of those that
    /// `may_share` are given up.
    #[inline]
    pub(super) fn is_left(&self, may_share: bool) -> bool {
        match self.renewal.load(Ordering::Relaxed) {
            IN_USE => false,
            TO_SHARE => may_share,
            _ => true,
        }
    }

    /// Whether a pipeline of so many calls shares when all do.
    pub(super) fn may_share(&self, lane: &dyn Lane, window: usize) -> bool {
        self.preset == Preset::Auto && window < AUTO_DEEP_CALLS && !lane.is_shared()
    }

    /// Another has taken its place: lanes that were made by it go as soon as nothing is out on them.
    pub(super) fn replace(&self) {
        self.renewal.store(REPLACED, Ordering::Relaxed);
        self.spares.clear();
        if let Some(handle) = self.handle() {
            handle.orphan();
        }
    }

    /// Makes lanes before they are needed: one at least, which proves the way, and `most` where lanes can be handed to
    /// any thread.
    pub(super) fn open_ahead(&self, most: usize) -> Result<ConnectionInfo, ConnectError> {
        let (lane, info) = self.open(Owner::Alone, 1, None)?;
        let connected = !matches!(self.preset.channel(), ChannelKind::Datagram(_));
        let alike = connected && !lane.is_shared();
        self.spares.keep_ahead(lane);
        for _ in 1..if alike { most } else { 1 } {
            self.spares.keep_ahead(self.open(Owner::Alone, 1, None)?.0);
        }
        Ok(info)
    }

    /// What a pipeline holds, and how many there are.
    pub(super) fn pipeline(&self) -> Arc<()> {
        Arc::clone(&self.pipelines)
    }

    pub(super) fn pipelines(&self) -> usize {
        Arc::strong_count(&self.pipelines) - 1
    }

    pub(super) fn preset(&self) -> Preset {
        self.preset
    }

    /// Makes a lane, or a port at the connection handle, for who keeps at most `window` calls out, until `until` or for
    /// as long as making a connection may take.
    pub(super) fn open(
        &self,
        owner: Owner,
        window: usize,
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        self.open_among(1, (owner, window), &mut None, until)
    }

    /// As [`Recipe::open`], for a thread that has lanes to so many servers. `group`: the thread's at those that change
    /// turns together, which the first of them tells.
    pub(super) fn open_among(
        &self,
        servers: usize,
        (owner, window): (Owner, usize),
        group: &mut Option<u64>,
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        self.refuse_own_server()?;
        let (fabric, reached) = match self.first.get() {
            Some(fabric) => (fabric, None),
            None => {
                let reached = self.reach(until)?;
                let fabric = self.first.get_or_init(|| Arc::clone(&reached.fabric));
                (fabric, Some(reached))
            }
        };
        // Counted from now on, not from when it is made, which takes a while: of many threads that come at once each
        // would find none.
        let mut token = Arc::clone(&self.deep);
        let mut situation = Situation {
            servers: servers.max(self.servers),
            own: 0,
            // Beside the recipe's and this one.
            deep: Arc::strong_count(&token) - 2,
            window,
        };
        if !situation.is_deep() {
            token = Arc::clone(&self.own);
            situation.own = match self.renewal.load(Ordering::Relaxed) {
                IN_USE => Arc::strong_count(&token) - 2,
                _ => AUTO_OWN_LANES,
            };
        }
        let preset = self.preset.on(fabric.attributes(), situation);
        if let Some(mut sharing) = preset.sharing(self.lanes) {
            drop(token);
            sharing.dispatched = self.dispatched;
            let opened = self.open_port(fabric, reached, (preset, sharing), until)?;
            if situation.own >= AUTO_OWN_LANES {
                let (from, to) = (IN_USE, TO_SHARE);
                let order = Ordering::Relaxed;
                let _ = self.renewal.compare_exchange(from, to, order, order);
            }
            return Ok(opened);
        }
        let reached = reached.map_or_else(|| self.reach(until), Ok)?;
        let (mut lane, mut info) = self.negotiate(
            reached,
            preset,
            |fabric| {
                let opening = match preset.channel() {
                    ChannelKind::Ring => fabric.open_lane(&self.channel)?,
                    ChannelKind::Pool(_) => fabric.open_pool(&self.channel)?,
                    ChannelKind::Sent => fabric.open_sent(&self.channel)?,
                    ChannelKind::Datagram(protocol) => fabric.open_session(SessionSetup {
                        config: self.channel.clone(),
                        protocol,
                        owner,
                        fatal: Arc::clone(&self.fatal),
                    })?,
                };
                let (address, mut parameters) = (opening.address(), opening.parameters());
                let chosen = self.group.map(|group| (GROUP_PARAMETER, group as u64));
                let told = group.map(|group| (GROUP_WISH_PARAMETER, group));
                if let Some((name, group)) = chosen.or(told) {
                    parameters.insert(name.to_string(), group);
                }
                Ok(((opening, group), (address, parameters)))
            },
            |(opening, group), peer, parameters| {
                *group = group.or(parameters.get(GROUP_PARAMETER).copied());
                opening.connect(peer, parameters)
            },
        )?;
        if preset == Preset::Plain {
            // A lane that `auto` leaves to one thread: that is a part of what `auto` is.
            info.preset = self.preset;
            lane.hold(token);
        }
        Ok((lane, info))
    }

    /// For a thread that polls for the very server: it would wait for itself.
    #[inline]
    pub(super) fn refuse_own_server(&self) -> Result<(), ConnectError> {
        match identity::is_polled_here(self.server()) {
            true => Err(ConnectError::OwnServer),
            false => Ok(()),
        }
    }

    /// Starts a thread of the client's, where the device's threads are.
    pub(super) fn spawn(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        match self.first.get().or(self.fabrics.first()) {
            Some(fabric) => fabric.spawn(name, Box::new(run)),
            None => Err(std::io::Error::other("the client has no device")),
        }
    }

    /// Which server the last lane was made to.
    pub(super) fn server(&self) -> u64 {
        self.server.load(Ordering::Relaxed)
    }

    /// Whether the connecting thread will not be the one that calls.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.way, Way::Local(_))
    }

    /// The connection handle, if this preset has one and it is there.
    pub(super) fn handle(&self) -> Option<Arc<Handle>> {
        let shared = thread::lock(&self.shared);
        shared.as_ref().map(|shared| Arc::clone(&shared.handle))
    }

    /// The connection handle, which is there before its first lane.
    fn shared(
        &self,
        fabric: &Arc<dyn Fabric>,
        sharing: Sharing,
    ) -> Result<Arc<Shared>, ConnectError> {
        let mut place = thread::lock(&self.shared);
        if let Some(shared) = &*place {
            return Ok(Arc::clone(shared));
        }
        let failed = |source| ConnectError::Device {
            device: fabric.attributes().name.clone(),
            source,
        };
        let maker = fabric.lane_maker().map_err(failed)?;
        let (sender, seed) = (maker.random(), maker.random());
        let (sender, seed) = (sender.map_err(failed)?, seed.map_err(failed)?);
        let handle = Handle::new(sharing, self.channel.max_outstanding, maker.cores(), seed);
        let _ = handle.event.set(maker.event());
        let shared = Arc::new(Shared {
            handle,
            maker,
            info: OnceLock::new(),
            sender,
            has_dispatcher: Mutex::new(false),
        });
        Ok(Arc::clone(place.insert(shared)))
    }

    fn open_port(
        &self,
        fabric: &Arc<dyn Fabric>,
        reached: Option<Reached>,
        (preset, sharing): (Preset, Sharing),
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        let shared = self.shared(fabric, sharing)?;
        let port = shared.handle.attach(until, |number| {
            let reached = reached.map_or_else(|| self.reach(until), Ok)?;
            let (lane, info) = self.open_shared(reached, (preset, sharing), number, &shared)?;
            let _ = shared.info.set(info);
            Ok(lane)
        })?;
        let mut has_dispatcher = thread::lock(&shared.has_dispatcher);
        if !*has_dispatcher {
            dispatcher::start(&shared.handle, shared.maker.as_ref(), self.channel.wait)
                .map_err(ConnectError::Thread)?;
            *has_dispatcher = true;
        }
        drop(has_dispatcher);
        // The first lane has told it, and without one there is no port.
        let info = shared.info.get().cloned();
        let info = info.ok_or_else(|| ConnectError::Setting("no lane was made".into()))?;
        Ok((Box::new(port), info))
    }

    fn open_shared(
        &self,
        reached: Reached,
        (preset, sharing): (Preset, Sharing),
        number: usize,
        shared: &Shared,
    ) -> Result<(Arc<dyn SharedLane>, ConnectionInfo), ConnectError> {
        self.negotiate(
            reached,
            preset,
            |_| {
                let config = self.channel.shared_by_many(sharing.few);
                let opening = shared.maker.open(&config)?;
                let mut parameters = opening.parameters();
                if sharing.admitted {
                    parameters.insert(SENDER_PARAMETER.to_string(), shared.sender);
                    parameters.insert(LANE_PARAMETER.to_string(), number as u64);
                    parameters.insert(FEW_PARAMETER.to_string(), u64::from(sharing.few));
                }
                let told = (opening.address(), parameters);
                Ok((opening, told))
            },
            |opening, peer, parameters| opening.connect(peer, parameters, sharing.discipline),
        )
    }

    /// Finds the server, and the device that leads to it. Whoever waits for it does so until `until`, which is the end
    /// of the handshake.
    fn reach(&self, until: Option<Instant>) -> Result<Reached, ConnectError> {
        let (dialed, device, why) = match &self.way {
            Way::Port { address, dial: how } => {
                let dialed = match until {
                    None => dial(address, how)?,
                    Some(until) => dial_until(address, how, until)?,
                };
                let device = dialed.device().to_string();
                let why = match devices::chosen(&device) {
                    None => dialed.why().to_string(),
                    Some(chosen) => format!("{}; {chosen}", dialed.why()),
                };
                (Some(dialed), device, why)
            }
            Way::Local(_) => {
                let device = self.fabrics.first().map(|f| f.attributes().name.clone());
                (None, device.unwrap_or_default(), GIVEN.to_string())
            }
        };
        let fabric = self
            .fabrics
            .iter()
            .find(|fabric| fabric.attributes().name == device)
            .map(Arc::clone)
            .ok_or_else(|| ConnectError::NoDevice {
                asked: device.clone(),
                available: String::new(),
            })?;
        Ok(Reached {
            dialed,
            fabric,
            device,
            why,
        })
    }

    /// Makes one side, tells the server, joins.
    fn negotiate<O, T>(
        &self,
        reached: Reached,
        preset: Preset,
        begin: impl FnOnce(&Arc<dyn Fabric>) -> Result<(O, (EndpointAddress, Parameters)), VerbsError>,
        finish: impl FnOnce(O, &EndpointAddress, &Parameters) -> Result<T, VerbsError>,
    ) -> Result<(T, ConnectionInfo), ConnectError> {
        let Reached {
            dialed,
            fabric,
            device,
            why,
        } = reached;
        let failed = |source| ConnectError::Device {
            device: device.clone(),
            source,
        };
        let (opening, (endpoint, mut parameters)) = begin(&fabric).map_err(failed)?;
        let micros = u64::try_from(self.deadline.as_micros()).unwrap_or(u64::MAX);
        parameters.insert(DEFAULT_PARAMETER.to_string(), micros);
        let request = OpenRequest {
            device: device.clone(),
            preset: preset.name().to_string(),
            endpoint,
            parameters,
        };
        let reply = match (dialed, &self.way) {
            (None, Way::Local(acceptor)) => {
                let device = acceptor.device(devices::is_flor(&device)).to_string();
                let request = OpenRequest { device, ..request };
                acceptor.open(&request).map_err(ConnectError::Refused)?
            }
            (Some(dialed), _) => dialed.open(request)?,
            (None, Way::Port { .. }) => unreachable!("a port was dialed"),
        };
        if let Some(&server) = reply.parameters.get(SERVER_PARAMETER) {
            self.server.store(server, Ordering::Relaxed);
        }
        self.refuse_own_server()?;
        let lane = finish(opening, &reply.endpoint, &reply.parameters).map_err(failed)?;
        let pages = fabric.attributes().page_kind.to_string();
        Ok((
            lane,
            ConnectionInfo {
                device,
                why,
                pages,
                preset,
            },
        ))
    }
}
