//! Type erasure of devices: what clients and servers need of a device, without naming its type.
//!
//! Everything that runs once per message is compiled for its device; only the making of lanes and services, and one
//! call for each poll of a lane, goes through these traits.

mod known;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{thread, Device, DeviceAttributes, EndpointAddress, VerbsError};

use crate::admission::{credits::CREDITS_OF_MEMORY, CREDITS_PARAMETER};
use crate::call::lane::{Lane, Sleeper};
use crate::channel::datagram::written::UnconnectedUplink;
use crate::channel::datagram::{Endpoint, Protocol, Shared, UnconnectedSession};
use crate::channel::opening::Opening;
use crate::channel::parameters::PeerParameters;
use crate::channel::pool::PoolChannel;
use crate::channel::rb2::Rb2Channel;
use crate::channel::ring::RingChannel;
use crate::channel::sent::SentChannel;
use crate::channel::Channel;
use crate::config::{ChannelConfig, DatagramBatches};
use crate::error::ServeError;
use crate::lanes::channel_lane::ChannelLane;
use crate::lanes::datagram_lane::DatagramLane;
use crate::lanes::{LaneSetup, Owner};
use crate::preset::ChannelKind;
use crate::server::service::{DeviceService, Service, ServiceSetup};
use crate::sharing::lane::{RingSharedLane, SharedLane};
use crate::sharing::maker::LaneMaker;
use crate::sharing::ports::Ports;
use crate::sharing::Discipline;

pub use known::{available, capabilities_towards, DeviceReport};
pub(crate) use known::{capabilities, fabric_on, fabrics};

/// A device that can carry channels.
pub(crate) trait Fabric: Send + Sync + fmt::Debug {
    /// Limits and properties of the device.
    fn attributes(&self) -> &DeviceAttributes;
    /// Opens the client's side of a new lane.
    fn open(
        &self,
        kind: ChannelKind,
        setup: LaneSetup,
    ) -> Result<Opening<Box<dyn Lane>>, VerbsError>;
    /// Starts a thread of a client.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;
    /// Returns what makes the lanes of a connection handle.
    fn lane_maker(&self) -> Result<Arc<dyn LaneMaker>, VerbsError>;
    /// A queue pair's address on this device, as the peer at another address reaches it.
    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress;
    /// Starts the threads that serve clients over this device.
    fn serve(&self, setup: Arc<ServiceSetup>) -> Result<Box<dyn Service>, ServeError>;
}

/// Makes shared lanes over ring channels.
struct RingMaker<D: Device> {
    device: D,
    wake: D::CompletionChannel,
}

impl<D: Device> LaneMaker for RingMaker<D> {
    fn event(&self) -> Box<dyn Sleeper> {
        Box::new(self.wake.clone())
    }

    fn open(
        &self,
        config: &ChannelConfig,
        discipline: Discipline,
        ports: &Arc<Ports>,
    ) -> Result<Opening<Arc<dyn SharedLane>>, VerbsError> {
        let opening = RingChannel::open(&self.device, &self.wake, config)?;
        let ports = Arc::clone(ports);
        Ok(opening.then(move |mut channel, parameters| {
            let said = PeerParameters::new("a lane with credits", parameters);
            let credits = said.optional(CREDITS_PARAMETER, 1..=CREDITS_OF_MEMORY as usize)?;
            let credits = credits.map(|credits| credits as u32);
            channel.greet()?;
            let lane: Arc<dyn SharedLane> =
                Arc::new(RingSharedLane::new(channel, credits, discipline, &ports));
            Ok(lane)
        }))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        self.device.spawn(name.to_owned(), None, run).map(drop)
    }

    fn cores(&self) -> usize {
        self.device.cores()
    }

    fn random(&self) -> Result<u64, VerbsError> {
        crate::random::random(&self.device)
    }
}

/// Any device with the verbs that ring channels need.
#[derive(Debug)]
pub(crate) struct DeviceFabric<D: Device>(pub(crate) D);

impl<D: Device> Fabric for DeviceFabric<D> {
    fn attributes(&self) -> &DeviceAttributes {
        self.0.attributes()
    }

    fn open(
        &self,
        kind: ChannelKind,
        setup: LaneSetup,
    ) -> Result<Opening<Box<dyn Lane>>, VerbsError> {
        let (device, config) = (&self.0, &setup.config);
        let of_one_thread = || config.of_one_thread(device.attributes());
        let wake = || device.create_completion_channel();
        Ok(match kind {
            ChannelKind::Ring => lane(RingChannel::open(device, &wake()?, &of_one_thread())?),
            ChannelKind::Rb2 => lane(Rb2Channel::open(device, &wake()?, &of_one_thread())?),
            ChannelKind::Sent => lane(SentChannel::open(device, &wake()?, config)?),
            ChannelKind::Pool(_) => lane(PoolChannel::open(device, &wake()?, config)?),
            ChannelKind::Datagram(protocol) => session(device, protocol, setup)?,
        })
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        self.0.spawn(name.to_owned(), None, run).map(drop)
    }

    fn lane_maker(&self) -> Result<Arc<dyn LaneMaker>, VerbsError> {
        Ok(Arc::new(RingMaker {
            wake: self.0.create_completion_channel()?,
            device: self.0.clone(),
        }))
    }

    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress {
        self.0.address_for(own, peer)
    }

    fn serve(&self, setup: Arc<ServiceSetup>) -> Result<Box<dyn Service>, ServeError> {
        Ok(Box::new(DeviceService::start(self.0.clone(), setup)?))
    }
}

/// A lane over a channel that dials.
fn lane<C: Channel + 'static>(opening: Opening<C>) -> Opening<Box<dyn Lane>> {
    opening.then(|mut channel, _| {
        channel.greet()?;
        let lane: Box<dyn Lane> = Box::new(ChannelLane::new(channel));
        Ok(lane)
    })
}

/// A new datagram session.
fn session<D: Device>(
    device: &D,
    protocol: Protocol,
    setup: LaneSetup,
) -> Result<Opening<Box<dyn Lane>>, VerbsError> {
    let batches = &setup.config.datagram_batches;
    let endpoint = match &setup.owner {
        Owner::Thread => endpoint_of_thread(device, batches)?,
        Owner::Alone => new_endpoint(device, batches)?,
        Owner::Beside(queue) => match usable(queue, device) {
            Some(endpoint) => endpoint,
            None => new_endpoint(device, batches)?,
        },
    };
    let config = &setup.config;
    let calls = config.max_outstanding;
    let mut session = UnconnectedSession::new(&endpoint, calls, config.max_message_bytes)?;
    let uplink = match protocol {
        Protocol::Written => Some(UnconnectedUplink::new(device)?),
        Protocol::Bare | Protocol::Driven => None,
    };
    let mut parameters = session.parameters();
    if let Some(uplink) = &uplink {
        uplink.tell(&mut parameters);
    }
    Ok(Opening {
        address: session.address(),
        parameters,
        join: Box::new(move |peer, parameters| {
            let (theirs, server) = session.join(peer, parameters)?;
            let uplink = uplink.map(|uplink| uplink.join(parameters)).transpose()?;
            let lane = DatagramLane::new(&session, (&theirs, server), uplink, (protocol, &setup));
            Ok(Box::new(lane))
        }),
    })
}

fn new_endpoint<D: Device>(device: &D, batches: &DatagramBatches) -> Result<Shared<D>, VerbsError> {
    let wake = device.create_completion_channel()?;
    let endpoint = Endpoint::new(device, &wake, batches)?;
    Ok(Arc::new(Mutex::new(endpoint)))
}

/// Returns this as an endpoint of the device, if it is one and usable.
fn usable<D: Device>(queue: &Arc<dyn Any + Send + Sync>, device: &D) -> Option<Shared<D>> {
    let endpoint = Arc::clone(queue).downcast::<Mutex<Endpoint<D>>>().ok()?;
    let held = endpoint.lock().unwrap_or_else(PoisonError::into_inner);
    // Clones of a device share their attributes.
    let same = std::ptr::eq(held.device().attributes(), device.attributes());
    let usable = same && !held.is_broken();
    drop(held);
    usable.then_some(endpoint)
}

/// The endpoints of one thread on all devices, with the simulated thread that they belong to.
type Endpoints = Vec<(usize, Weak<dyn Any + Send + Sync>)>;

/// The endpoint of the calling thread on a device: one for all its sessions, with any servers (FaSST §4). It lives as
/// long as one of them.
fn endpoint_of_thread<D: Device>(
    device: &D,
    batches: &DatagramBatches,
) -> Result<Shared<D>, VerbsError> {
    thread_local! {
        static ENDPOINTS: RefCell<(Option<Generation>, Endpoints)> = const { RefCell::new((None, Vec::new())) };
    }
    let here = thread::simulated_number();
    let find = |held: &RefCell<(Option<Generation>, Endpoints)>| {
        let (made_in, endpoints) = &mut *held.borrow_mut();
        // After a fork, those of the parent may be locked forever.
        if *made_in != Some(Generation::current()) {
            *made_in = Some(Generation::current());
            endpoints.clear();
        }
        endpoints.retain(|(_, endpoint)| endpoint.strong_count() > 0);
        let own = endpoints.iter().filter(|(thread, _)| *thread == here);
        let mut known = own.filter_map(|(_, endpoint)| endpoint.upgrade());
        known.find_map(|queue| usable(&queue, device))
    };
    // A thread that is ending may no longer have the list.
    if let Some(endpoint) = ENDPOINTS.try_with(find).ok().flatten() {
        return Ok(endpoint);
    }
    // This takes simulated time, during which other threads access the list.
    let endpoint = new_endpoint(device, batches)?;
    let known: Arc<dyn Any + Send + Sync> = endpoint.clone();
    let own = (here, Arc::downgrade(&known));
    let _ = ENDPOINTS.try_with(|held| held.borrow_mut().1.push(own));
    Ok(endpoint)
}

/// The fabrics that a client or a server may use.
pub(crate) type Fabrics = Vec<Arc<dyn Fabric>>;
