//! Runs your own program on simulated hosts: servers and clients in virtual time, under faults, reproducible from a
//! seed.
//!
//! A [`Simulation`] has named hosts. [`Simulation::server`] puts a server on a host, [`Simulation::program`] blocking
//! code, which connects by the name of a host ([`Host::connect`]) and then makes calls as usual. [`Simulation::fault`]
//! injects a fault at a given time, [`Simulation::draw_faults`] draws faults and times from the seed.
//! [`Simulation::run`] runs everything on the calling thread, until each program has ended; a program that panics or
//! returns an error ends the run with an error that names the seed.
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
//! It is the same RPC that runs on real devices, over the simulated one (`dunlin-sim`). Rules for programs:
//!
//! - time is virtual: [`Host::now`] and [`Host::sleep`] instead of those of the standard library. A program that polls
//!   for something other than Dunlin must sleep between polls, or time does not advance;
//! - all hosts share the calling thread and its thread-locals, and switch where a program waits or is charged for work:
//!   no lock of the standard library may be held across a call or a sleep;
//! - threads of the RPC (pollers, workers and others) are simulated. Threads that a program starts itself are threads
//!   of the real machine, which must not make calls;
//! - a run is determined by its seed, as long as programs depend on nothing else: no clock, no random numbers except
//!   those of [`Host::random`], no iteration order of a hash map.

mod draw;
mod failed;
mod fault;
mod host;
mod machines;
mod programs;
mod timeline;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use crate::ServerBuilder;

pub use draw::Kind;
pub use failed::{Failed, Reason};
pub use fault::Fault;
pub use host::Host;

use host::Shared;
use machines::Machines;
use programs::{NewProgram, NewServer, Programs};
use timeline::Timeline;

/// Interval between two checks whether all programs have ended.
const LOOK: Duration = Duration::from_micros(100);
/// Default limit of virtual time for programs, see [`Simulation::within`]: more than the seconds after which a device
/// gives up a peer.
const WITHIN: Duration = Duration::from_secs(60);

/// The result of a program.
pub type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// Hosts, what runs on them, and the faults.
pub struct Simulation {
    seed: u64,
    hardware: (HostParameters, NicParameters, SwitchParameters),
    hosts: Vec<String>,
    servers: Vec<(usize, NewServer)>,
    programs: Vec<(usize, NewProgram)>,
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

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// A digest of all events of the simulation: equal runs have equal digests.
    pub digest: u64,
    /// Number of events.
    pub events: u64,
    /// Virtual time until the last program had ended.
    pub elapsed: Duration,
    /// The faults, as sentences, with their times.
    pub faults: Vec<(Duration, String)>,
}

impl Simulation {
    /// Creates a simulation without hosts. Each host is an AMD EPYC 7452 with a ConnectX-5, all on one switch.
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

    /// Sets other processors, NICs and another switch for all hosts. A preset that needs in-order placement reports
    /// this when it is connected; a NIC has it with `in_order_placement = 1.0`.
    pub fn hardware(
        &mut self,
        processor: HostParameters,
        nic: NicParameters,
        switch: SwitchParameters,
    ) -> &mut Self {
        self.hardware = (processor, nic, switch);
        self
    }

    /// Sets the virtual time that programs have to end; a minute by default. A run that takes longer fails, and reports
    /// which have not ended.
    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.within = limit;
        self
    }

    /// Puts a server on a host ([`crate::Server::unbound`]), at most one. It ends after the programs.
    pub fn server(&mut self, host: &str, server: ServerBuilder) -> &mut Self {
        let host = self.host(host);
        self.servers
            .push((host, NewServer::Once(Some(Box::new(server)))));
        self
    }

    /// Like [`Simulation::server`], created at each start of the host: what `make` puts into it is its memory, which is
    /// empty after a [`Fault::Restart`]. State that must survive, such as a disk, is captured by `make`.
    pub fn restartable_server(
        &mut self,
        host: &str,
        make: impl Fn() -> ServerBuilder + 'static,
    ) -> &mut Self {
        let host = self.host(host);
        let server = NewServer::EachStart(Box::new(make));
        self.servers.push((host, server));
        self
    }

    /// Puts a program on a host, possibly beside others: a thread of its own, on the next core.
    pub fn program(
        &mut self,
        host: &str,
        run: impl FnOnce(&Host) -> Ended + Send + 'static,
    ) -> &mut Self {
        let host = self.host(host);
        let program = NewProgram::Once(Some(Box::new(run)));
        self.programs.push((host, program));
        self
    }

    /// Like [`Simulation::program`], run at each start of the host, even if it had ended before ([`Host::restarts`]
    /// returns the number of restarts).
    pub fn restartable_program(
        &mut self,
        host: &str,
        run: impl Fn(&Host) -> Ended + Send + Sync + 'static,
    ) -> &mut Self {
        let host = self.host(host);
        let program = NewProgram::EachStart(Arc::new(run));
        self.programs.push((host, program));
        self
    }

    /// Injects a fault at a time after the start.
    pub fn fault(&mut self, at: Duration, fault: Fault) -> &mut Self {
        self.faults.push((at, fault));
        self
    }

    /// Draws up to `most` faults of these kinds from the seed, which begin within `when` and last 10 us to 2 ms each.
    /// At most one of them is a crash.
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

    /// Whether everything on a host is restartable, and there is something.
    fn is_restartable(&self, host: usize) -> bool {
        let servers = self.servers.iter().filter(|(of, _)| *of == host);
        let programs = self.programs.iter().filter(|(of, _)| *of == host);
        let servers = servers.map(|(_, new)| new.is_restartable());
        let mut all = servers
            .chain(programs.map(|(_, new)| new.is_restartable()))
            .peekable();
        all.peek().is_some() && all.all(|is_restartable| is_restartable)
    }

    /// Maximum number of restarts of each host.
    fn restarts(&self) -> Result<Vec<usize>, Reason> {
        let mut restarts = vec![0; self.hosts.len()];
        for (_, fault) in &self.faults {
            for name in fault.hosts() {
                let host = self.hosts.iter().position(|host| host == name);
                let host = host.ok_or_else(|| Reason::NoHost {
                    name: name.clone(),
                    hosts: self.hosts.clone(),
                })?;
                if matches!(fault, Fault::Restart { .. }) {
                    restarts[host] += 1;
                    if !self.is_restartable(host) {
                        return Err(Reason::NotRestartable(name.clone()));
                    }
                }
            }
        }
        Ok(restarts)
    }

    /// Runs the simulation on this thread until all programs have ended.
    ///
    /// # Errors
    /// When a program panics, returns an error or does not end, a server cannot be started, or a fault names no host.
    /// The error names the seed.
    pub fn run(mut self) -> Result<Report, Failed> {
        let seed = self.seed;
        let restartable = (0..self.hosts.len()).filter(|host| self.is_restartable(*host));
        let restartable: Vec<String> = restartable.map(|host| self.hosts[host].clone()).collect();
        for order in std::mem::take(&mut self.drawn) {
            let faults = order.draw(seed, &self.hosts, &restartable);
            self.faults.extend(faults);
        }
        let failed = |at, reason, faults| Failed {
            seed,
            at,
            reason,
            faults,
        };
        let early = |reason| failed(Duration::ZERO, reason, Vec::new());
        let restarts = self.restarts().map_err(early)?;
        let machines = Machines::new(seed, &self.hardware, &restarts);
        let cluster = machines.cluster().clone();
        let serving = self.servers.iter().map(|(host, _)| *host).collect();
        let shared = Arc::new(Shared::new(seed, self.hosts, serving));
        let mut timeline = Timeline::new(machines, &shared, self.faults);
        let mut programs = Programs::new(&shared, self.servers, self.programs);
        programs.start_all(timeline.machines()).map_err(early)?;
        let step = |until: Duration| {
            let now = Duration::from_nanos(cluster.now_ns());
            cluster.run_for(until.saturating_sub(now).as_nanos().max(1) as u64);
            Duration::from_nanos(cluster.now_ns())
        };
        let mut now = Duration::ZERO;
        let reason = loop {
            let (back, down) = timeline.advance(now);
            let mut started = back
                .into_iter()
                .filter(|host| !timeline.machines().is_down(*host))
                .map(|host| programs.start(host, timeline.machines()));
            if let Some(Err(reason)) = started.find(Result::is_err) {
                break Some(reason);
            }
            down.into_iter().for_each(|host| programs.stop(host));
            if let Some(reason) = programs.failed() {
                break Some(reason);
            }
            let running = programs.running(timeline.machines());
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
        let (machines, faults) = timeline.end();
        programs.end(&machines);
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
