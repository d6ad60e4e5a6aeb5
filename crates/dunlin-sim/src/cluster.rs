//! The cluster: how it is built, run, and controlled from outside.

use std::sync::Arc;

use crate::cores::Step;
use crate::counters::{Counters, SwitchCounters};
use crate::division::Division;
use crate::event::{after, NS};
use crate::faults::{FaultRule, Faults};
use crate::inner::Inner;
use crate::network::{Link, Network, Paths, Switch};
use crate::parameters::{HostParameters, NicParameters, SwitchParameters};
use crate::placed::Placed;
use crate::random::Random;
use crate::threads::{self, TOO_MANY_THREADS};
use crate::world::{Host, World};
use crate::SimDevice;

/// A host of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub(crate) u16);

impl HostId {
    /// Number of the host, in the order in which hosts were added.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// A switch of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SwitchId(pub(crate) u16);

impl SwitchId {
    /// Number of the switch, in the order in which switches were added.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// A simulated thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(pub(crate) u32);

impl ThreadId {
    /// The host that the thread runs on.
    pub fn host(self) -> HostId {
        HostId(threads::host_of(self.0))
    }

    /// Number of the thread on its host, in the order in which threads were started there.
    pub fn number(self) -> usize {
        threads::index_of(self.0)
    }
}

/// Builder of a cluster.
#[derive(Debug)]
pub struct ClusterBuilder {
    seed: u64,
    parts: usize,
    always_divided: bool,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    /// Switch and port of each host.
    uplinks: Vec<(u16, u16)>,
}

impl ClusterBuilder {
    /// Creates an empty builder. Equal seeds, builds and uses give equal runs.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            parts: 1,
            always_divided: false,
            hosts: Vec::new(),
            switches: Vec::new(),
            uplinks: Vec::new(),
        }
    }

    /// Divides the hosts into this many parts, but at most as many as there are hosts; [`Cluster::run_for`] simulates
    /// them at once, each in a real thread of its own. The default is one. The run is the same, event by event, as long
    /// as programs on different hosts share nothing outside of the simulation whose value depends on their order: sums
    /// may be shared, and flags that change only between two calls of `run_for`. A simulated thread must not use the
    /// objects of a host of another part.
    ///
    /// While an [`Observer`](crate::Observer) or a [`FaultRule`] is installed, and in everything but `run_for`, events
    /// still happen one after the other, slower than in a cluster of one part.
    #[must_use]
    pub fn parts(mut self, parts: usize) -> Self {
        self.parts = parts;
        self
    }

    /// Runs the parts at once even where that is slower because little happens or the machine has other work; otherwise
    /// they would take turns for a while. For tests that this changes nothing.
    #[must_use]
    pub fn always_divided(mut self) -> Self {
        self.always_divided = true;
        self
    }

    /// Adds a switch.
    pub fn switch(&mut self, parameters: SwitchParameters) -> SwitchId {
        let number = self.switches.len() as u16;
        self.switches.push(Switch {
            parameters,
            ports: Vec::new(),
            buffer_bytes: 0,
            counters: SwitchCounters::default(),
            random: Random::of(self.seed, "switch", u64::from(number)),
            salt: Random::of(self.seed, "paths", u64::from(number)).next(),
        });
        SwitchId(number)
    }

    /// Adds a host with its NIC, connected to a port of the switch at the NIC's rate.
    ///
    /// # Panics
    /// Beyond 32,768 hosts.
    pub fn host(&mut self, host: HostParameters, nic: NicParameters, switch: SwitchId) -> HostId {
        let number = self.hosts.len();
        assert!(number < 0x8000, "32,768 hosts at most");
        let gbit_s = nic.link_gbit_s;
        self.hosts
            .push(Host::new(self.seed, number as u64, host, nic));
        let port = self.switches[switch.number()].add_port(Link::Host(number as u16), gbit_s);
        self.uplinks.push((switch.0, port));
        HostId(number as u16)
    }

    /// Adds a cable between two switches.
    pub fn link(&mut self, one: SwitchId, other: SwitchId, gbit_s: f64) {
        let ports = |switch: SwitchId| self.switches[switch.number()].ports.len() as u16;
        let (here, there) = (ports(one), ports(other) + u16::from(one == other));
        self.switches[one.number()].add_port(Link::Switch(other.0, there), gbit_s);
        self.switches[other.number()].add_port(Link::Switch(one.0, here), gbit_s);
    }

    /// Creates the cluster, at time zero.
    pub fn build(self) -> Cluster {
        let paths = Paths::new(&self.switches, &self.uplinks);
        let asked = (self.parts, self.always_divided);
        let division = Division::new(asked, &self.hosts, &self.switches, &paths);
        let (division, paths) = (Arc::new(division), Arc::new(paths));
        let faults = Arc::new(Faults::new(self.seed));
        let hosts = Placed::divide(self.hosts, &division.hosts, division.parts);
        let switches = Placed::divide(self.switches, &division.switches, division.parts);
        let worlds = hosts.into_iter().zip(switches).enumerate();
        let worlds = worlds.map(|(part, (hosts, switches))| {
            let paths = Arc::clone(&paths);
            let network = Network { switches, paths };
            let place = (Arc::clone(&division), part);
            World::new(place, hosts, network, Arc::clone(&faults))
        });
        Cluster {
            owner: Arc::new(Owner {
                inner: Arc::new(Inner::new(worlds.collect())),
            }),
        }
    }
}

/// A simulated cluster. Clones are handles; its threads end when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Cluster {
    owner: Arc<Owner>,
}

/// Ends the threads, whose objects hold the world, when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    inner: Arc<Inner>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        for part in 0..self.inner.parts() {
            let mut world = self.inner.part(part);
            let threads = world.threads.iter_mut();
            let steps: Vec<_> = threads.filter_map(|thread| thread.step.take()).collect();
            drop(world);
            drop(steps);
        }
    }
}

impl Cluster {
    /// Creates a cluster of `hosts` equal hosts on one switch.
    pub fn star(
        seed: u64,
        hosts: usize,
        host: &HostParameters,
        nic: &NicParameters,
        switch: &SwitchParameters,
    ) -> Self {
        let mut builder = ClusterBuilder::new(seed);
        let switch = builder.switch(switch.clone());
        for _ in 0..hosts {
            builder.host(host.clone(), nic.clone(), switch);
        }
        builder.build()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.owner.inner
    }

    /// All hosts.
    pub fn hosts(&self) -> Vec<HostId> {
        let count = self.inner().division.hosts.len() as u16;
        (0..count).map(HostId).collect()
    }

    /// Number of parts that may be simulated at once.
    pub fn parts(&self) -> usize {
        self.inner().parts()
    }

    /// The device of a host.
    pub fn device(&self, host: HostId) -> SimDevice {
        SimDevice::new(Arc::clone(self.inner()), host.0)
    }

    /// Starts a thread on a core of a host, numbered from 0; several threads share a core's time.
    ///
    /// # Panics
    /// When the host has no such core, or has had 131,071 threads.
    pub fn spawn(&self, host: HostId, core: usize, step: impl Step + 'static) -> ThreadId {
        let mut world = self.inner().world(host.0);
        let cores = world.hosts[host.number()].cores;
        assert!((core as u32) < cores, "core {core} of {cores}");
        let thread = world.spawn(host.0, core as u32, Box::new(step), false);
        drop(world);
        self.inner().notify();
        ThreadId(thread.expect(TOO_MANY_THREADS))
    }

    /// Starts a thread with a stack of its own on a core of a host: `run` may block as on a real thread, through
    /// [`dunlin_verbs::thread`] and completion channels. A cluster with such threads is driven by one real thread, and
    /// thread-locals belong to that thread. A thread that still waits when the cluster ends is left as it is, with
    /// everything that it owns, so let such threads end before.
    ///
    /// # Panics
    /// When the host has no such core, or has had 131,071 threads. A panic of the thread is resumed in the code that
    /// lets time pass.
    pub fn spawn_thread(
        &self,
        host: HostId,
        core: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> ThreadId {
        let thread = self
            .inner()
            .spawn_stacked(host.0, core as u32, Box::new(run));
        ThreadId(thread.expect(TOO_MANY_THREADS))
    }

    /// Wakes a thread that polls or blocks.
    pub fn wake(&self, thread: ThreadId) {
        let mut world = self.inner().world(threads::host_of(thread.0));
        let now = self.inner().time(&world);
        world.rouse_thread(thread.0, now);
        drop(world);
        self.inner().notify();
    }

    /// Virtual time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        let world = self.inner().part(0);
        self.inner().time(&world) / NS
    }

    /// Lets virtual time pass. Virtual time ends after 106 days: what is due later never happens.
    pub fn run_for(&self, nanoseconds: u64) {
        let until = after(self.inner().part(0).now, nanoseconds);
        self.inner().run_until(until);
    }

    /// Lets events happen until there are none left or `nanoseconds` have passed. Returns whether none are left.
    pub fn settle(&self, nanoseconds: u64) -> bool {
        let until = after(self.inner().part(0).now, nanoseconds);
        self.inner().run_while(until, |held| held.is_quiet())
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.inner().events()
    }

    /// Digest of all events so far: equal runs have equal digests.
    pub fn digest(&self) -> u64 {
        self.inner().digest()
    }

    /// Number of packets inside a NIC or between two.
    pub fn packets_in_flight(&self) -> usize {
        let sent = |world: &World| world.outbox.iter().map(Vec::len).sum::<usize>();
        let worlds = self.inner().all();
        worlds
            .map(|world| world.packets.used() + sent(&world))
            .sum()
    }

    /// Counters of a host and its NIC.
    pub fn counters(&self, host: HostId) -> Counters {
        self.inner().world(host.0).hosts[host.number()].nic.counters
    }

    /// Counters of a switch.
    pub fn switch_counters(&self, switch: SwitchId) -> SwitchCounters {
        let part = self.inner().division.switches[switch.number()];
        self.inner().part(usize::from(part)).network.switches[switch.number()].counters
    }

    /// Installs a fault rule, which is in force until its guard is dropped.
    pub fn fault(&self, rule: FaultRule) -> RuleGuard {
        let id = self.inner().faults.install(rule);
        RuleGuard {
            inner: Arc::clone(self.inner()),
            id,
        }
    }

    /// Cuts the given hosts off from all others until the guard is dropped.
    pub fn partition(&self, side: &[HostId]) -> RuleGuard {
        let hosts = self.hosts().into_iter();
        let sides = hosts.map(|host| side.contains(&host)).collect();
        let id = self.inner().faults.partition(sides);
        RuleGuard {
            inner: Arc::clone(self.inner()),
            id,
        }
    }

    /// Stops the host for ever: no steps, no packets in or out.
    pub fn crash(&self, host: HostId) {
        let mut world = self.inner().world(host.0);
        let crashed = &mut world.hosts[host.number()];
        crashed.crashed = true;
        crashed.nic.ring.clear();
        // Answers that wait behind a long one are not sent any more.
        for qp in world.hosts[host.number()].pairs() {
            world.drop_answers(qp);
        }
    }

    /// Pauses the threads of the host for this long, like processes that were stopped. Its NIC goes on, and sleeps that
    /// would have ended meanwhile end when the threads go on.
    pub fn pause(&self, host: HostId, nanoseconds: u64) {
        let mut world = self.inner().world(host.0);
        let until = after(world.now, nanoseconds);
        let paused = &mut world.hosts[host.number()].paused_until;
        *paused = until.max(*paused);
    }

    /// From now on, operations of the host's cores and of the receiving side of its NIC take `factor` times as long.
    pub fn slow_down(&self, host: HostId, factor: f64) {
        self.inner().world(host.0).hosts[host.number()].slowness = factor.max(0.001);
    }

    /// Cuts the host's NIC off from host memory for this long, as a machine check (MCE) does: packets are accepted and
    /// kept while the NIC has room, but nothing is processed, sent or completed. Where the network uses pauses, these
    /// spread.
    pub fn stall_dma(&self, host: HostId, nanoseconds: u64) {
        let mut world = self.inner().world(host.0);
        let until = after(world.now, nanoseconds);
        let nic = &mut world.hosts[host.number()].nic;
        nic.dma_from = until.max(nic.dma_from);
        nic.up_free = until.max(nic.up_free);
    }

    /// From now on the host's NIC has this share of its bandwidth to memory, in both directions, and processors take
    /// the rest. 1 restores all of it.
    pub fn limit_dma(&self, host: HostId, share: f64) {
        let mut world = self.inner().world(host.0);
        world.hosts[host.number()].nic.dma_slowness = 1.0 / share.clamp(0.001, 1.0);
    }

    /// From now on no request of the host's present queue pairs leaves it, and none fails, as if the NIC had lost their
    /// doorbells and timers. Responses and acknowledgements are still sent, and queue pairs created later work.
    pub fn stall_requests(&self, host: HostId) {
        let mut world = self.inner().world(host.0);
        for qp in world.hosts[host.number()].pairs() {
            world.pairs[qp as usize].stalled = true;
        }
    }

    /// Moves all queue pairs of a host to the error state, as a failure of its NIC does.
    pub fn fail_queue_pairs(&self, host: HostId) {
        let numbers: Vec<u32> = {
            let world = self.inner().world(host.0);
            let pairs = world.hosts[host.number()].pairs();
            let number = |qp: &u32| world.pairs[*qp as usize].number;
            pairs.iter().map(number).collect()
        };
        for number in numbers {
            self.fail_queue_pair(host, number);
        }
    }

    /// Moves one queue pair of a host to the error state, as a failure of the NIC does. Returns whether the host has a
    /// queue pair of this number; if not, nothing happens.
    pub fn fail_queue_pair(&self, host: HostId, number: u32) -> bool {
        let mut world = self.inner().world(host.0);
        let pair = world.hosts[host.number()].pair_of(number);
        if let Some(pair) = pair {
            world.fail_pair(pair);
            world.push_event(host.0, dunlin_verbs::AsyncEvent::QueuePairFatal(number));
        }
        drop(world);
        self.inner().notify();
        pair.is_some()
    }

    /// The host at the other end of a queue pair, or `None` if there is no queue pair of this number or it is not
    /// connected, like every one over datagrams.
    pub fn peer_of(&self, host: HostId, number: u32) -> Option<HostId> {
        let world = self.inner().world(host.0);
        let pair = world.hosts[host.number()].pair_of(number)?;
        let peer = world.pairs[pair as usize].peer?;
        Some(HostId(peer.host))
    }
}

/// Keeps a fault in force until dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct RuleGuard {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for RuleGuard {
    fn drop(&mut self) {
        self.inner.faults.remove(self.id);
    }
}
