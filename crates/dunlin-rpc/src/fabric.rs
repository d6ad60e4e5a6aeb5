//! Devices behind one door: what clients and servers ask of a device, without naming its type.
//!
//! Everything that runs for each message is compiled for its device; only the making of lanes and services, and one call for each
//! poll of a lane, goes through these traits.

use std::fmt;
use std::sync::Arc;

use dunlin_verbs::{Device, DeviceAttributes, EndpointAddress, VerbsError};

use crate::channel::ring::{Parameters, UnconnectedRing};
use crate::client::lane::{Lane, RingLane};
use crate::config::ChannelConfig;
use crate::error::ServeError;
use crate::server::service::{RingService, Service, ServiceSetup};

/// A device that can carry channels.
pub(crate) trait Fabric: Send + Sync + fmt::Debug {
    /// Limits and habits of the device.
    fn attributes(&self) -> &DeviceAttributes;
    /// The client's side of a new lane.
    fn open_lane(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningLane>, VerbsError>;
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
