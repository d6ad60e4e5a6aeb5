//! Lanes that are ports of a connection handle.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dunlin_verbs::{thread, VerbsError};

use super::super::ConnectionInfo;
use super::handshake::Reached;
use super::{Recipe, Shared};
use crate::admission::{FEW_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER};
use crate::call::lane::Lane;
use crate::channel::parameters::named;
use crate::error::ConnectError;
use crate::fabric::Fabric;
use crate::preset::Preset;
use crate::sharing::dispatcher;
use crate::sharing::handle::Handle;
use crate::sharing::lane::SharedLane;
use crate::sharing::Sharing;

impl Recipe {
    /// The connection handle, which is created before its first lane.
    pub(super) fn shared(
        &self,
        fabric: &Arc<dyn Fabric>,
        sharing: Sharing,
    ) -> Result<Arc<Shared>, ConnectError> {
        let mut place = thread::lock(&self.shared);
        if let Some(shared) = &*place {
            return Ok(Arc::clone(shared));
        }
        // Meanwhile another thread may have found that the server is reached over another device: see `make_way`.
        let fabric = &self.first().unwrap_or_else(|| Arc::clone(fabric));
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
            fabric: Arc::clone(fabric),
            maker,
            info: OnceLock::new(),
            sender,
            has_dispatcher: Mutex::new(false),
        });
        Ok(Arc::clone(place.insert(shared)))
    }

    /// To be called when the server is reached over another device than that of a handle's lanes: if none of them takes
    /// calls, new lanes use that device, with a handle of its own if they are shared. The former handle ends with its
    /// last port. Returns whether the handle was replaced.
    fn make_way(&self, shared: &Arc<Shared>, fabric: &Arc<dyn Fabric>) -> bool {
        if shared.handle.takes_calls() {
            return false;
        }
        let mut place = thread::lock(&self.shared);
        let is_it = |there: &mut Arc<Shared>| Arc::ptr_eq(there, shared);
        if let Some(former) = place.take_if(is_it) {
            // Before the handle is seen to be gone: the next one uses this device.
            *thread::lock(&self.first) = Some(Arc::clone(fabric));
            drop(place);
            former.handle.orphan();
        }
        true
    }

    /// `reached`: the server, if it was reached before; it is kept when this fails because the handle was replaced.
    pub(super) fn open_port(
        &self,
        fabric: &Arc<dyn Fabric>,
        reached: &mut Option<Reached>,
        (preset, sharing): (Preset, Sharing),
        until: Option<Instant>,
    ) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        let shared = self.shared(fabric, sharing)?;
        let port = shared.handle.attach(until, |number| {
            let by = reached.take().map_or_else(|| self.reach(until), Ok)?;
            if !Arc::ptr_eq(&by.fabric, &shared.fabric) {
                let error = other_device(&shared.fabric, &by);
                *reached = self.make_way(&shared, &by.fabric).then_some(by);
                return Err(error);
            }
            let (lane, info) = self.open_shared(by, (preset, sharing), number, &shared)?;
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
        // The first lane has set it, and without a lane there is no port.
        let info = shared.info.get().cloned();
        let info = info.ok_or_else(|| ConnectError::Setting("no lane was created".into()))?;
        Ok((Box::new(port), info))
    }

    pub(super) fn open_shared(
        &self,
        reached: Reached,
        (preset, sharing): (Preset, Sharing),
        number: usize,
        shared: &Shared,
    ) -> Result<(Arc<dyn SharedLane>, ConnectionInfo), ConnectError> {
        let (lane, info, _) = self.negotiate(reached, preset, |_| {
            let config = self.channel.shared_by_many(sharing.few);
            let mut opening =
                shared
                    .maker
                    .open(&config, sharing.discipline, shared.handle.ports())?;
            if sharing.admitted {
                opening.parameters.extend(named([
                    (SENDER_PARAMETER, shared.sender),
                    (LANE_PARAMETER, number as u64),
                    (FEW_PARAMETER, u64::from(sharing.few)),
                ]));
            }
            Ok(opening)
        })?;
        Ok((lane, info))
    }
}

/// The error for a lane over another device than the handle's.
#[cold]
fn other_device(own: &Arc<dyn Fabric>, reached: &Reached) -> ConnectError {
    let device = reached.device.clone();
    let own = &own.attributes().name;
    ConnectError::Device {
        source: VerbsError::Peer(format!(
            "the server is now reached over {device}, but the connections that threads share are over {own}"
        )),
        device,
    }
}
