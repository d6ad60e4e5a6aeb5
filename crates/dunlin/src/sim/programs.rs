//! What runs on the hosts: servers and programs, either once or at each start of their host.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_sim::HostId;
use dunlin_verbs::Device;

use super::host::{Host, Shared};
use super::machines::Machines;
use super::{Ended, Reason};
use crate::{LocalServer, ServerBuilder};

/// Time within which a server ends after the programs.
const ENDING: Duration = Duration::from_millis(10);

/// A server as added to the simulation.
pub(super) enum NewServer {
    Once(Option<Box<ServerBuilder>>),
    EachStart(Box<dyn Fn() -> ServerBuilder>),
}

type Program = Box<dyn FnOnce(&Host) -> Ended + Send>;

/// A program as added to the simulation.
pub(super) enum NewProgram {
    Once(Option<Program>),
    EachStart(Arc<dyn Fn(&Host) -> Ended + Send + Sync>),
}

impl NewServer {
    pub(super) fn is_restartable(&self) -> bool {
        matches!(self, Self::EachStart(_))
    }

    fn make(&mut self) -> Option<ServerBuilder> {
        match self {
            Self::Once(server) => server.take().map(|server| *server),
            Self::EachStart(make) => Some(make()),
        }
    }
}

impl NewProgram {
    pub(super) fn is_restartable(&self) -> bool {
        matches!(self, Self::EachStart(_))
    }

    fn make(&mut self) -> Option<Program> {
        match self {
            Self::Once(run) => run.take(),
            Self::EachStart(run) => {
                let run = Arc::clone(run);
                Some(Box::new(move |host| run(host)))
            }
        }
    }
}

/// Values with their hosts.
type On<T> = Vec<(usize, T)>;

/// The programs; see the module's documentation.
pub(super) struct Programs {
    shared: Arc<Shared>,
    new_servers: On<NewServer>,
    new_programs: On<NewProgram>,
    servers: On<LocalServer>,
    runs: Vec<Run>,
    failed: Arc<Mutex<Option<Reason>>>,
}

/// A started program.
struct Run {
    host: usize,
    on: HostId,
    has_ended: Arc<AtomicBool>,
}

impl Programs {
    pub(super) fn new(
        shared: &Arc<Shared>,
        new_servers: On<NewServer>,
        new_programs: On<NewProgram>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            new_servers,
            new_programs,
            servers: Vec::new(),
            runs: Vec::new(),
            failed: Arc::default(),
        }
    }

    /// Starts everything on all hosts: servers before programs.
    ///
    /// # Errors
    /// When a server cannot be started, or a host has two.
    pub(super) fn start_all(&mut self, machines: &Machines) -> Result<(), Reason> {
        for host in 0..self.shared.names.len() {
            if self
                .new_servers
                .iter()
                .filter(|(of, _)| *of == host)
                .count()
                > 1
            {
                return Err(Reason::SecondServer(self.shared.names[host].clone()));
            }
        }
        self.serve(machines, |_| true)?;
        self.run(machines, |_| true);
        Ok(())
    }

    /// Starts everything on a host that has come back.
    ///
    /// # Errors
    /// When its server cannot be started.
    pub(super) fn start(&mut self, host: usize, machines: &Machines) -> Result<(), Reason> {
        self.serve(machines, |of| of == host)?;
        self.run(machines, |of| of == host);
        Ok(())
    }

    /// Handles a host that is down: a killed process is not shut down.
    pub(super) fn stop(&mut self, host: usize) {
        self.shared.serve(host, None);
        let (killed, others) = std::mem::take(&mut self.servers)
            .into_iter()
            .partition(|(of, _)| *of == host);
        self.servers = others;
        let killed: On<LocalServer> = killed;
        killed
            .into_iter()
            .for_each(|(_, server)| std::mem::forget(server));
    }

    fn serve(
        &mut self,
        machines: &Machines,
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<(), Reason> {
        let new = self.new_servers.iter_mut();
        for (host, new) in new.filter(|(host, _)| is_meant(*host)) {
            let Some(server) = new.make() else { continue };
            let device = machines.cluster().device(machines.current(*host));
            let server = server.serve_on(device).map_err(|source| Reason::Serve {
                host: self.shared.names[*host].clone(),
                source: Box::new(source),
            })?;
            self.shared.serve(*host, Some(server.acceptor()));
            self.servers.push((*host, server));
        }
        Ok(())
    }

    /// Runs each on the next core of its host.
    fn run(&mut self, machines: &Machines, is_meant: impl Fn(usize) -> bool) {
        let mut next_core = vec![0; self.shared.names.len()];
        let new = self.new_programs.iter_mut();
        for (place, new) in new.filter(|(host, _)| is_meant(*host)) {
            let Some(run) = new.make() else { continue };
            let name = self.shared.names[*place].clone();
            let on = machines.current(*place);
            let device = machines.cluster().device(on);
            let core = next_core[*place] % device.cores();
            next_core[*place] += 1;
            let number = (self.runs.len(), machines.restarts(*place));
            let host = Host::new(*place, number, device, Arc::clone(&self.shared));
            let has_ended = Arc::new(AtomicBool::new(false));
            let (ends, failed) = (Arc::clone(&has_ended), Arc::clone(&self.failed));
            machines.cluster().spawn_thread(on, core, move || {
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
                ends.store(true, Ordering::Relaxed);
            });
            self.runs.push(Run {
                host: *place,
                on,
                has_ended,
            });
        }
    }

    /// The first failure.
    pub(super) fn failed(&self) -> Option<Reason> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }

    /// Hosts whose programs run, or will when they come back; without those that have crashed.
    pub(super) fn running(&self, machines: &Machines) -> Vec<String> {
        let runs = self.runs.iter().filter(|run| {
            let is_here = run.on == machines.current(run.host) && !machines.is_down(run.host);
            is_here && !run.has_ended.load(Ordering::Relaxed)
        });
        let to_come = self.new_programs.iter();
        let to_come =
            to_come.filter(|(host, new)| new.is_restartable() && machines.comes_back(*host));
        let hosts = runs
            .map(|run| run.host)
            .chain(to_come.map(|(host, _)| *host));
        hosts.map(|host| self.shared.names[host].clone()).collect()
    }

    /// Ends the servers.
    pub(super) fn end(self, machines: &Machines) {
        let cluster = machines.cluster();
        for (host, server) in self.servers {
            cluster.spawn_thread(machines.current(host), 0, move || drop(server));
        }
        cluster.run_for(ENDING.as_nanos() as u64);
    }
}
