//! Devices behind one door: what clients and servers ask of a device, without naming its type.
//!
//! Everything that runs for each message is compiled for its device; only the making of lanes and services, and one call for each
//! poll of a lane, goes through these traits.

use std::fmt;
use std::sync::Arc;

use dunlin_verbs::{Device, DeviceAttributes, EndpointAddress, VerbsError};

use crate::admission::{self, credits::CREDITS};
use crate::channel::ring::{Parameters, UnconnectedRing};
use crate::client::lane::{Lane, Sleeper};
use crate::client::ring_lane::RingLane;
use crate::config::ChannelConfig;
use crate::error::ServeError;
use crate::server::service::{RingService, Service, ServiceSetup};
use crate::sharing::lane::{RingSharedLane, SharedLane};
use crate::sharing::Discipline;

/// A device that can carry channels.
pub(crate) trait Fabric: Send + Sync + fmt::Debug {
    /// Limits and habits of the device.
    fn attributes(&self) -> &DeviceAttributes;
    /// The client's side of a new lane.
    fn open_lane(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningLane>, VerbsError>;
    /// What makes the lanes of a connection handle.
    fn lane_maker(&self) -> Result<Arc<dyn LaneMaker>, VerbsError>;
    /// The threads that serve clients over this device.
    fn serve(&self, setup: ServiceSetup) -> Result<Box<dyn Service>, ServeError>;
}

/// A lane whose server is not known yet.
pub(crate) trait OpeningLane: Send {
    /// Where the server reaches it.
    fn address(&self) -> EndpointAddress;
    /// What the server must know beyond that.
    fn parameters(&self) -> Parameters;
    /// Joins it to the server.
    fn connect(
        self: Box<Self>,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Box<dyn Lane>, VerbsError>;
}

/// Makes shared lanes, whose wake-ups all go to one bell.
pub(crate) trait LaneMaker: Send + Sync {
    /// What the dispatcher sleeps on.
    fn bell(&self) -> Box<dyn Sleeper>;
    /// The client's side of a new lane.
    fn open(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningShared>, VerbsError>;
    /// Starts a thread of the client.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;
    /// Cores that the client's threads run on.
    fn cores(&self) -> usize;
    /// A random number, which is no secret.
    fn random(&self) -> Result<u64, VerbsError>;
}

/// A shared lane whose server is not known yet.
pub(crate) trait OpeningShared: Send {
    /// Where the server reaches it.
    fn address(&self) -> EndpointAddress;
    /// What the server must know beyond that.
    fn parameters(&self) -> Parameters;
    /// Joins it to the server.
    fn connect(
        self: Box<Self>,
        peer: &EndpointAddress,
        parameters: &Parameters,
        discipline: Discipline,
    ) -> Result<Arc<dyn SharedLane>, VerbsError>;
}

/// Makes shared lanes over ring channels.
struct RingMaker<D: Device> {
    device: D,
    wake: D::CompletionChannel,
}

impl<D: Device> LaneMaker for RingMaker<D> {
    fn bell(&self) -> Box<dyn Sleeper> {
        Box::new(self.wake.clone())
    }

    fn open(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningShared>, VerbsError> {
        Ok(Box::new(UnconnectedRing::new(
            &self.device,
            &self.wake,
            config,
        )?))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        self.device.spawn(name.to_owned(), None, run).map(drop)
    }

    fn cores(&self) -> usize {
        self.device.cores()
    }

    fn random(&self) -> Result<u64, VerbsError> {
        random(&self.device)
    }
}

/// A random number: the system's, unless the device is to be repeatable.
pub(crate) fn random<D: Device>(device: &D) -> Result<u64, VerbsError> {
    match device.seed() {
        Some(seed) => Ok(seed),
        None => getrandom::u64().map_err(|error| VerbsError::System {
            call: "getrandom",
            source: error.into(),
        }),
    }
}

impl<D: Device> OpeningShared for UnconnectedRing<D> {
    fn address(&self) -> EndpointAddress {
        self.address()
    }

    fn parameters(&self) -> Parameters {
        self.parameters()
    }

    fn connect(
        self: Box<Self>,
        peer: &EndpointAddress,
        parameters: &Parameters,
        discipline: Discipline,
    ) -> Result<Arc<dyn SharedLane>, VerbsError> {
        let credits = match parameters.get(admission::CREDITS_PARAMETER) {
            None => None,
            Some(&credits) if credits == u64::from(CREDITS) => Some(CREDITS),
            Some(credits) => {
                let words = format!("it grants {credits} credits: this version knows {CREDITS}");
                return Err(VerbsError::Peer(words));
            }
        };
        let channel = UnconnectedRing::connect(*self, peer, parameters)?;
        Ok(Arc::new(RingSharedLane::new(channel, credits, discipline)))
    }
}

/// Any device with the verbs that ring channels need.
#[derive(Debug)]
pub(crate) struct RingFabric<D: Device>(pub(crate) D);

impl<D: Device> Fabric for RingFabric<D> {
    fn attributes(&self) -> &DeviceAttributes {
        self.0.attributes()
    }

    fn open_lane(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningLane>, VerbsError> {
        let wake = self.0.create_completion_channel()?;
        Ok(Box::new(UnconnectedRing::new(&self.0, &wake, config)?))
    }

    fn lane_maker(&self) -> Result<Arc<dyn LaneMaker>, VerbsError> {
        Ok(Arc::new(RingMaker {
            wake: self.0.create_completion_channel()?,
            device: self.0.clone(),
        }))
    }

    fn serve(&self, setup: ServiceSetup) -> Result<Box<dyn Service>, ServeError> {
        Ok(Box::new(RingService::start(self.0.clone(), setup)?))
    }
}

impl<D: Device> OpeningLane for UnconnectedRing<D> {
    fn address(&self) -> EndpointAddress {
        self.address()
    }

    fn parameters(&self) -> Parameters {
        self.parameters()
    }

    fn connect(
        self: Box<Self>,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Box<dyn Lane>, VerbsError> {
        let channel = UnconnectedRing::connect(*self, peer, parameters)?;
        Ok(Box::new(RingLane::new(channel)))
    }
}

/// The fabrics that a client or a server may use.
pub(crate) type Fabrics = Vec<Arc<dyn Fabric>>;
