//! The service for clients with a queue pair each: pollers of rings, SENDs or RB²'s rings, which differ only in the
//! channel.

use std::sync::Arc;

use dunlin_verbs::{Device, EndpointAddress, VerbsError};

use super::caller::Caller;
use super::connection::Connection;
use super::deadlines::Deadlines;
use super::poller::{Poller, PollerHandle};
use super::polling::PollingThreads;
use super::region::ServedRegions;
use super::threads::{self, NewPoller, Started, ThreadGroup, Threads};
use crate::admission::lane::Admitted;
use crate::admission::redistribution::Admission;
use crate::admission::{CREDITS_PARAMETER, LANE_PARAMETER};
use crate::channel::opening::Opening;
use crate::channel::{Channel, Parameters};
use crate::error::ServeError;

/// The service over one kind of channel.
pub(super) struct ConnectionService<C: Channel + 'static> {
    threads: ThreadGroup<PollerHandle<C>, C::Device>,
    regions: Arc<ServedRegions<C::Device>>,
}

/// The reply to a client: the address of its queue pair's peer, and its parameters.
type Answer = (EndpointAddress, Parameters);
/// What a poller sleeps on.
type Wake<C> = <<C as Channel>::Device as Device>::CompletionChannel;

impl<C: Channel + 'static> ConnectionService<C> {
    pub(super) fn new(
        polling: Arc<PollingThreads<C::Device>>,
        regions: Arc<ServedRegions<C::Device>>,
    ) -> Self {
        Self {
            threads: ThreadGroup::new(polling),
            regions,
        }
    }

    /// The threads of the service.
    pub(super) fn threads(&self) -> &dyn Threads {
        &self.threads
    }

    /// Returns the pollers, which are started if necessary.
    ///
    /// # Errors
    /// If one of them cannot be made.
    pub(super) fn started(&self) -> Result<&Started<PollerHandle<C>>, ServeError> {
        let new_poller = |_, wake| -> Result<NewPoller<_, Poller<C>>, VerbsError> {
            let handle = Arc::new(PollerHandle::<C>::new(wake));
            let outside = Arc::clone(&handle);
            let inside = move |context| Poller::new(outside, context);
            Ok((handle, Box::new(inside)))
        };
        self.threads.started(false, new_poller)
    }

    /// Accepts a client: assigns it to the poller with the fewest connections, or with the fewest of its `sender` if it
    /// uses credits. `open` makes this side of the channel.
    pub(super) fn accept(
        &self,
        sender: Option<(&Arc<Admission>, u64)>,
        (peer, parameters): (&EndpointAddress, &Parameters),
        caller: Caller,
        open: impl FnOnce(&Wake<C>) -> Result<Opening<C>, VerbsError>,
    ) -> Result<Answer, VerbsError> {
        let started = self.started().map_err(threads::to_client)?;
        let against = match sender {
            Some((admission, sender)) => admission.against(sender, started.pollers.len()),
            None => Vec::new(),
        };
        let (index, poller) = started.least_by(|index| against.get(index).copied())?;
        let mut opening = open(poller.wake())?;
        let channel = (opening.join)(peer, parameters)?;
        let id = self.threads.setup().ids.next(0);
        let admitted = sender.map(|(admission, sender)| {
            let credits = u64::from(admission.credits().0);
            let own = &mut opening.parameters;
            own.insert(CREDITS_PARAMETER.to_string(), credits);
            // A client that numbers its lanes wrongly harms only itself.
            let number = parameters.get(LANE_PARAMETER).copied().unwrap_or(id);
            Admitted::new(admission, sender, number, index)
        });
        let said = (admitted, Deadlines::new(parameters), caller);
        let connection = Connection::new(id, index, channel, said, Arc::clone(&self.regions));
        let aborter = connection.channel.aborter();
        started.adopt(index, id, connection, aborter);
        Ok((opening.address, opening.parameters))
    }
}
