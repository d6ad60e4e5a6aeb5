//! A host as seen by a program on it: its name, its time, its clock, and the servers that it can reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_sim::SimDevice;
use dunlin_verbs::{thread, Device, VerbsError};

use crate::{Client, ClientBuilder, ConnectError, LocalAcceptor};

/// The wall clock at the start of a simulation: long enough after 1970 that it can jump back.
const BEGINNING: Duration = Duration::from_secs(1_700_000_000);
const MILLION: i128 = 1_000_000;

/// The host that a program runs on.
#[derive(Debug)]
pub struct Host {
    place: usize,
    restarts: usize,
    device: SimDevice,
    random: Mutex<fastrand::Rng>,
    shared: Arc<Shared>,
}

/// State that all hosts of a simulation share.
#[derive(Debug)]
pub(super) struct Shared {
    seed: u64,
    pub(super) names: Vec<String>,
    /// Hosts that have servers, up or down.
    serving: Vec<usize>,
    /// Acceptors of the hosts whose servers run.
    acceptors: Mutex<BTreeMap<usize, LocalAcceptor>>,
    clocks: Mutex<Vec<Clock>>,
}

/// A wall clock: its value at a time, and its speed since.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at: Duration,
    shown: Duration,
    drift_ppm: i32,
}

impl Clock {
    fn read(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_nanos() as i128;
        let passed = passed * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        add(self.shown, passed)
    }
}

/// Adds to a time, which is clamped at 1970.
fn add(time: Duration, nanoseconds: i128) -> Duration {
    let sum = (time.as_nanos() as i128 + nanoseconds).max(0);
    Duration::from_nanos(u64::try_from(sum).unwrap_or(u64::MAX))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(seed: u64, names: Vec<String>, serving: Vec<usize>) -> Self {
        let clock = Clock {
            at: Duration::ZERO,
            shown: BEGINNING,
            drift_ppm: 0,
        };
        Self {
            seed,
            clocks: Mutex::new(vec![clock; names.len()]),
            names,
            serving,
            acceptors: Mutex::default(),
        }
    }

    fn has_server(&self, host: usize) -> bool {
        self.serving.contains(&host)
    }

    /// Records that the server of a host runs, or no longer runs.
    pub(super) fn serve(&self, host: usize, acceptor: Option<LocalAcceptor>) {
        let mut acceptors = lock(&self.acceptors);
        match acceptor {
            Some(acceptor) => acceptors.insert(host, acceptor),
            None => acceptors.remove(&host),
        };
    }

    /// Makes the clock of a host jump, and drift from now on.
    pub(super) fn set_clock(&self, place: usize, now: Duration, (jump_ns, drift_ppm): (i64, i32)) {
        let clock = &mut lock(&self.clocks)[place];
        *clock = Clock {
            at: now,
            shown: add(clock.read(now), jump_ns.into()),
            drift_ppm,
        };
    }
}

impl Host {
    /// `program`: its number among all programs started.
    pub(super) fn new(
        place: usize,
        (program, restarts): (usize, usize),
        device: SimDevice,
        shared: Arc<Shared>,
    ) -> Self {
        let seed = shared.seed ^ (program as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            place,
            restarts,
            device,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            shared,
        }
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.shared.names[self.place]
    }

    /// Number of restarts of the host ([`super::Fault::Restart`]) before this program was started.
    pub fn restarts(&self) -> usize {
        self.restarts
    }

    /// Connects to the server of a host, with any preset. A client reconnects only to that server: after a restart,
    /// connect to the new one.
    ///
    /// # Errors
    /// When that host has no server or is down, and as for [`ClientBuilder::connect`].
    pub fn connect(&self, server: &str, client: ClientBuilder) -> Result<Client, ConnectError> {
        let place = self.shared.names.iter().position(|name| name == server);
        let place = place.filter(|place| self.shared.has_server(*place));
        let place = place.ok_or_else(|| {
            ConnectError::Setting(format!(
                "no host `{server}` with a server in the simulation"
            ))
        })?;
        let acceptor = lock(&self.shared.acceptors).get(&place).cloned();
        let acceptor = acceptor.ok_or_else(|| ConnectError::Device {
            device: self.device.attributes().name.clone(),
            source: VerbsError::Peer(format!("the host `{server}` is down")),
        })?;
        client.connect_on(self.device.clone(), &acceptor)
    }

    /// Virtual time since the simulation began, the same on all hosts.
    pub fn now(&self) -> Duration {
        thread::simulated_now().unwrap_or_default()
    }

    /// The host's wall clock, since 1970: it may jump, and be faster or slower than time ([`super::Fault::Clock`]).
    pub fn clock(&self) -> Duration {
        lock(&self.shared.clocks)[self.place].read(self.now())
    }

    /// Sleeps for this long in virtual time.
    pub fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Returns a random number of this program, derived from the seed.
    pub fn random(&self) -> u64 {
        lock(&self.random).u64(..)
    }

    /// The simulated NIC, for everything except the RPC: streams, transactions, verbs.
    pub fn device(&self) -> &SimDevice {
        &self.device
    }
}
