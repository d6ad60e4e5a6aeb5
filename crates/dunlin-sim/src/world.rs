//! The world: all state of a cluster, or of one part of it, and the effect of each event on it.
//!
//! One real thread at a time holds it. An event changes only the host or switch that it happens to. The methods of
//! [`World`] are in the modules that they belong to.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::AsyncEvent;

use crate::completion::{Cq, Pending};
use crate::cores::Core;
use crate::crossing::Crossing;
use crate::division::Division;
use crate::event::{switch_node, Event, EventQueue, Ps};
use crate::faults::Faults;
use crate::headroom::Headroom;
use crate::memory::{Dram, Llc, RegionTable};
use crate::network::Network;
use crate::nic::Nic;
use crate::observe::Observed;
use crate::packet::Packet;
use crate::pair::{Pair, ReceiveQueueState};
use crate::parameters::{HostParameters, NicParameters};
use crate::placed::Placed;
use crate::random::Random;
use crate::slab::Slab;
use crate::step::Ready;
use crate::threads::Threads;

/// Number of bits of a queue pair's number that are its index on the host; the rest counts the users of the index.
const NUMBER_INDEX_BITS: u32 = 16;
/// Maximum number of queue pairs of a host at once.
pub(crate) const QUEUE_PAIRS_MAX: usize = 1 << NUMBER_INDEX_BITS;
/// Maximum number of asynchronous events kept for a user that does not fetch them.
const EVENTS_MAX: usize = 1024;

/// A host with its NIC.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) parameters: HostParameters,
    pub(crate) dram: Dram,
    pub(crate) nic: Nic,
    pub(crate) llc: Option<Llc>,
    pub(crate) regions: RegionTable,
    /// Queue pairs by the index in their number: users of the index so far, and the place in the world's table.
    numbers: Vec<(u32, Option<u32>)>,
    free_numbers: VecDeque<u32>,
    pub(crate) first_core: u32,
    pub(crate) cores: u32,
    pub(crate) crashed: bool,
    /// Its threads take no step before this time.
    pub(crate) paused_until: Ps,
    /// Factor for times of cores and engines: 1 unless a fault makes the host slow.
    pub(crate) slowness: f64,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) next_domain: u32,
    /// Number of completion queues that it has had.
    pub(crate) next_completions: u32,
    /// Seeds for code of this host, instead of the system's random numbers.
    pub(crate) seeds: Random,
}

impl Host {
    pub(crate) fn new(seed: u64, number: u64, host: HostParameters, nic: NicParameters) -> Self {
        Self {
            llc: Llc::new(&host, seed ^ number, Random::of(seed, "llc", number)),
            nic: Nic::new(nic, seed, number),
            regions: RegionTable::new(Random::of(seed, "keys", number)),
            numbers: Vec::new(),
            free_numbers: VecDeque::new(),
            first_core: 0,
            cores: (host.cores as u32).max(1),
            crashed: false,
            paused_until: 0,
            slowness: 1.0,
            events: VecDeque::new(),
            next_domain: 1,
            next_completions: 0,
            seeds: Random::of(seed, "code", number),
            dram: Dram::of(&host),
            parameters: host,
        }
    }

    /// The place of the queue pair with this number in the world's table.
    #[inline]
    pub(crate) fn pair_of(&self, number: u32) -> Option<u32> {
        let (users, pair) = *self.numbers.get(number as usize & (QUEUE_PAIRS_MAX - 1))?;
        pair.filter(|_| users == number >> NUMBER_INDEX_BITS)
    }

    /// The places of its queue pairs in the world's table.
    pub(crate) fn pairs(&self) -> Vec<u32> {
        self.numbers.iter().filter_map(|&(_, pair)| pair).collect()
    }

    /// A number for the queue pair at `place`; `None` when all are taken.
    pub(crate) fn take_number(&mut self, place: u32) -> Option<u32> {
        // A number is not reused while few are free: packets of its last user may still be on the way.
        let index = if self.free_numbers.len() > 64 || self.numbers.len() == QUEUE_PAIRS_MAX {
            self.free_numbers.pop_front()?
        } else {
            self.numbers.push((0, None));
            self.numbers.len() as u32 - 1
        };
        let (users, pair) = &mut self.numbers[index as usize];
        // 24 bits as on InfiniBand; never 0 or 1, which are special there.
        *users = *users % 0xff + 1;
        *pair = Some(place);
        Some(*users << NUMBER_INDEX_BITS | index)
    }

    pub(crate) fn give_number_back(&mut self, number: u32) {
        let index = number & (QUEUE_PAIRS_MAX as u32 - 1);
        self.numbers[index as usize].1 = None;
        self.free_numbers.push_back(index);
    }
}

/// A completion channel.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    pub(crate) raised: bool,
    pub(crate) waiters: Vec<u32>,
    pub(crate) event: Option<Arc<std::os::fd::OwnedFd>>,
}

/// All state of one part of a cluster.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) division: Arc<Division>,
    /// Number of the part.
    pub(crate) part: usize,
    pub(crate) now: Ps,
    pub(crate) queue: EventQueue,
    /// Events sent to each of the other parts.
    pub(crate) outbox: Vec<Vec<Crossing>>,
    /// Number of buffers that may soon pause their senders.
    pub(crate) tight: usize,
    /// Number of packets that faults have delayed.
    pub(crate) held_back: usize,
    pub(crate) hosts: Placed<Host>,
    pub(crate) cores: Vec<Core>,
    pub(crate) threads: Threads,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) free_pairs: VecDeque<u32>,
    pub(crate) receives: Slab<ReceiveQueueState>,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) channels: Slab<ChannelState>,
    pub(crate) pending: Slab<Pending>,
    pub(crate) packets: Slab<Packet>,
    pub(crate) network: Network,
    pub(crate) faults: Arc<Faults>,
    pub(crate) observed: Observed,
}

/// What the event loop does after an event.
#[derive(Debug)]
pub(crate) enum After {
    /// Nothing; it goes on.
    Nothing,
    /// Runs the step of a thread, without the world's lock.
    Step(Ready),
}

impl World {
    pub(crate) fn new(
        (division, part): (Arc<Division>, usize),
        mut hosts: Placed<Host>,
        mut network: Network,
        faults: Arc<Faults>,
    ) -> Self {
        let (all_hosts, switches) = (division.hosts.len(), division.switches.len());
        let is_here = |node: u16| division.of_node(node) == part;
        let mut cores = 0;
        for (number, host) in hosts.iter_mut() {
            host.first_core = cores;
            cores += host.cores;
            let uplink = network.paths.uplinks[number];
            let watched = network.paths.lossless != 0 && !is_here(switch_node(uplink.switch));
            host.nic.headroom = Headroom::new(watched.then(|| host.nic.pause_level()));
        }
        for (_, switch) in network.switches.iter_mut() {
            switch.watch(is_here);
        }
        Self {
            outbox: std::iter::repeat_with(Vec::new)
                .take(division.parts)
                .collect(),
            division,
            part,
            now: 0,
            queue: EventQueue::new(all_hosts, switches),
            tight: 0,
            held_back: 0,
            hosts,
            cores: std::iter::repeat_with(Core::default)
                .take(cores as usize)
                .collect(),
            threads: Threads::new(all_hosts),
            pairs: Vec::new(),
            free_pairs: VecDeque::new(),
            receives: Slab::new(),
            cqs: Slab::new(),
            channels: Slab::new(),
            pending: Slab::new(),
            packets: Slab::new(),
            network,
            faults,
            observed: Observed::default(),
        }
    }

    /// Takes the next event and carries it out.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<After> {
        let (at, event) = self.queue.pop()?;
        debug_assert!(at >= self.now, "time runs forward");
        self.now = at;
        match event {
            Event::Doorbell {
                qp,
                stamp,
                rung,
                thread,
            } => self.doorbell(qp, stamp, rung, thread),
            Event::Engine { host, engine } => self.engine_event(host, engine),
            Event::Switch {
                switch,
                port,
                packet,
            } => self.switch_event(switch, port, packet),
            Event::Gathered {
                switch,
                port,
                packet,
            } => self.gathered_event(switch, port, packet),
            Event::Port { switch, port } => self.port_event(switch, port),
            Event::Arrive { host, packet } => self.arrive(host, packet),
            Event::Place { packet } => self.place_event(packet),
            Event::PlaceRest { packet } => self.place_rest_event(packet),
            Event::Emit { packet } => self.late_packet(packet),
            Event::Complete { entry } => self.completion_event(entry),
            Event::Timer { qp, stamp } => self.timer_event(qp, stamp),
            Event::Resume { qp, stamp } => self.resume_event(qp, stamp),
            Event::Pause {
                target,
                priority,
                stop,
            } => self.pause_event(target, priority, stop),
            Event::Rate { host, flow, stamp } => self.rate_event(host, flow, stamp),
            Event::Pace { host, flow, stamp } => self.pace_event(host, flow, stamp),
            Event::Slice { core, stamp } => self.slice_event(core, stamp),
            Event::Thread { thread, stamp } => {
                let ready = self.ready(thread, stamp);
                return Some(ready.map_or(After::Nothing, After::Step));
            }
        }
        Some(After::Nothing)
    }

    /// A packet that a fault held back enters the network; rules are not consulted again.
    fn late_packet(&mut self, packet: u32) {
        self.held_back -= 1;
        let (from, to) = (self.packets[packet].from, self.packets[packet].to);
        if from == to {
            self.send(from, self.now, to, Event::Arrive { host: to, packet });
        } else {
            self.enter_network(packet, self.now);
        }
    }

    /// Wakes the threads that poll this range of memory.
    pub(crate) fn wake_watchers(&mut self, host: u16, key: u32, offset: u64, bytes: u64) {
        let mut at = 0;
        loop {
            let Some(region) = self.hosts[usize::from(host)].regions.find_mut(key) else {
                return;
            };
            let Some(watch) = region.watches.get_mut(at) else {
                return;
            };
            at += 1;
            if watch.armed && watch.start < offset + bytes && offset < watch.end {
                let thread = watch.thread;
                if watch.once {
                    watch.armed = false;
                    region.looker.store(u32::MAX, Ordering::Relaxed);
                }
                let now = self.now;
                self.wake_thread(thread, now);
            }
        }
    }

    /// Keeps an event until it is fetched.
    pub(crate) fn push_event(&mut self, host: u16, event: AsyncEvent) {
        let events = &mut self.hosts[usize::from(host)].events;
        if events.len() < EVENTS_MAX && !events.contains(&event) {
            events.push_back(event);
        }
    }

    /// Raises the event of a completion channel.
    pub(crate) fn raise(&mut self, channel: u32) {
        let state = &mut self.channels[channel];
        state.raised = true;
        if let Some(event) = &state.event {
            // A failure cannot be handled, and a full counter is an event too.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        let waiters = std::mem::take(&mut state.waiters);
        for &thread in &waiters {
            let now = self.now;
            self.rouse_thread(thread, now);
        }
    }
}
