//! Serving over SENDs: the pollers of rings, over another channel. The threads start with the first such client.

use std::sync::Arc;

use dunlin_verbs::{Device, EndpointAddress, VerbsError};

use super::caller::Caller;
use super::connection::Connection;
use super::deadlines::Deadlines;
use super::poller::{Poller, PollerHandle};
use super::polling::PollingThreads;
use super::region::ServedRegions;
use super::threads::{self, NewPoller, Started, ThreadGroup, Threads};
use crate::channel::sent::{SentChannel, UnconnectedSent};
use crate::channel::Parameters;

type Handle<D> = PollerHandle<SentChannel<D>>;

/// The service over SENDs.
pub(super) struct SentService<D: Device> {
    device: D,
    threads: ThreadGroup<Handle<D>, D>,
    regions: Arc<ServedRegions<D>>,
}

impl<D: Device> SentService<D> {
    pub(super) fn new(
        device: D,
        polling: Arc<PollingThreads<D>>,
        regions: Arc<ServedRegions<D>>,
    ) -> Self {
        Self {
            device,
            threads: ThreadGroup::new(polling),
            regions,
        }
    }

    /// Its threads.
    pub(super) fn threads(&self) -> &dyn Threads {
        &self.threads
    }

    fn started(&self) -> Result<&Started<Handle<D>>, VerbsError> {
        let plan = &self.threads.plan;
        let new_poller = |_, wake| -> Result<NewPoller<_, Poller<SentChannel<D>>>, VerbsError> {
            let handle = Arc::new(Handle::<D>::new(wake));
            let outside = Arc::clone(&handle);
            let inside = move |context| Poller::new(outside, context);
            Ok((handle, Box::new(inside)))
        };
        let works = plan.handlers.needs_workers(plan.executor.is_some());
        let started = self.threads.started(works, new_poller);
        started.map_err(threads::to_client)
    }

    /// Joins a new client to the poller with the fewest.
    pub(super) fn accept(
        &self,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let started = self.started()?;
        let (index, poller) = started.least()?;
        let config = &self.threads.plan.channel;
        let channel = UnconnectedSent::new(&self.device, poller.wake(), config)?;
        let answer = (channel.address(), channel.parameters());
        let channel = channel.join(peer, parameters)?;
        let id = self.threads.plan.ids.next(0);
        let said = (None, Deadlines::new(parameters), caller);
        let connection = Connection::new(id, index, channel, said, Arc::clone(&self.regions));
        let aborter = connection.channel.aborter();
        started.adopt(index, id, connection, aborter);
        Ok(answer)
    }
}
