//! Lanes that are ports of a connection handle.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dunlin_verbs::thread;

use super::super::ConnectionInfo;
use super::handshake::Reached;
use super::{Recipe, Shared};
use crate::admission::{FEW_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER};
use crate::call::lane::Lane;
use crate::error::ConnectError;
use crate::fabric::Fabric;
use crate::preset::Preset;
use crate::sharing::dispatcher;
use crate::sharing::handle::Handle;
use crate::sharing::lane::SharedLane;
use crate::sharing::Sharing;

impl Recipe {
    /// The connection handle, which is there before its first lane.
    pub(super) fn shared(
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

    pub(super) fn open_port(
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

    pub(super) fn open_shared(
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
}
