//! Connecting one more lane: dialling the server, making one side, exchanging parameters, and connecting both sides.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use dunlin_bootstrap::{dial, dial_until, Dialed, OpenRequest};
use dunlin_verbs::{thread, VerbsError};

use super::{Recipe, Way};
use crate::call::callbacks::CLIENT_PARAMETER;
use crate::call::timeout::DEFAULT_PARAMETER;
use crate::channel::opening::Opening;
use crate::channel::{Parameters, CLASS_PARAMETER};
use crate::client::ConnectionInfo;
use crate::devices;
use crate::error::ConnectError;
use crate::fabric::Fabric;
use crate::identity::SERVER_PARAMETER;
use crate::preset::Preset;

/// The reason for choosing a device that was given.
const GIVEN: &str = "given with the server";

/// A server that was reached, the device used, and the reason for choosing it. With a local acceptor nothing was
/// dialled.
pub(super) struct Reached {
    pub(super) dialed: Option<Dialed>,
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) device: String,
    pub(super) why: String,
    /// When making the connection has to be finished.
    until: Option<Instant>,
}

impl Recipe {
    /// Finds the server, and a device by which it can be reached, until `until`, which also ends the handshake.
    pub(super) fn reach(&self, until: Option<Instant>) -> Result<Reached, ConnectError> {
        let (dialed, device, why) = match &self.way {
            Way::Port { address, dial: how } => {
                let dialed = match until {
                    None => dial(address, how)?,
                    Some(until) => dial_until(address, how, until)?,
                };
                let peer = dialed.peer();
                let ip = peer.address().map(|address| address.ip().to_canonical());
                *thread::lock(&self.peer) = peer;
                let device = dialed.device().to_string();
                let why = match devices::chosen(&device, ip) {
                    None => dialed.why().to_string(),
                    Some(chosen) => format!("{}; {chosen}", dialed.why()),
                };
                (Some(dialed), device, why)
            }
            Way::Given(_) => {
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
            until,
        })
    }

    /// Opens one side, sends its parameters to the server, and connects. Returns also the server's parameters.
    pub(super) fn negotiate<T>(
        &self,
        reached: Reached,
        preset: Preset,
        open: impl FnOnce(&Arc<dyn Fabric>) -> Result<Opening<T>, VerbsError>,
    ) -> Result<(T, ConnectionInfo, Parameters), ConnectError> {
        let Reached {
            dialed,
            fabric,
            device,
            why,
            until,
        } = reached;
        let failed = |source| ConnectError::Device {
            device: device.clone(),
            source,
        };
        let Opening {
            address: mut endpoint,
            mut parameters,
            join,
        } = open(&fabric).map_err(failed)?;
        if let Way::Given(opener) = &self.way {
            if let Some(peer) = opener.peer() {
                endpoint = fabric.address_for(endpoint, &peer);
            }
        }
        let micros = u64::try_from(self.deadline.as_micros()).unwrap_or(u64::MAX);
        parameters.insert(DEFAULT_PARAMETER.to_string(), micros);
        if self.channel.traffic_class != 0 {
            let class = u64::from(self.channel.traffic_class);
            parameters.insert(CLASS_PARAMETER.to_string(), class);
        }
        if self.origin.number != 0 {
            parameters.insert(CLIENT_PARAMETER.to_string(), self.origin.number);
        }
        let request = OpenRequest {
            device: device.clone(),
            preset: preset.name().to_string(),
            endpoint,
            parameters,
        };
        let reply = match (dialed, &self.way) {
            (None, Way::Given(opener)) => opener.open(request, until)?,
            (Some(dialed), _) => dialed.open(request)?,
            (None, Way::Port { .. }) => unreachable!("a port was dialed"),
        };
        if let Some(&server) = reply.parameters.get(SERVER_PARAMETER) {
            self.server.store(server, Ordering::Relaxed);
        }
        self.refuse_own_server()?;
        let lane = join(&reply.endpoint, &reply.parameters).map_err(failed)?;
        let pages = fabric.attributes().page_kind.to_string();
        let info = ConnectionInfo {
            device,
            why,
            pages,
            preset,
        };
        Ok((lane, info, reply.parameters))
    }
}
