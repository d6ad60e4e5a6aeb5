//! Your own program on simulated hosts: servers and clients in virtual time, under faults, by a seed that anyone can
//! replay.
//!
//! A [`Simulation`] has hosts with names. [`Simulation::server`] puts a server on one, [`Simulation::program`] blocking
//! code, which connects by the name of a host ([`Host::connect`]) and then calls as anywhere. [`Simulation::fault`] does
//! something to them at a time, [`Simulation::draw_faults`] draws what and when from the seed. [`Simulation::run`] runs
//! all of it on the calling thread, until each program has ended; a program that panics or gives an error ends the run
//! with an error that names the seed.
//!
//! ```
//! use std::time::Duration;
//! use dunlin::{sim::{Kind, Simulation}, Client, Server};
//!
//! # fn main() -> Result<(), dunlin::sim::Failed> {
//! for seed in 0..5 {
//!     let mut simulation = Simulation::new(seed);
//!     let server = Server::unbound().handle(1, |request, reply| reply.write(request.payload()));
//!     simulation.server("server", server);
//!     simulation.program("client", |host| {
//!         let client = host.connect("server", Client::builder())?;
//!         for _ in 0..10 {
//!             assert_eq!(&*client.call(1, b"hello")?, b"hello");
//!             host.sleep(Duration::from_micros(10));
//!         }
//!         Ok(())
//!     });
//!     simulation.draw_faults(Duration::ZERO..Duration::from_micros(200), 3, &[Kind::Loss, Kind::Pause]);
//!     simulation.run()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It is the same RPC that runs on real devices, over the simulated one (`dunlin-sim`). What to know of programs there:
//!
//! - time is virtual: [`Host::now`] and [`Host::sleep`] instead of those of the standard library. A program that waits
//!   for something else than Dunlin must sleep between its looks, or time stands still;
//! - all hosts share the calling thread and its thread-locals, and take turns where a program waits or is charged for
//!   work: no lock of the standard library may be held over a call or a sleep;
//! - handlers run on the server's pollers; those on workers do not run here;
//! - a run is as its seed, as long as programs take nothing from outside: no clock, no random numbers but those of
//!   [`Host::random`], no order of a hash map.

mod draw;
mod failed;
mod fault;
mod host;
mod timeline;

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Device;

use crate::{LocalServer, ServerBuilder};

pub use draw::Kind;
pub use failed::{Failed, Reason};
pub use fault::Fault;
pub use host::Host;

use host::Shared;
use timeline::Timeline;

/// Between two looks whether all programs have ended.
const LOOK: Duration = Duration::from_micros(100);
/// In which a server ends after the programs.
const ENDING: Duration = Duration::from_millis(10);
/// Virtual time that programs have, unless [`Simulation::within`] says otherwise: beyond the seconds that a device takes
/// to give up a peer.
const WITHIN: Duration = Duration::from_secs(60);

/// What a program gives.
pub type Ended = Result<(), Box<dyn Error + Send + Sync>>;

type Program = Box<dyn FnOnce(&Host) -> Ended + Send>;

/// Hosts, what runs on them, and what happens to them.
pub struct Simulation {
    seed: u64,
    hardware: (HostParameters, NicParameters, SwitchParameters),
    hosts: Vec<String>,
    servers: Vec<(usize, ServerBuilder)>,
    programs: Vec<(usize, Program)>,
    faults: Vec<(Duration, Fault)>,
    drawn: Vec<draw::Order>,
    within: Duration,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("hosts", &self.hosts)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// What a run was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Of all events of the simulation: equal runs have equal digests.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Virtual time until the last program had ended.
    pub elapsed: Duration,
    /// The faults that came, as sentences, with their time.
    pub faults: Vec<(Duration, String)>,
}

impl Simulation {
    /// One without hosts. Hosts are AMD EPYC 7452 with a ConnectX-5 each, on one switch.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            hardware: (
                HostParameters::epyc_7452(),
                NicParameters::connectx_5(),
                SwitchParameters::z9264f(),
            ),
            hosts: Vec::new(),
            servers: Vec::new(),
            programs: Vec::new(),
            faults: Vec::new(),
            drawn: Vec::new(),
            within: WITHIN,
        }
    }

    /// Other processors, NICs and a switch for all hosts. A preset that wants bytes to be placed in order says so when
    /// it is connected; a NIC does with `in_order_placement = 1.0`.
    pub fn hardware(
        &mut self,
        processor: HostParameters,
        nic: NicParameters,
        switch: SwitchParameters,
    ) -> &mut Self {
        self.hardware = (processor, nic, switch);
        self
    }

    /// Virtual time that programs have to end, a minute unless this says otherwise. A run that takes longer fails, and
    /// says who has not ended.
    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.within = limit;
        self
    }

    /// Puts a server on a host ([`crate::Server::unbound`]), one at most. It ends after the programs.
    pub fn server(&mut self, host: &str, server: ServerBuilder) -> &mut Self {
        let host = self.host(host);
        self.servers.push((host, server));
        self
    }

    /// Puts a program on a host, beside others if there are some: a thread of its own, on the next core.
    pub fn program(
        &mut self,
        host: &str,
        run: impl FnOnce(&Host) -> Ended + Send + 'static,
    ) -> &mut Self {
        let host = self.host(host);
        self.programs.push((host, Box::new(run)));
        self
    }

    /// What happens at a time after the beginning.
    pub fn fault(&mut self, at: Duration, fault: Fault) -> &mut Self {
        self.faults.push((at, fault));
        self
    }

    /// Draws up to `most` faults of these kinds from the seed, which begin within `when`, each for 10 us to 2 ms. Of
    /// crashes there is one at most.
    pub fn draw_faults(
        &mut self,
        when: std::ops::Range<Duration>,
        most: usize,
        kinds: &[Kind],
    ) -> &mut Self {
        self.drawn.push(draw::Order {
            when,
            most,
            kinds: kinds.to_vec(),
        });
        self
    }

    fn host(&mut self, name: &str) -> usize {
        let known = self.hosts.iter().position(|host| host == name);
        known.unwrap_or_else(|| {
            self.hosts.push(name.to_owned());
            self.hosts.len() - 1
        })
    }

    /// Runs it, on this thread, until all programs have ended.
    ///
    /// # Errors
    /// When a program panics, gives an error or does not end, a server cannot be started, or a fault names no host. The
    /// error names the seed.
    pub fn run(mut self) -> Result<Report, Failed> {
        let seed = self.seed;
        for order in std::mem::take(&mut self.drawn) {
            let faults = order.draw(seed, &self.hosts);
            self.faults.extend(faults);
        }
        let (processor, nic, switch) = &self.hardware;
        let cluster = Cluster::star(seed, self.hosts.len().max(1), processor, nic, switch);
        let failed = |at, reason, faults| Failed {
            seed,
            at,
            reason,
            faults,
        };
        let early = |reason| failed(Duration::ZERO, reason, Vec::new());
        let shared = Arc::new(Shared::new(seed, self.hosts.clone()));
        let mut timeline = Timeline::new(&cluster, &shared, self.faults).map_err(early)?;
        let servers = serve(&cluster, &shared, self.servers).map_err(early)?;
        let programs = Programs::start(&cluster, &shared, self.programs);
        let step = |until: Duration| {
            let now = Duration::from_nanos(cluster.now_ns());
            cluster.run_for(until.saturating_sub(now).as_nanos().max(1) as u64);
            Duration::from_nanos(cluster.now_ns())
        };
        let mut now = Duration::ZERO;
        let reason = loop {
            timeline.advance(now);
            if let Some(reason) = programs.failed() {
                break Some(reason);
            }
            let running = programs.running(|host| timeline.has_crashed(host));
            if running.is_empty() {
                break None;
            }
            if now >= self.within {
                break Some(Reason::Hanging(running));
            }
            let look = (now + LOOK).min(self.within);
            now = step(timeline.next().map_or(look, |next| next.min(look)));
        };
        let (digest, events) = (cluster.digest(), cluster.events());
        let crashed = timeline.crashed().to_vec();
        let faults = timeline.end();
        end(&cluster, servers, &crashed);
        match reason {
            Some(reason) => Err(failed(now, reason, faults)),
            None => Ok(Report {
                digest,
                events,
                elapsed: now,
                faults,
            }),
        }
    }
}

type Servers = Vec<(usize, LocalServer)>;

fn serve(
    cluster: &Cluster,
    shared: &Shared,
    servers: Vec<(usize, ServerBuilder)>,
) -> Result<Servers, Reason> {
    let mut served = Servers::new();
    let mut acceptors = BTreeMap::new();
    for (host, server) in servers {
        let name = shared.names[host].clone();
        let started = server.serve_on(cluster.device(cluster.hosts()[host]));
        let server = started.map_err(|source| Reason::Serve {
            host: name.clone(),
            source: Box::new(source),
        })?;
        if acceptors.insert(name.clone(), server.acceptor()).is_some() {
            return Err(Reason::SecondServer(name));
        }
        served.push((host, server));
    }
    shared.serve(acceptors);
    Ok(served)
}

/// Servers of hosts that have crashed are left as they are: nobody ends a process that was killed.
fn end(cluster: &Cluster, servers: Servers, crashed: &[usize]) {
    for (host, server) in servers {
        match crashed.contains(&host) {
            true => std::mem::forget(server),
            false => drop(cluster.spawn_thread(cluster.hosts()[host], 0, move || drop(server))),
        }
    }
    cluster.run_for(ENDING.as_nanos() as u64);
}

/// The threads of programs.
struct Programs {
    hosts: Vec<(usize, String)>,
    ended: Arc<Vec<AtomicBool>>,
    failed: Arc<Mutex<Option<Reason>>>,
}

impl Programs {
    fn start(cluster: &Cluster, shared: &Arc<Shared>, programs: Vec<(usize, Program)>) -> Self {
        let mut cores = vec![0; shared.names.len()];
        let ended: Arc<Vec<AtomicBool>> =
            Arc::new(programs.iter().map(|_| AtomicBool::new(false)).collect());
        let failed: Arc<Mutex<Option<Reason>>> = Arc::default();
        let mut hosts = Vec::new();
        for (number, (place, run)) in programs.into_iter().enumerate() {
            let name = shared.names[place].clone();
            let device = cluster.device(cluster.hosts()[place]);
            let core = cores[place] % device.cores();
            cores[place] += 1;
            let host = Host::new(place, number, device, Arc::clone(shared));
            let (ended, failed) = (Arc::clone(&ended), Arc::clone(&failed));
            hosts.push((place, name.clone()));
            cluster.spawn_thread(cluster.hosts()[place], core, move || {
                let program = name;
                let given = catch_unwind(AssertUnwindSafe(|| run(&host)));
                let reason = match given {
                    Ok(Ok(())) => None,
                    Ok(Err(source)) => Some(Reason::Program { program, source }),
                    Err(panic) => Some(Reason::panicked(program, &*panic)),
                };
                if let Some(reason) = reason {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(reason);
                }
                ended[number].store(true, Ordering::Relaxed);
            });
        }
        Self {
            hosts,
            ended,
            failed,
        }
    }

    /// The first that has failed.
    fn failed(&self) -> Option<Reason> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }

    /// Hosts whose programs run, without those that have crashed.
    fn running(&self, has_crashed: impl Fn(usize) -> bool) -> Vec<String> {
        let all = self.hosts.iter().zip(self.ended.iter());
        let running =
            all.filter(|((host, _), ended)| !ended.load(Ordering::Relaxed) && !has_crashed(*host));
        running.map(|((_, name), _)| name.clone()).collect()
    }
}
