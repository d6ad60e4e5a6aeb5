//! The recipe for a client's lanes: where its server is, how it is reached, and who owns each lane.
//!
//! A lane is made at a thread's first call, for a pipeline, for all futures, or before it is needed (`spares`). Whether
//! it is a port of the connection handle or belongs to one thread follows from the preset and, with `auto`, from the
//! number of lanes (`preset`). A recipe that has been replaced ([`super::Client::change_preset`]) makes none.

mod datagrams;
mod handshake;
mod renewal;
mod sharing;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dunlin_bootstrap::{Address, DialConfig, OpenReply, OpenRequest, Peer};
use dunlin_verbs::{thread, EndpointAddress, VerbsError};

use super::builder::ClientBuilder;
use super::report::Reporting;
use super::spares::Spares;
use super::thread_future::ThreadFuture;
use super::ConnectionInfo;
use crate::admission::{GROUP_PARAMETER, GROUP_WISH_PARAMETER};
use crate::call::lane::Lane;
use crate::call::timeout::Told;
use crate::config::ChannelConfig;
use crate::error::ConnectError;
use crate::fabric::{Fabric, Fabrics};
use crate::identity;
use crate::lanes::{LaneSetup, Owner};
use crate::preset::{ChannelKind, OwnLanes, Preset, Situation};
use crate::sharing::handle::Handle;
use crate::sharing::maker::LaneMaker;
use handshake::Reached;
pub(super) use renewal::Successor;
use renewal::{Reasons, Renewal};

/// The settings that a client was made with: sufficient to make it again with another preset.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) builder: ClientBuilder,
    pub(super) target: Target,
    /// The number by which the server identifies the client on all its connections; zero if none.
    pub(super) number: u64,
}

/// A new lane, or why there is none.
pub(super) type Opened = Result<Box<dyn Lane>, ConnectError>;

/// Opens connections where nothing is dialled.
pub(crate) trait Opener: Send + Sync + std::fmt::Debug {
    /// Opens one, until `until` at most.
    ///
    /// # Errors
    /// When it is refused, or there is nothing left that could open it.
    fn open(&self, request: OpenRequest, until: Option<Instant>)
        -> Result<OpenReply, ConnectError>;
    /// The address of the other side, if it is known in advance: this side may have a different address for each.
    fn peer(&self) -> Option<EndpointAddress>;
    /// Whether the connecting thread may be another than the calling one: the thread that drives a simulated cluster.
    fn is_local(&self) -> bool;
}

/// The location of a server.
pub(super) enum Target {
    /// At a port.
    Port(Address),
    /// Behind an opener of connections, over an open device, given for each preset.
    #[allow(clippy::type_complexity)]
    Given(
        Arc<dyn Opener>,
        Box<dyn Fn(Preset) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync>,
    ),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(address) => f.debug_tuple("Port").field(address).finish(),
            Self::Given(opener, _) => f.debug_tuple("Given").field(opener).finish_non_exhaustive(),
        }
    }
}

/// How the server is reached.
#[derive(Debug)]
pub(super) enum Way {
    /// At its port.
    Port { address: Address, dial: DialConfig },
    /// Through an opener of connections to it.
    Given(Arc<dyn Opener>),
}

/// Everything needed to make one more lane.
#[derive(Debug)]
pub(super) struct Recipe {
    origin: Arc<Origin>,
    way: Way,
    fabrics: Fabrics,
    /// The device of the first lane, until a handle over another device replaces it.
    first: Mutex<Option<Arc<dyn Fabric>>>,
    pub(super) channel: ChannelConfig,
    preset: Preset,
    pub(super) deadline: Duration,
    /// The default deadline stated to servers when a connection is made.
    pub(super) told: Told,
    lanes: usize,
    servers: usize,
    one_sided: bool,
    group: Option<usize>,
    dispatched: bool,
    pub(super) reporting: Option<Reporting>,
    /// Held by each lane that belongs to one thread although `auto` could make it share.
    own: Arc<()>,
    /// The same for pipelines that keep many calls outstanding.
    deep: Arc<()>,
    renewal: Renewal,
    /// Lanes that are not used by anyone yet.
    pub(super) spares: Spares,
    /// Held by each pipeline.
    pipelines: Arc<()>,
    /// The connection handle, for presets that share lanes.
    shared: Mutex<Option<Arc<Shared>>>,
    /// Set when a packet of the client was lost.
    packet_lost: Arc<AtomicBool>,
    /// The number of the server that the last lane was made to; zero before the first.
    server: AtomicU64,
    /// The identity of that server, as far as the handshake has established it.
    peer: Mutex<Peer>,
}

/// A connection handle and what makes its lanes.
struct Shared {
    handle: Arc<Handle>,
    /// The device of all its lanes: the dispatcher sleeps on one event.
    fabric: Arc<dyn Fabric>,
    maker: Arc<dyn LaneMaker>,
    /// The device and preset of the first lane.
    info: OnceLock<ConnectionInfo>,
    /// The number of this client at the server's scheduler.
    sender: u64,
    /// The dispatcher's thread starts with the first port.
    has_dispatcher: Mutex<bool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

impl Recipe {
    pub(super) fn new(origin: Arc<Origin>) -> Result<Self, ConnectError> {
        let (preset, class) = (origin.builder.preset, origin.builder.channel.traffic_class);
        Self::with(origin, preset, class)
    }

    /// A copy with another preset or traffic class; nothing is connected yet.
    pub(super) fn changed(&self, preset: Preset, traffic_class: u8) -> Result<Self, ConnectError> {
        Self::with(Arc::clone(&self.origin), preset, traffic_class)
    }

    fn with(origin: Arc<Origin>, preset: Preset, traffic_class: u8) -> Result<Self, ConnectError> {
        let mut builder = ClientBuilder {
            preset,
            ..origin.builder.clone()
        };
        builder.channel.traffic_class = traffic_class;
        let (way, fabrics) = match &origin.target {
            Target::Port(address) => builder.reach(address)?,
            Target::Given(opener, given) => {
                let fabric = given(preset).map_err(|source| ConnectError::Device {
                    device: preset.name().to_owned(),
                    source,
                })?;
                (Way::Given(Arc::clone(opener)), vec![fabric])
            }
        };
        Ok(Self {
            origin,
            way,
            fabrics,
            first: Mutex::new(None),
            channel: builder.channel,
            preset,
            deadline: builder.deadline,
            told: Told::new(builder.deadline),
            lanes: builder.lanes,
            servers: builder.servers,
            one_sided: builder.one_sided,
            group: builder.group,
            dispatched: builder.dispatched,
            reporting: builder.reporting,
            own: Arc::new(()),
            deep: Arc::new(()),
            renewal: Renewal::default(),
            spares: Spares::default(),
            pipelines: Arc::new(()),
            shared: Mutex::new(None),
            packet_lost: Arc::default(),
            server: AtomicU64::new(0),
            peer: Mutex::default(),
        })
    }

    /// Whether there is no reason to give up lanes: checked first by every call.
    #[inline]
    pub(super) fn keeps_lanes(&self) -> bool {
        self.renewal.reasons().is_empty()
    }

    /// The lane for which one is to be given up, as far as the recipe decides it; `shares` returns whether it is given
    /// up where all are to share.
    #[inline]
    pub(super) fn successor(
        &self,
        lane: &dyn Lane,
        shares: impl FnOnce(&dyn Lane) -> bool,
    ) -> Option<Successor> {
        match self.renewal.reasons() {
            none if none.is_empty() => None,
            some if some.contains(Reasons::REPLACED) => Some(Successor::Another),
            some if some.contains(Reasons::AS_ASKED) => {
                let goes_over = self.sends_datagrams(some, lane) == lane.is_shared();
                goes_over.then_some(Successor::OtherKind)
            }
            some if some.contains(Reasons::TO_SHARE) => shares(lane).then_some(Successor::Another),
            _ => None,
        }
    }

    /// Whether a pipeline with this window shares when all do.
    pub(super) fn may_share(&self, lane: &dyn Lane, window: usize) -> bool {
        let may = |fabric: &Arc<dyn Fabric>| OwnLanes::on(fabric.attributes()).may_share(window);
        self.preset == Preset::Auto && !lane.is_shared() && self.first().as_ref().is_some_and(may)
    }

    /// Whether another recipe has replaced it.
    pub(super) fn is_replaced(&self) -> bool {
        self.renewal.reasons().contains(Reasons::REPLACED)
    }

    /// Another recipe replaces this one: lanes that it made are given up as soon as they have no outstanding calls.
    pub(super) fn replace(&self) {
        self.renewal.add(Reasons::REPLACED);
        self.spares.clear();
        if let Some(handle) = self.handle() {
            handle.orphan();
        }
    }

    /// Makes lanes before they are needed: at least one, to check the connection, and `most` where lanes can be used by
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

    /// The device over which lanes are made, once there is one.
    fn first(&self) -> Option<Arc<dyn Fabric>> {
        thread::lock(&self.first).clone()
    }

    /// The token held by each pipeline; its references count them.
    pub(super) fn pipeline(&self) -> Arc<()> {
        Arc::clone(&self.pipelines)
    }

    pub(super) fn pipelines(&self) -> usize {
        Arc::strong_count(&self.pipelines) - 1
    }

    pub(super) fn preset(&self) -> Preset {
        self.preset
    }

    /// Makes a lane, or a port at the connection handle, for a user that keeps at most `window` calls outstanding,
    /// until `until` or for as long as making a connection may take.
    pub(super) fn open(
        &self,
        owner: Owner,
        window: usize,
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        self.open_among(1, (owner, window), &mut None, until)
    }

    /// As [`Recipe::open`], for any thread to which the lane is handed.
    pub(super) fn open_for_any(&self, window: usize, until: Instant) -> Opened {
        let opened = self.open(Owner::Alone, window, Some(until));
        opened.map(|(lane, _)| lane)
    }

    /// As [`Recipe::open_for_any`], on another thread: a server may be silent for longer than the caller can wait.
    pub(super) fn open_apart(
        self: &Arc<Self>,
        window: usize,
        until: Instant,
    ) -> ThreadFuture<Opened> {
        let recipe = Arc::clone(self);
        ThreadFuture::start_by(
            |run| self.spawn("dunlin-connect", run),
            |error| Err(ConnectError::Thread(error)),
            move || recipe.open_for_any(window, until),
        )
    }

    /// As [`Recipe::open`], for a thread that has lanes to `servers` servers. `group` is the thread's group at those
    /// that switch groups together, determined by the first of them.
    pub(super) fn open_among(
        &self,
        servers: usize,
        (owner, window): (Owner, usize),
        group: &mut Option<u64>,
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        self.refuse_own_server()?;
        let (mut reached, handle) = (None, self.handle());
        let mut open = |owner| self.open_by(&mut reached, servers, (owner, window), group, until);
        match open(owner.clone()) {
            // It was replaced by one over another device.
            Err(_) if handle.is_some_and(|handle| self.has_given_up(&handle)) => open(owner),
            opened => opened,
        }
    }

    /// As [`Recipe::open_among`], once. `reached` is the server, if it was reached before.
    fn open_by(
        &self,
        reached: &mut Option<Reached>,
        servers: usize,
        (owner, window): (Owner, usize),
        group: &mut Option<u64>,
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        let fabric = match self.first() {
            Some(fabric) => fabric,
            None => {
                let fabric = &reached.insert(self.reach(until)?).fabric;
                let mut first = thread::lock(&self.first);
                Arc::clone(first.get_or_insert_with(|| Arc::clone(fabric)))
            }
        };
        // Counted from now on, and not when it is made, which takes a while: many threads that connect at once would
        // each find none.
        let mut token = Arc::clone(&self.deep);
        let mut situation = Situation {
            servers: servers.max(self.servers),
            one_sided: self.one_sided,
            own: 0,
            // Apart from the recipe's reference and this one.
            deep: Arc::strong_count(&token) - 2,
            window,
        };
        let own_lanes = OwnLanes::on(fabric.attributes());
        if !own_lanes.has_deep(window, situation.deep) {
            token = Arc::clone(&self.own);
            situation.own = match self.renewal.reasons() {
                none if (none - Reasons::RINGS_ONLY).is_empty() => Arc::strong_count(&token) - 2,
                _ => usize::MAX,
            };
        }
        let preset = self.preset.on(fabric.attributes(), situation);
        if let Some(mut sharing) = preset.sharing(self.lanes) {
            drop(token);
            sharing.dispatched = self.dispatched;
            let opened = self.open_port(&fabric, reached, (preset, sharing), until)?;
            self.consider_datagrams(fabric.attributes());
            if own_lanes.are_taken(situation.own, window) {
                self.renewal.add(Reasons::TO_SHARE);
            }
            return Ok(opened);
        }
        let reached = reached.take().map_or_else(|| self.reach(until), Ok)?;
        let (mut lane, mut info) = self.open_alone(reached, preset, owner, group)?;
        if preset == Preset::Plain {
            // A lane that `auto` leaves to one thread, as a part of `auto`.
            info.preset = self.preset;
            lane.hold(token);
        }
        Ok((lane, info))
    }

    /// Makes a lane that is not shared.
    fn open_alone(
        &self,
        reached: Reached,
        preset: Preset,
        owner: Owner,
        group: &mut Option<u64>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        let (lane, info, parameters) = self.negotiate(reached, preset, |fabric| {
            let setup = LaneSetup {
                config: self.channel.clone(),
                owner,
                packet_lost: Arc::clone(&self.packet_lost),
            };
            let mut opening = fabric.open(preset.channel(), setup)?;
            let chosen = self.group.map(|group| (GROUP_PARAMETER, group as u64));
            let told = group.map(|group| (GROUP_WISH_PARAMETER, group));
            if let Some((name, group)) = chosen.or(told) {
                opening.parameters.insert(name.to_string(), group);
            }
            Ok(opening)
        })?;
        *group = group.or(parameters.get(GROUP_PARAMETER).copied());
        Ok((lane, info))
    }

    /// Refuses a thread that polls for this server: it would wait for itself.
    #[inline]
    pub(super) fn refuse_own_server(&self) -> Result<(), ConnectError> {
        match identity::is_polled_here(self.server()) {
            true => Err(ConnectError::OwnServer),
            false => Ok(()),
        }
    }

    /// As [`Recipe::refuse_own_server`], for a call that its thread does not wait for. The responses of a server's
    /// clients do not depend on its polling threads.
    pub(super) fn refuse_own_server_to_futures(&self) -> Result<(), ConnectError> {
        match &self.way {
            Way::Given(opener) if !opener.is_local() => Ok(()),
            _ => self.refuse_own_server(),
        }
    }

    /// For lanes to clients of this server, whose responses its polling threads would wait for: those threads must not
    /// make any.
    pub(super) fn owned_by(self, server: u64) -> Self {
        self.server.store(server, Ordering::Relaxed);
        self
    }

    /// What a server needs to serve this client's server: the device of its lanes, and the identity of the other end.
    pub(super) fn ground(&self) -> Option<(Arc<dyn Fabric>, Peer)> {
        let fabric = self.first().or_else(|| self.fabrics.first().cloned());
        fabric.map(|fabric| (fabric, thread::lock(&self.peer).clone()))
    }

    /// The settings that the client was made with.
    pub(super) fn builder(&self) -> &ClientBuilder {
        &self.origin.builder
    }

    /// Starts a thread of the client, on the host of the device's threads.
    pub(super) fn spawn(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        match self.first().or_else(|| self.fabrics.first().cloned()) {
            Some(fabric) => fabric.spawn(name, Box::new(run)),
            None => Err(std::io::Error::other("the client has no device")),
        }
    }

    /// The number of the server that the last lane was made to.
    pub(super) fn server(&self) -> u64 {
        self.server.load(Ordering::Relaxed)
    }

    /// Whether the connecting thread will not be the calling one.
    pub(super) fn is_local(&self) -> bool {
        matches!(&self.way, Way::Given(opener) if opener.is_local())
    }

    /// Whether another handle has replaced this one, or may do so.
    fn has_given_up(&self, handle: &Arc<Handle>) -> bool {
        !self.handle().is_some_and(|now| Arc::ptr_eq(&now, handle))
    }

    /// The connection handle, if this preset has one and it exists.
    pub(super) fn handle(&self) -> Option<Arc<Handle>> {
        let shared = thread::lock(&self.shared);
        shared.as_ref().map(|shared| Arc::clone(&shared.handle))
    }
}
