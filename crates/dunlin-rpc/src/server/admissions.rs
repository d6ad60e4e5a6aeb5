//! The two schedulers of a device's active queue pairs: one for senders that may have as many as the server's setting
//! allows, one for senders that want few.

use std::sync::Arc;

use dunlin_verbs::{CompletionChannel, Device, Placement, Verbs};

use super::polling::PollingThreads;
use crate::admission::credits::{CREDITS, CREDITS_OF_FEW, CREDITS_OF_MEMORY};
use crate::admission::redistribution::{Admission, SenderReport};
use crate::admission::{active_for, FEW_PARAMETER};
use crate::channel::Parameters;
use crate::config::Datagrams;

/// Both schedulers.
pub(super) struct Admissions {
    many: Arc<Admission>,
    few: Arc<Admission>,
}

/// Whether a client wants few active queue pairs.
pub(super) fn wants_few(parameters: &Parameters) -> bool {
    parameters.get(FEW_PARAMETER) == Some(&1)
}

impl Admissions {
    /// Makes the schedulers of a device that these threads poll.
    pub(super) fn new<D: Device>(polling: &PollingThreads<D>) -> Self {
        let PollingThreads { device, setup, .. } = polling;
        let pollers: Vec<_> = (0..setup.pollers).map(|i| polling.wake(i)).collect();
        let attributes = device.attributes();
        let has_datagrams = attributes.transports.ud.contains(Verbs::SEND) && attributes.lossless;
        let datagrams = match has_datagrams {
            true => setup.datagrams,
            false => Datagrams::Never,
        };
        let admission = |most_active, credits, messages_per_second| {
            let woken = pollers.clone();
            let wake = move || woken.iter().for_each(CompletionChannel::wake);
            let spawner = device.clone();
            let spawn = move |name: &str, run: Box<dyn FnOnce() + Send>| {
                spawner.spawn(name.to_owned(), None, run)
            };
            let (spawn, wake) = (Box::new(spawn), Box::new(wake));
            let takes = (messages_per_second, datagrams);
            Admission::new(most_active, credits, takes, spawn, wake)
        };
        // A batch takes one more WRITE on devices where only a second one shows that the first has arrived.
        let writes = match attributes.placement {
            Placement::InOrder => 1,
            Placement::Unordered => 2,
        };
        let takes = attributes.messages_per_second.map(|most| most / writes);
        let credits = |most| match attributes.queue_pairs_by_software() {
            true => (CREDITS_OF_MEMORY, CREDITS_OF_MEMORY),
            false => (CREDITS, most),
        };
        let few_active = setup.most_active.min(active_for(takes));
        let few = admission(few_active, credits(CREDITS_OF_FEW), takes);
        few.watch(polling.passes());
        Self {
            many: admission(setup.most_active, credits(CREDITS), None),
            few,
        }
    }

    /// The scheduler for a client with these parameters.
    pub(super) fn of(&self, parameters: &Parameters) -> &Arc<Admission> {
        match wants_few(parameters) {
            true => &self.few,
            false => &self.many,
        }
    }

    /// The scheduler for clients that may use datagrams or rings.
    pub(super) fn few(&self) -> &Arc<Admission> {
        &self.few
    }

    /// Reports of both schedulers.
    pub(super) fn report(&self) -> Vec<SenderReport> {
        let mut senders = self.many.report();
        senders.extend(self.few.report());
        senders
    }

    /// Ends the threads of both.
    pub(super) fn end(&self) {
        self.many.end();
        self.few.end();
    }
}
