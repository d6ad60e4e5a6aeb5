//! State shared by all objects of a device.

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

/// Maximum number of events kept for a user who does not fetch them.
const EVENTS_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    /// The process that created the device: a child has no thread of the device, and its socket belongs to the parent.
    pub(crate) made_in: Generation,
    pub(crate) config: RoceConfig,
    pub(crate) socket: Socket,
    pub(crate) regions: RegionTable,
    timers: Timers,
    pub(crate) postponed: Postponed,
    /// Number of times that a completion queue was armed.
    pub(crate) armed: AtomicU64,
    /// Raised to make the device's thread poll.
    pub(crate) call: Event,
    /// When that thread wakes by itself; zero while it is awake, and while other threads handle the timers.
    pub(crate) wakes_ns: AtomicU64,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// Round trips measured by its queue pairs, by the peer's address and port, kept as long as one is connected to
    /// that peer.
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

    /// The shared round trip measurements of a peer.
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

    /// Sets a timer of a queue pair for `deadline_ns`, handled by a thread that polls then or by the device's thread.
    pub(crate) fn set_timer(&self, deadline_ns: u64, number: u32) {
        self.timers.set(deadline_ns, number);
        self.wake_for(deadline_ns);
    }

    /// Sets the time at which a queue pair acknowledges, likewise.
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

    /// Queues an event, unless it is already queued.
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
