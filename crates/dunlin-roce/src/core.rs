//! What all objects of one device share.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{AsyncEvent, VerbsError};
use rustix::io::Errno;

use crate::address::Habits;
use crate::channel::Event;
use crate::config::RoceConfig;
use crate::memory::RegionTable;
use crate::postponed::Postponed;
use crate::reliable::PeerRoundTrip;
use crate::socket::Socket;
use crate::sync::{lock, system};
use crate::timers::Timers;

/// Events kept for a user who does not fetch them.
const EVENTS_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    /// A child of this process has no thread of the device, and its socket is the parent's.
    pub(crate) made_in: Generation,
    pub(crate) config: RoceConfig,
    pub(crate) socket: Socket,
    pub(crate) regions: RegionTable,
    timers: Timers,
    pub(crate) postponed: Postponed,
    /// How often somebody has asked to be woken.
    pub(crate) armed: AtomicU64,
    /// Raised to have the device's thread look around.
    pub(crate) call: Event,
    /// When that thread wakes by itself; zero while it is awake, and while others keep the time.
    pub(crate) wakes_ns: AtomicU64,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// What its queue pairs have measured of peers, by address and port, as long as one is connected to them.
    round_trips: Mutex<HashMap<(IpAddr, u16), Weak<PeerRoundTrip>>>,
    next_domain: AtomicU64,
}

impl Core {
    pub(crate) fn open(config: RoceConfig) -> Result<Self, VerbsError> {
        Ok(Self {
            made_in: Generation::current(),
            socket: Socket::bind(&config)?,
            regions: RegionTable::new(config.max_regions, config.max_registered_bytes),
            timers: Timers::new(),
            postponed: Postponed::default(),
            armed: AtomicU64::new(0),
            call: Event::new().map_err(system::<Errno>("eventfd of the device"))?,
            wakes_ns: AtomicU64::new(0),
            events: Mutex::new(VecDeque::new()),
            round_trips: Mutex::default(),
            next_domain: AtomicU64::new(1),
            config,
        })
    }

    pub(crate) fn next_domain(&self) -> u64 {
        self.next_domain.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn habits(&self) -> Habits {
        Habits {
            port: self.socket.port(),
            omit_icrc: self.config.omit_icrc,
            receive_buffer_bytes: self.socket.receive_buffer_bytes(),
        }
    }

    /// What is measured of a peer.
    pub(crate) fn round_trip(&self, peer: (IpAddr, u16)) -> Arc<PeerRoundTrip> {
        let mut all = lock(&self.round_trips);
        if let Some(known) = all.get(&peer).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(PeerRoundTrip::default());
        all.insert(peer, Arc::downgrade(&new));
        new
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Has a queue pair looked at when it is `deadline_ns`, by whoever polls then or by the device's thread.
    pub(crate) fn set_timer(&self, deadline_ns: u64, number: u32) {
        self.timers.set(deadline_ns, number);
        self.wake_for(deadline_ns);
    }

    /// Has a queue pair acknowledge when it is `due_ns`, likewise.
    pub(crate) fn set_acknowledgement(&self, due_ns: u64, number: u32) {
        self.timers.acknowledge(due_ns, number);
        self.wake_for(due_ns);
    }

    fn wake_for(&self, deadline_ns: u64) {
        if deadline_ns < self.wakes_ns.load(Ordering::SeqCst) {
            self.wakes_ns.store(0, Ordering::SeqCst);
            self.call.raise();
        }
    }

    /// Keeps an event, once.
    pub(crate) fn push_event(&self, event: AsyncEvent) {
        let mut events = lock(&self.events);
        if events.len() < EVENTS_MAX && !events.contains(&event) {
            events.push_back(event);
        }
    }

    pub(crate) fn pop_event(&self) -> Option<AsyncEvent> {
        if !self.made_in.is_current() {
            return None;
        }
        lock(&self.events).pop_front()
    }
}
