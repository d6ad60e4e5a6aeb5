//! The port of a rank, at which ranks of higher numbers connect, and what decides whether they may.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use dunlin_bootstrap::{
    Acceptor, AcceptorConfig, Address, OpenReply, OpenRequest, Refusal, StopHandle,
};
use dunlin_ring::RingConfig;
use dunlin_verbs::{EndpointAddress, ENDPOINT_ADDRESS_BYTES};

use crate::error::JoinError;
use crate::link::{admit, capabilities, from_numbers, to_numbers, Link};
use crate::settings::Settings;
use crate::wire::VERSION;
use crate::world::World;

/// The kind that ranks request in the handshake.
pub(crate) const KIND: &str = "mpi";
/// The name of the version among the numbers below.
const VERSION_NAME: &str = "version";
/// The numbers by which a rank introduces itself.
pub(crate) fn introduction(rank: usize, size: usize, settings: &Settings) -> BTreeMap<String, u64> {
    let numbers = [
        (VERSION_NAME, VERSION),
        ("rank", rank as u64),
        ("size", size as u64),
        ("job", settings.job),
        ("eager", settings.eager_bytes as u64),
    ];
    numbers
        .into_iter()
        .map(|(name, number)| (name.to_owned(), number))
        .collect()
}

/// A placeholder: the queue pairs are in the offers.
pub(crate) fn nowhere() -> EndpointAddress {
    EndpointAddress::decode(&[0; ENDPOINT_ADDRESS_BYTES])
}

/// A rank that has connected.
type Arrival = (Box<dyn Link>, String);

/// The ranks that have connected to this one, by their numbers.
#[derive(Debug)]
struct Arrivals {
    ranks: Mutex<Vec<Option<Arrival>>>,
    news: Condvar,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arrival>>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port at which ranks of higher numbers connect. Its thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    acceptor: Arc<Acceptor>,
    arrivals: Arc<Arrivals>,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Port {
    pub(crate) fn bind(
        address: &Address,
        rank: usize,
        size: usize,
        settings: &Settings,
    ) -> Result<Self, JoinError> {
        let io = |call| move |source| JoinError::Io { call, source };
        let config = AcceptorConfig {
            secret: settings.secret.clone(),
            capabilities: capabilities(settings.device.as_deref(), None)?,
            ..AcceptorConfig::default()
        };
        let acceptor = Arc::new(Acceptor::bind(address, config)?);
        let arrivals = Arc::new(Arrivals {
            ranks: Mutex::new((0..size).map(|_| None).collect()),
            news: Condvar::new(),
        });
        let admission = Admission {
            rank,
            size,
            rings: settings.rings()?,
            settings: settings.clone(),
            arrivals: Arc::clone(&arrivals),
        };
        let stop = StopHandle::new().map_err(io("making an event"))?;
        let (door, until) = (Arc::clone(&acceptor), stop.clone());
        let thread = std::thread::Builder::new().name("dunlin-mpi-join".into());
        let thread = thread.spawn(move || {
            if let Err(error) = door.run(&until, |request, _| admission.admit(&request)) {
                tracing::warn!(%error, "the port for other ranks has failed");
            }
        });
        Ok(Self {
            acceptor,
            arrivals,
            stop,
            thread: Some(thread.map_err(io("starting a thread"))?),
        })
    }

    pub(crate) fn address(&self) -> Address {
        self.acceptor.local_address().clone()
    }

    /// Waits until all ranks of higher numbers have connected, and adds them to a world.
    pub(crate) fn wait_for_all(
        self,
        world: &mut World,
        deadline: Instant,
        settings: &Settings,
    ) -> Result<(), JoinError> {
        let mut ranks = self.arrivals.lock();
        let first = world.rank + 1;
        while ranks[first..].iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let missing: Vec<usize> = (first..)
                .zip(&ranks[first..])
                .filter(|(_, one)| one.is_none())
                .map(|(rank, _)| rank)
                .collect();
            if left.is_zero() {
                let limit = settings.join_timeout;
                return Err(JoinError::Timeout {
                    limit,
                    missing,
                    last: None,
                });
            }
            let waited = self.arrivals.news.wait_timeout(ranks, left);
            (ranks, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        for (peer, arrival) in world.peers.iter_mut().zip(ranks.iter_mut()) {
            if let Some((link, device)) = arrival.take() {
                peer.link = Some(link);
                peer.device = Some(device);
            }
        }
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// What decides whether a rank may connect.
#[derive(Debug)]
struct Admission {
    rank: usize,
    size: usize,
    rings: RingConfig,
    settings: Settings,
    arrivals: Arc<Arrivals>,
}

impl Admission {
    /// Validates a rank's request and connects it.
    fn admit(&self, request: &OpenRequest) -> Result<OpenReply, Refusal> {
        if request.preset != KIND {
            return Err(Refusal::UnknownPreset {
                asked: request.preset.clone(),
                known: vec![KIND.to_owned()],
            });
        }
        let own = self.rank;
        let number = |name: &str| request.parameters.get(name).copied();
        let said = |number: Option<u64>| number.map_or("none".to_owned(), |one| one.to_string());
        let named = said(number("rank"));
        let theirs = number(VERSION_NAME);
        // First, because the other numbers of another version may mean something else.
        if theirs != Some(VERSION) {
            return Err(Refusal::rejected(format!(
                "rank {own} speaks version {VERSION} of the messages between ranks, rank {named} version {}; start \
                 all ranks with the same release",
                said(theirs),
            )));
        }
        for (name, ours) in introduction(0, self.size, &self.settings) {
            let theirs = number(&name);
            if name != "rank" && theirs != Some(ours) {
                let theirs = said(theirs);
                return Err(Refusal::rejected(format!(
                    "the setting `{name}` of the job is {ours} at rank {own} and {theirs} at rank {named}"
                )));
            }
        }
        let rank = number("rank").and_then(|rank| usize::try_from(rank).ok());
        let Some(rank) = rank.filter(|rank| (own + 1..self.size).contains(rank)) else {
            let size = self.size;
            return Err(Refusal::rejected(format!(
                "rank {named} does not connect to rank {own} of {size}"
            )));
        };
        let taken = || Refusal::rejected(format!("rank {rank} has joined already"));
        if self.arrivals.lock()[rank].is_some() {
            return Err(taken());
        }
        let theirs = from_numbers(&request.parameters).map_err(Refusal::rejected)?;
        let (link, offers) = admit(&request.device, &self.rings, &theirs)?;
        let mut ranks = self.arrivals.lock();
        if ranks[rank].is_some() {
            return Err(taken());
        }
        ranks[rank] = Some((link, request.device.clone()));
        self.arrivals.news.notify_all();
        Ok(OpenReply {
            endpoint: nowhere(),
            parameters: to_numbers(&offers),
        })
    }
}
