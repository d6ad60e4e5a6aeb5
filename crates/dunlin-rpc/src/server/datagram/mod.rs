//! Serving over datagrams: pollers, each with one UD queue pair, and the sessions of clients on them (FaSST §4).
//!
//! A client's session stays at one poller for its lifetime (FaSST's peer threads). The threads start with the first
//! such client.

mod outgoing;
mod poller;
mod session;

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::{thread, CompletionChannel, Device, EndpointAddress, VerbsError};

use super::caller::Caller;
use super::deadlines::Deadlines;
use super::polling::PollingThreads;
use super::service::AcceptError;
use super::threads::{self, NewPoller, Started, ThreadGroup, Threads};
use crate::admission::redistribution::Admission;
use crate::channel::datagram::connect::route_in;
use crate::channel::datagram::endpoint::{receives_of_session, FIRST_RECEIVES};
use crate::channel::datagram::packet::Head;
use crate::channel::datagram::written::Zone;
use crate::channel::datagram::{Greeting, Protocol, CALLS};
use crate::channel::Parameters;
use poller::{Newcomer, Poller, PollerHandle};

/// The service over datagrams.
pub(super) struct DatagramService<D: Device> {
    threads: ThreadGroup<PollerHandle<D>, D>,
    /// The scheduler for clients that may use datagrams or rings.
    admission: Arc<Admission>,
}

impl<D: Device> DatagramService<D> {
    pub(super) fn new(polling: Arc<PollingThreads<D>>, admission: Arc<Admission>) -> Self {
        Self {
            admission,
            threads: ThreadGroup::new(polling),
        }
    }

    /// The threads of the service.
    pub(super) fn threads(&self) -> &dyn Threads {
        &self.threads
    }

    fn started(&self) -> Result<&Started<PollerHandle<D>>, VerbsError> {
        let (device, channel) = (self.threads.device(), &self.threads.setup().channel);
        let limits = (channel.max_message_bytes, channel.eager_bytes);
        let new_poller = |index, wake| -> Result<NewPoller<_, Poller<D>>, VerbsError> {
            let endpoint = Poller::endpoint(device, &wake, &channel.datagram_batches)?;
            let handle = PollerHandle::new(&endpoint);
            let outside = Arc::clone(&handle);
            let share = self.admission.join_datagrams();
            let inside =
                move |context| Poller::new(outside, index, context, endpoint, limits, share);
            Ok((handle, Box::new(inside)))
        };
        let started = self.threads.started(false, new_poller);
        started.map_err(threads::to_client)
    }

    /// Assigns a new client to the poller with the fewest clients.
    pub(super) fn accept(
        &self,
        protocol: Protocol,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError> {
        let theirs = Greeting::read(parameters)?;
        let started = self.started()?;
        // Other clients that come now wait for the places.
        thread::hold(|| self.accept_held(started, protocol, (peer, parameters, caller), theirs))
    }

    fn accept_held(
        &self,
        started: &Started<PollerHandle<D>>,
        protocol: Protocol,
        (peer, parameters, caller): (&EndpointAddress, &Parameters, Caller),
        theirs: Greeting,
    ) -> Result<(EndpointAddress, Parameters), AcceptError> {
        let (index, poller) = started.least()?;
        // Each of them may send one datagram before its own RECEIVEs are posted.
        let waiting = poller.waiting.fetch_add(1, Ordering::Relaxed);
        let newcomer = match waiting < FIRST_RECEIVES / 2 {
            true => self
                .newcomer(poller, protocol, (peer, parameters, caller), theirs)
                .map_err(AcceptError::Verbs),
            false => Err(AcceptError::Busy {
                limit: FIRST_RECEIVES / 2,
            }),
        };
        let newcomer = newcomer.inspect_err(|_| {
            poller.waiting.fetch_sub(1, Ordering::Relaxed);
        })?;
        let ours = Greeting {
            to: Head {
                cookie: newcomer.cookie,
                session: newcomer.number as u16,
                ..Head::default()
            },
            packet_bytes: poller.packet_bytes,
            longest: self.threads.setup().channel.max_message_bytes,
            calls: theirs.calls.min(CALLS),
        };
        let told = newcomer.told;
        let mut answer = ours.parameters();
        if let Some(zone) = &newcomer.zone {
            zone.tell(&mut answer);
        }
        // All sessions use the poller's queue pair.
        started.adopt(index, newcomer.id, newcomer, None);
        Ok((told, answer))
    }

    fn newcomer(
        &self,
        poller: &PollerHandle<D>,
        protocol: Protocol,
        (peer, parameters, caller): (&EndpointAddress, &Parameters, Caller),
        theirs: Greeting,
    ) -> Result<Newcomer<D>, VerbsError> {
        let device = self.threads.device();
        let cookie = crate::random::random(device)?;
        let route = route_in(device, &poller.domain, peer)?;
        let eager = self.threads.setup().channel.eager_bytes;
        let zone = (protocol == Protocol::Written)
            .then(|| Zone::new(device, eager, parameters).map(Box::new))
            .transpose()?;
        let mut session_slots = poller.session_slots();
        // Under the same lock as the place: a queue pair without sessions may be replaced.
        let told = poller.address().ok_or_else(|| {
            VerbsError::Peer(
                "the server's datagram queue pair failed and is being recreated: connect again"
                    .into(),
            )
        })?;
        let Some((number, is_new)) = session_slots.places.take() else {
            poller.crowded.store(true, Ordering::Relaxed);
            poller.mailbox.wake().wake();
            return Err(VerbsError::Limit {
                resource: "sessions of a datagram queue pair (more pollers raise the limit)",
                asked: 1,
                available: 0,
                limit: session_slots.places.limit(),
            });
        };
        let wanted = session_slots.places.clients() > session_slots.provided;
        let block = wanted.then(|| {
            let places = receives_of_session();
            let stock = &mut session_slots.stock;
            stock.take(device, &poller.domain, places, poller.packet_bytes)
        });
        let block = block.transpose().inspect_err(|_| match is_new {
            true => session_slots.places.undo(),
            false => session_slots.places.give_back(number),
        })?;
        session_slots.provided += usize::from(wanted);
        drop(session_slots);
        Ok(Newcomer {
            id: self.threads.setup().ids.next(number),
            number,
            protocol,
            cookie,
            told,
            theirs,
            deadlines: Deadlines::new(parameters),
            caller,
            route,
            block,
            zone,
        })
    }
}
