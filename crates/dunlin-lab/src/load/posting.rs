//! Queue pairs from some hosts of a cluster to others, threads that post READs, WRITEs or SENDs on them, and the
//! receiving ends. Used for raw verbs of figures and of experiments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dunlin_sim::{
    Cluster, HostId, Next, SimAddressHandle, SimCompletionQueue, SimDevice, SimProtectionDomain,
    SimQueuePair, SimRegion,
};
use dunlin_verbs::{
    Access, ConnectAttributes, Device, EndpointAddress, QueuePair, Region, Transport, GRH_BYTES,
};

use super::receiver::{Answering, Receiver};
use super::requester::{Verb, Way};
use super::{connect, pair_config, Cable, Done, End, Plan, Requester};

/// Settings of requesters and targets.
#[derive(Clone, Debug)]
pub struct Posting {
    /// Numbers of the hosts that post.
    pub requesters: Vec<usize>,
    /// Numbers of the target hosts; each requester posts to all of them but itself.
    pub targets: Vec<usize>,
    /// Number of queue pairs of all requesters together, assigned to requesters in turn, and within each to its threads
    /// and the targets.
    pub queue_pairs: usize,
    /// Threads of each requester.
    pub threads: usize,
    /// Threads of each target, which own its ends and take SENDs.
    pub receivers: usize,
    /// RECEIVEs that a target keeps posted on each queue pair; none if there are no SENDs.
    pub receives: usize,
    /// RC, UC, or, only for SENDs, UD: then each thread of a target has one queue pair.
    pub transport: Transport,
    /// Number of targets' queue pairs to which each queue pair of a requester sends; more than one only over UD.
    pub destinations: usize,
    /// Bytes of a target's memory for each queue pair; if `None`, all share the same.
    pub zone_bytes: Option<u64>,
    /// Whether each requesting queue pair has a completion queue of its own; otherwise each thread has one.
    pub own_completions: bool,
    /// The plan of the threads.
    pub plan: Plan,
}

/// Minimum bytes of the memory of each host.
pub(super) const REGION_BYTES: usize = 1 << 20;
/// Minimum entries of a completion queue.
const COMPLETIONS: usize = 4096;

/// The connection settings for a plan.
pub(super) fn cable(transport: Transport, plan: Plan) -> Cable {
    let inline_bytes = if plan.inline { plan.bytes } else { 0 };
    Cable {
        transport,
        sends: 2 * plan.window.max(64),
        receives: 1,
        inline_bytes,
    }
}

/// Objects of a host, for all its threads.
pub(super) struct Machine {
    pub(super) device: SimDevice,
    pub(super) domain: SimProtectionDomain,
    pub(super) region: SimRegion,
}

impl Machine {
    pub(super) fn new(cluster: &Cluster, host: HostId, bytes: usize) -> Self {
        let device = cluster.device(host);
        let domain = device.create_protection_domain().expect("a domain");
        let region = device
            .allocate_region(&domain, bytes, Access::all())
            .expect("a region");
        Self {
            device,
            domain,
            region,
        }
    }

    pub(super) fn queue(&self, entries: usize) -> SimCompletionQueue {
        let queue = self.device.create_completion_queue(entries, None);
        queue.expect("a queue")
    }

    /// The address of a queue pair for datagrams.
    fn way_to(&self, address: EndpointAddress) -> (SimAddressHandle, EndpointAddress) {
        let handle = self.device.create_address_handle(&self.domain, &address);
        (handle.expect("of this cluster"), address)
    }

    fn end<'a>(&'a self, completions: &'a SimCompletionQueue) -> End<'a> {
        End {
            device: &self.device,
            domain: &self.domain,
            completions,
        }
    }
}

/// Objects of one thread of a host: its completion queues, at least one, and its queue pairs.
struct Seat<T> {
    queues: Vec<SimCompletionQueue>,
    has: Vec<T>,
}

/// A queue pair of a target, with the offset of its memory.
pub(super) struct Taker {
    pub(super) pair: SimQueuePair,
    pub(super) offset: usize,
    /// UD: destinations of answers, by the number of the requesting queue pair.
    pub(super) askers: BTreeMap<u32, (SimAddressHandle, EndpointAddress)>,
    /// Number of answers so far.
    pub(super) answered: u64,
}

impl Taker {
    fn new(pair: SimQueuePair, offset: usize) -> Self {
        Self {
            pair,
            offset,
            askers: BTreeMap::new(),
            answered: 0,
        }
    }
}

/// A host with its threads' objects on both sides, of which it may have one.
struct Place {
    number: usize,
    machine: Machine,
    requests: Vec<Seat<Way>>,
    takes: Vec<Seat<Taker>>,
    /// Number of queue pairs connected to this host.
    came: u64,
}

impl Posting {
    /// Bytes from the first to the end of the last of a queue pair's places.
    pub fn span(&self) -> u64 {
        let (distance, places) = self.plan.places;
        let longest = match self.transport {
            Transport::UnreliableDatagram => self.plan.bytes + GRH_BYTES,
            _ => self.plan.bytes,
        };
        distance * (places - 1) + longest as u64
    }

    /// Bytes of a target's memory.
    pub fn memory(&self) -> u64 {
        self.region_bytes(true) as u64
    }

    /// Bytes of a host's memory; all zones if it is a target with zones.
    fn region_bytes(&self, target: bool) -> usize {
        let zones = match self.zone_bytes {
            Some(zone) if target => zone * self.ends_of_a_target() as u64,
            _ => 0,
        };
        let answer = self
            .plan
            .answer
            .map_or(0, |answer| answer.bytes + GRH_BYTES);
        REGION_BYTES
            .max(answer)
            .max(zones.max(self.span()) as usize)
    }

    /// Maximum number of queue pairs connected to one target.
    fn ends_of_a_target(&self) -> usize {
        match self.targets.as_slice() {
            _ if self.transport == Transport::UnreliableDatagram => self.receivers,
            [_] => self.queue_pairs,
            targets => self.queue_pairs.div_ceil(targets.len()) + self.requesters.len(),
        }
    }

    /// RECEIVEs that one thread of a target keeps posted.
    pub fn receives_of_a_thread(&self) -> usize {
        let pairs = match self.transport {
            Transport::UnreliableDatagram => 1,
            _ => self.ends_of_a_target().div_ceil(self.receivers) + self.requesters.len(),
        };
        pairs * self.receives
    }

    /// Puts the load on the hosts of a cluster: its threads begin when the cluster's time next advances, and count
    /// completed requests in `done`.
    ///
    /// # Panics
    /// When a device refuses, or has too few cores.
    pub fn spawn(&self, cluster: &Cluster, seed: u64, done: Option<&Arc<Done>>) {
        let mut places = self.places(cluster);
        self.connect(&mut places);
        let hosts = cluster.hosts();
        for place in places {
            let Place {
                number,
                machine,
                requests,
                takes,
                ..
            } = place;
            let host = hosts[number];
            for (thread, seat) in requests.into_iter().enumerate() {
                if seat.has.is_empty() {
                    continue;
                }
                let plan = Plan {
                    seed: seed ^ ((thread as u64) << 32 | (number as u64 + 1)),
                    ..self.plan
                };
                let region = machine.region.clone();
                let mut requester = Requester::new(plan, seat.has, seat.queues, region);
                if let Some(done) = done {
                    requester = requester.counting(Arc::clone(done));
                }
                let thread = cluster.spawn(host, thread, requester);
                cluster.name_thread(thread, "verbs".to_owned());
            }
            // On a host on both sides, receiving threads are placed behind requesting ones: both always have work.
            let behind = match self.requesters.contains(&number) {
                true => self.threads,
                false => 0,
            };
            let mut warm = false;
            for (thread, seat) in takes.into_iter().enumerate() {
                if seat.has.is_empty() {
                    continue;
                }
                // The target has initialised its memory and polls it as a server does: incoming lines are warm.
                if !std::mem::replace(&mut warm, true) {
                    machine.region.warm(0, machine.region.memory().len());
                }
                self.take(cluster, (host, behind + thread), seat, &machine.region);
            }
        }
    }

    /// Starts a thread of a target: it takes SENDs, or only keeps the ends whose memory others read and write.
    fn take(
        &self,
        cluster: &Cluster,
        (host, core): (HostId, usize),
        seat: Seat<Taker>,
        region: &SimRegion,
    ) {
        let region = region.clone();
        let thread = match self.plan.verb {
            Verb::Send => {
                let bytes = match self.transport {
                    Transport::UnreliableDatagram => GRH_BYTES + self.plan.bytes,
                    _ => self.plan.bytes,
                };
                let answer = self.plan.answer;
                let answering = answer.map(|answer| Answering::new(answer, self.plan.signal_every));
                let receiver = Receiver::new(
                    (seat.has, only(seat.queues)),
                    region,
                    (self.receives, bytes),
                    self.plan.places,
                    answering,
                );
                cluster.spawn(host, core, receiver)
            }
            _ => cluster.spawn(host, core, move |_now| {
                let (_, _) = (&seat.has, region.memory());
                Next::Block
            }),
        };
        cluster.name_thread(thread, "verbs' target".to_owned());
    }

    /// The hosts, by their numbers.
    fn places(&self, cluster: &Cluster) -> Vec<Place> {
        let hosts = cluster.hosts();
        let all: BTreeSet<usize> = self
            .requesters
            .iter()
            .chain(&self.targets)
            .copied()
            .collect();
        let place = |number: usize| {
            let (asks, takes) = (
                self.requesters.contains(&number),
                self.targets.contains(&number),
            );
            let machine = Machine::new(cluster, hosts[number], self.region_bytes(takes));
            let answers = if self.plan.answer.is_some() { 2 } else { 1 };
            let entries = COMPLETIONS.max(self.receives_of_a_thread() * answers);
            Place {
                number,
                requests: seats(&machine, if asks { self.threads } else { 0 }, COMPLETIONS),
                takes: seats(&machine, if takes { self.receivers } else { 0 }, entries),
                machine,
                came: 0,
            }
        };
        all.into_iter().map(place).collect()
    }

    /// Connection settings of both ends; those of a target have the RECEIVEs posted.
    fn cable(&self) -> Cable {
        let plan = self.plan;
        let cable = cable(self.transport, plan);
        let receives = self.receives.max(1);
        let Some(answer) = plan.answer else {
            return Cable { receives, ..cable };
        };
        let inline = if answer.inline { answer.bytes } else { 0 };
        Cable {
            receives: receives.max(plan.window),
            sends: cable.sends.max(receives + plan.signal_every),
            inline_bytes: cable.inline_bytes.max(inline),
            ..cable
        }
    }

    fn connect(&self, places: &mut [Place]) {
        let place_of = |places: &[Place], number: usize| {
            let found = places.iter().position(|place| place.number == number);
            found.expect("a host of these")
        };
        let datagrams = self.transport == Transport::UnreliableDatagram;
        if datagrams {
            for &target in &self.targets {
                let place = place_of(places, target);
                self.datagram_ends(&mut places[place]);
            }
        }
        for number in 0..self.queue_pairs {
            let requester = self.requesters[number % self.requesters.len()];
            let of_host = number / self.requesters.len();
            let thread = of_host % self.threads;
            let others = self.targets.iter().filter(|&&target| target != requester);
            let others: Vec<usize> = others.copied().collect();
            let from = place_of(places, requester);
            let place = |which: usize| place_of(places, others[(of_host + which) % others.len()]);
            let way = match datagrams {
                true => {
                    // To all targets first, then to further threads of each.
                    let of_target = self.destinations.div_ceil(others.len());
                    let to = (0..self.destinations).map(|which| {
                        let taker = thread * of_target + which / others.len();
                        (place(which), taker % self.receivers)
                    });
                    let to = to.collect();
                    self.datagram_way(places, (from, thread, number as u32), to)
                }
                false => {
                    let (to, taker) = (place(0), thread % self.receivers);
                    let offset = self.zone_bytes.unwrap_or(0) * places[to].came;
                    places[to].came += 1;
                    let cable = self.cable();
                    let seat = &mut places[from].requests[thread];
                    if self.own_completions && !seat.has.is_empty() {
                        let queue = places[from].machine.queue(COMPLETIONS);
                        places[from].requests[thread].queues.push(queue);
                    }
                    let queue = places[from].requests[thread].queues.len() - 1;
                    let (one, other) = (&places[from], &places[to]);
                    let (pair, peer) = connect(
                        &one.machine.end(&one.requests[thread].queues[queue]),
                        &other.machine.end(&other.takes[taker].queues[0]),
                        cable,
                    );
                    let remote = other.machine.region.remote().plus(offset);
                    let peer = Taker::new(peer, offset as usize);
                    places[to].takes[taker].has.push(peer);
                    Way {
                        pair,
                        number: number as u32,
                        remote,
                        to: Vec::new(),
                        queue,
                    }
                }
            };
            places[from].requests[thread].has.push(way);
        }
    }

    /// Creates the queue pairs of a target's threads.
    fn datagram_ends(&self, place: &mut Place) {
        for seat in &mut place.takes {
            let offset = self.zone_bytes.unwrap_or(0) * place.came;
            place.came += 1;
            let pair = datagram_pair(&place.machine.end(&seat.queues[0]), self.cable());
            seat.has.push(Taker::new(pair, offset as usize));
        }
    }

    /// Creates a queue pair of a thread of one host that sends to threads of others.
    fn datagram_way(
        &self,
        places: &mut [Place],
        (from, thread, number): (usize, usize, u32),
        to: Vec<(usize, usize)>,
    ) -> Way {
        let machine = &places[from].machine;
        let pair = datagram_pair(
            &machine.end(&places[from].requests[thread].queues[0]),
            self.cable(),
        );
        let address = |&(to, taker): &(usize, usize)| {
            let taker: &Taker = &places[to].takes[taker].has[0];
            machine.way_to(taker.pair.address())
        };
        let way = Way {
            number,
            // The receiver determines where a SEND goes.
            remote: machine.region.remote(),
            to: to.iter().map(address).collect(),
            queue: 0,
            pair,
        };
        if self.plan.answer.is_some() {
            for (to, taker) in to {
                let back = places[to].machine.way_to(way.pair.address());
                let asked = &mut places[to].takes[taker].has[0];
                asked.askers.insert(number, back);
            }
        }
        way
    }
}

/// The only queue of a thread that has one.
fn only(mut queues: Vec<SimCompletionQueue>) -> SimCompletionQueue {
    queues.pop().expect("each seat has one")
}

fn seats<T>(machine: &Machine, count: usize, entries: usize) -> Vec<Seat<T>> {
    let seat = |_| Seat {
        queues: vec![machine.queue(entries)],
        has: Vec::new(),
    };
    (0..count).map(seat).collect()
}

fn datagram_pair(end: &End<'_>, cable: Cable) -> SimQueuePair {
    let mut pair = pair_config(end, cable);
    pair.to_ready_to_receive(None, ConnectAttributes::default())
        .expect("from Init");
    pair.to_ready_to_send().expect("from ReadyToReceive");
    pair
}
