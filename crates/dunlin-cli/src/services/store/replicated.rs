//! A machine of a replicated database, which rejoins in a new life after it was replaced.

use std::fmt;
use std::iter;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dunlin::txn::membership::{Configuration, Role};
use dunlin::txn::server::{Replicated, StoreServer};
use dunlin::{Address, ClientBuilder, ServerBuilder};

use super::Options;
use crate::commands::Failure;
use crate::output;
use crate::services::metrics::MetricsPort;

/// Interval of the checks of the machine's state.
const LOOK: Duration = Duration::from_millis(10);
/// The address of the previous life may still be in use for a moment: interval and time limit of the retries.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// What a life of a machine begins with.
pub struct Begins<'a> {
    /// Creates the server for an address.
    pub server: &'a dyn Fn(&Address) -> Result<ServerBuilder, Failure>,
    /// The address it listens on at first; a port that the system chose is kept.
    pub listen: &'a Address,
    /// The client with which it reaches the others.
    pub client: ClientBuilder,
    /// The address of its metrics.
    pub metrics: Option<SocketAddr>,
}

impl fmt::Debug for Begins<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Begins");
        shown.field("listen", self.listen).finish_non_exhaustive()
    }
}

/// Serves until `is_over`. When the others have gone on without this machine, it starts again, copies their data, and
/// rejoins them.
///
/// # Errors
/// When the options contradict each other, the membership does not answer, or the server does not start.
pub fn serve_replicated(
    begins: &Begins<'_>,
    options: &Options,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let mut life = Life::begin(begins, begins.listen, options)?;
    let address = life.store.server().address();
    output::print(format_args!("listening on {address}"))?;
    if let Some(port) = &life.metrics {
        output::print(format_args!("metrics on http://{}/metrics", port.address()))?;
    }
    loop {
        match life.last(is_over) {
            Ended::Over => {
                drop(life.metrics);
                if let Some(log) = life.store.log_statistics() {
                    let (entries, groups) = (log.entries, log.groups);
                    output::note(format_args!("logged {entries} entries in {groups} groups"));
                }
                life.store.shutdown();
                return Ok(());
            }
            Ended::Fenced => output::note(
                "the other machines have continued without this one, or its disk has failed: it starts again",
            ),
        }
        drop(life);
        let until = Instant::now() + AGAIN.1;
        life = loop {
            match Life::begin(begins, &address, options) {
                Ok(life) => break life,
                Err(_) if is_over() => return Ok(()),
                Err(failure) if Instant::now() >= until => return Err(failure),
                Err(_) => std::thread::sleep(AGAIN.0),
            }
        };
    }
}

/// What ends a life.
enum Ended {
    /// The command ends.
    Over,
    /// The others have gone on without it.
    Fenced,
}

struct Life {
    store: StoreServer,
    metrics: Option<MetricsPort>,
    shown: Option<Configuration>,
}

impl Life {
    fn begin(begins: &Begins<'_>, listen: &Address, options: &Options) -> Result<Self, Failure> {
        let Some(place) = &options.membership else {
            return Err(Failure::usage(
                "a machine that can be replaced requires --membership",
            ));
        };
        let load = options.workload()?;
        let config = options.config(load.as_deref())?;
        let server = (begins.server)(listen)?;
        let replicated = Replicated {
            membership: place.open()?,
            lease: options.replace_after,
            client: begins.client.clone(),
            advertise: options.advertise.as_ref().map(Address::to_string),
            log: options.log(),
        };
        let initial = || match &load {
            Some(load) => load.load(),
            None => Box::new(iter::empty()),
        };
        let store = StoreServer::serve_replicated(server, config, replicated, initial);
        let store = store.map_err(super::not_served)?;
        let metrics = begins
            .metrics
            .map(|address| MetricsPort::open(address, store.server().observer()))
            .transpose()?;
        Ok(Self {
            store,
            metrics,
            shown: None,
        })
    }

    /// Lasts, and tells of each epoch that it serves.
    fn last(&mut self, is_over: &dyn Fn() -> bool) -> Ended {
        loop {
            if is_over() {
                return Ended::Over;
            }
            if self.store.is_fenced() {
                return Ended::Fenced;
            }
            let now = self.store.configuration();
            if now.is_some() && now != self.shown {
                if let Some(of) = &now {
                    output::note(line(of));
                }
                self.shown = now;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// An epoch as a line.
fn line(of: &Configuration) -> String {
    let members: Vec<String> = of
        .members
        .iter()
        .enumerate()
        .map(|(number, member)| match member.role {
            Role::Whole => format!("{number}"),
            Role::Learner => format!("{number} (copies)"),
            Role::Out => format!("{number} (out)"),
        })
        .collect();
    format!("{} serves: machines {}", of.epoch, members.join(", "))
}
