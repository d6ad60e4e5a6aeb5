//! The flows of an experiment on a cluster: queue pairs, memory, and a thread for each host that sends.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_sim::{
    Cluster, SimCompletionQueue, SimDevice, SimProtectionDomain, SimQueuePair, SimRegion, ThreadId,
};
use dunlin_verbs::{Access, Device, Region, Transport, VerbsError};

use super::sender::{Finished, Outgoing, Sender, Shared};
use super::{Flow, Flows};
use crate::load::{connect, Cable, End};

/// Running flows.
#[derive(Debug)]
pub(in super::super) struct Running {
    /// All flows, each with the number of its group.
    pub(in super::super) flows: Vec<(usize, Flow)>,
    threads: Vec<ThreadId>,
    shared: Arc<Shared>,
    /// Objects of receivers, kept until the end.
    receivers: Vec<SimQueuePair>,
    sides: BTreeMap<usize, Side>,
}

/// Objects of a host, for all its flows.
#[derive(Debug)]
struct Side {
    device: SimDevice,
    domain: SimProtectionDomain,
    /// Completions of arrivals; a WRITE has none.
    arrivals: SimCompletionQueue,
    /// Memory for sending and receiving. The contents do not matter, so all flows share it.
    region: SimRegion,
}

impl Side {
    fn end<'a>(&'a self, completions: &'a SimCompletionQueue) -> End<'a> {
        End {
            device: &self.device,
            domain: &self.domain,
            completions,
        }
    }
}

/// What a host sends.
struct Outbox {
    completions: SimCompletionQueue,
    flows: Vec<Outgoing>,
}

impl Running {
    /// Puts the flows on the hosts of a cluster. They do nothing until [`Running::begin`].
    ///
    /// # Errors
    /// When a device refuses.
    pub(in super::super) fn new(cluster: &Cluster, groups: &[Flows]) -> Result<Self, VerbsError> {
        let (sides, mut outboxes) = sides(cluster, groups)?;
        let mut running = Self {
            flows: Vec::new(),
            threads: Vec::new(),
            shared: Arc::default(),
            receivers: Vec::new(),
            sides,
        };
        for (number, group) in groups.iter().enumerate() {
            let cable = Cable {
                transport: Transport::ReliableConnection,
                sends: group.outstanding,
                receives: 1,
                inline_bytes: 0,
            };
            for &flow in &group.flows {
                let (from, to) = (&running.sides[&flow.from], &running.sides[&flow.to]);
                let outbox = outboxes.get_mut(&flow.from).expect("of each sender");
                let (pair, receiver) =
                    connect(&from.end(&outbox.completions), &to.end(&to.arrivals), cable);
                outbox.flows.push(Outgoing {
                    number: running.flows.len(),
                    pair,
                    remote: to.region.remote(),
                    start_ns: flow.start_ns,
                    bytes: flow.bytes,
                    message_bytes: group.message_bytes,
                    outstanding: group.outstanding as u64,
                    posted: 0,
                    done: 0,
                    queued: false,
                });
                running.receivers.push(receiver);
                running.flows.push((number, flow));
            }
        }
        let hosts = cluster.hosts();
        for (host, outbox) in outboxes {
            let side = &running.sides[&host];
            let sender = Sender::new(
                outbox.completions,
                side.region.clone(),
                outbox.flows,
                Arc::clone(&running.shared),
            );
            let core = side.device.cores() - 1;
            let thread = cluster.spawn(hosts[host], core, sender);
            cluster.name_thread(thread, "flows".to_owned());
            running.threads.push(thread);
        }
        Ok(running)
    }

    /// Begins the load: time zero is now.
    pub(in super::super) fn begin(&self, cluster: &Cluster) {
        let zero_ns = cluster.now_ns();
        self.shared.zero_ns.store(zero_ns, Ordering::Relaxed);
        self.threads.iter().for_each(|&thread| cluster.wake(thread));
    }

    /// Flows that have ended since the last call.
    pub(in super::super) fn take(&self) -> Vec<Finished> {
        self.shared.take()
    }
}

type Sides = (BTreeMap<usize, Side>, BTreeMap<usize, Outbox>);

fn sides(cluster: &Cluster, groups: &[Flows]) -> Result<Sides, VerbsError> {
    // Requirements of each host: bytes of the longest message, and entries for the completions of everything
    // outstanding.
    let mut needs = BTreeMap::<usize, (u64, usize)>::new();
    for group in groups {
        for flow in &group.flows {
            let bytes = group.message_bytes.min(flow.bytes);
            for (host, entries) in [(flow.from, group.outstanding), (flow.to, 0)] {
                let need = needs.entry(host).or_default();
                *need = (need.0.max(bytes), need.1 + entries);
            }
        }
    }
    let hosts = cluster.hosts();
    let (mut sides, mut outboxes) = Sides::default();
    for (host, (bytes, entries)) in needs {
        let device = cluster.device(hosts[host]);
        let domain = device.create_protection_domain()?;
        if entries > 0 {
            let outbox = Outbox {
                completions: device.create_completion_queue(entries, None)?,
                flows: Vec::new(),
            };
            outboxes.insert(host, outbox);
        }
        let side = Side {
            arrivals: device.create_completion_queue(1, None)?,
            region: device.allocate_region(&domain, bytes as usize, Access::all())?,
            domain,
            device,
        };
        sides.insert(host, side);
    }
    Ok((sides, outboxes))
}
