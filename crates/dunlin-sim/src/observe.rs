//! What an observer of a cluster receives: packets as they leave hosts and reach them, activity of cores and NIC
//! components over time, and queue lengths.
//!
//! Nothing that an observer does changes a run, and without an observer each hook only checks an empty option. All
//! hooks of the simulation are here; other modules call them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::Transport;

use crate::counters::Counters;
use crate::event::Ps;
use crate::packet::Kind;
use crate::threads;
use crate::world::World;
use crate::{Cluster, HostId, SwitchId, ThreadId};

/// Observes a cluster while it runs, in virtual time. It is called with the cluster locked, so it must not call the
/// cluster.
pub trait Observer: Send {
    /// Observation begins, at this time in picoseconds since the cluster was created.
    fn begin(&mut self, now_ps: u64) {
        let _ = now_ps;
    }

    /// A packet leaves a host, or reaches one. For one that leaves, `at_ps` may be later than the times of subsequent
    /// calls.
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        let _ = packet;
    }

    /// A core or a component of a NIC was, or will be, busy. Times of one component do not overlap.
    fn busy(&mut self, busy: &Busy<'_>) {
        let _ = busy;
    }

    /// The state of a NIC may have changed.
    fn nic(&mut self, nic: &SeenNic<'_>) {
        let _ = nic;
    }

    /// The queue of a switch port now holds this many bytes.
    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let _ = (at_ps, switch, port, queued_bytes);
    }
}

/// Passes everything to all of them.
impl Observer for Vec<Box<dyn Observer>> {
    fn begin(&mut self, now_ps: u64) {
        self.iter_mut().for_each(|one| one.begin(now_ps));
    }

    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.iter_mut().for_each(|one| one.packet(packet));
    }

    fn busy(&mut self, busy: &Busy<'_>) {
        self.iter_mut().for_each(|one| one.busy(busy));
    }

    fn nic(&mut self, nic: &SeenNic<'_>) {
        self.iter_mut().for_each(|one| one.nic(nic));
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        self.iter_mut()
            .for_each(|one| one.port(at_ps, switch, port, queued_bytes));
    }
}

/// For a caller that gives an observer away and keeps access to what it has recorded.
impl<O: Observer> Observer for Arc<Mutex<O>> {
    fn begin(&mut self, now_ps: u64) {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .begin(now_ps);
    }

    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .packet(packet);
    }

    fn busy(&mut self, busy: &Busy<'_>) {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .busy(busy);
    }

    fn nic(&mut self, nic: &SeenNic<'_>) {
        self.lock().unwrap_or_else(PoisonError::into_inner).nic(nic);
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .port(at_ps, switch, port, queued_bytes);
    }
}

/// A component of a host that does one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// A core, by its number on the host.
    Core(u32),
    /// An engine of the NIC: 0 processes arrived packets, 1 sends, unless 0 does both.
    Engine(u8),
    /// The wire from the NIC to its switch.
    Wire,
    /// PCIe from the NIC to memory.
    PcieUp,
    /// PCIe from the host to the NIC.
    PcieDown,
}

/// What a component does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity<'a> {
    /// A step of a thread, or for one with a stack the portion that it ran at once.
    Thread {
        /// The thread.
        thread: ThreadId,
        /// Its name, empty if it has none.
        name: &'a str,
    },
    /// Processes an arrived packet.
    Receive(Kind),
    /// Builds a packet of a request.
    Request,
    /// Builds a packet of a long answer.
    Answer,
    /// Transfers bytes.
    Bytes(u64),
}

/// A time in which a component was busy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Busy<'a> {
    /// The host.
    pub host: HostId,
    /// The component.
    pub part: Part,
    /// Its activity.
    pub activity: Activity<'a>,
    /// Start, which may be later than the times of subsequent calls.
    pub from_ps: u64,
    /// End.
    pub until_ps: u64,
}

/// Queue lengths in a NIC, and its counters.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SeenNic<'a> {
    /// Time of the observation.
    pub at_ps: u64,
    /// The host of the NIC.
    pub host: HostId,
    /// Arrived packets that wait for the engine.
    pub arrived: usize,
    /// Queue pairs that have something to send.
    pub senders: usize,
    /// Lookups of translations that hit.
    pub translation_hits: u64,
    /// Lookups of elements that hit.
    pub element_hits: u64,
    /// All other counters.
    pub counters: &'a Counters,
}

/// A packet at the port of a host.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SeenPacket<'a> {
    /// Time at which it leaves, or has arrived.
    pub at_ps: u64,
    /// Virtual time of the simulation, which never decreases; `at_ps` is not before it.
    pub now_ps: u64,
    /// The host whose port it is.
    pub host: HostId,
    /// Whether it leaves that host.
    pub leaves: bool,
    /// Sender.
    pub from: HostId,
    /// Destination.
    pub to: HostId,
    /// Transport of the queue pair that sent it.
    pub transport: Transport,
    /// Kind of the packet.
    pub kind: Kind,
    /// Number of the queue pair that sent it.
    pub source_queue_pair: u32,
    /// Number of the destination queue pair.
    pub queue_pair: u32,
    /// Sequence number, which does not wrap in the simulation.
    pub psn: u64,
    /// First packet of its message, or of its response.
    pub first: bool,
    /// Last packet of its message, or of its response.
    pub last: bool,
    /// Whether it requests an acknowledgement.
    pub acknowledge: bool,
    /// Whether the receiver's completion is solicited.
    pub solicited: bool,
    /// Whether a switch has marked it.
    pub congested: bool,
    /// Priority, from the traffic class of the sender.
    pub priority: u8,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Remote address: for a WRITE its first byte, for a READ or atomic the first that this packet asks for.
    pub address: u64,
    /// Remote key; for a datagram the queue key.
    pub key: u32,
    /// Bytes of the whole WRITE, or those that a READ asks for.
    pub bytes: u32,
    /// Compare and swap: expected and new value. Fetch and add: the addend. In their responses: the old value.
    pub operands: [u64; 2],
    /// Payload.
    pub payload: &'a [u8],
    /// Bytes on the wire according to the model.
    pub wire_bytes: u32,
}

/// The observer of a world, if there is one.
#[derive(Default)]
pub(crate) struct Observed {
    observer: Option<Box<dyn Observer>>,
    /// Names of threads.
    names: BTreeMap<u32, String>,
}

impl Observed {
    /// Whether there is an observer.
    pub(crate) fn is_active(&self) -> bool {
        self.observer.is_some()
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Replaces the observer: events from now on go to this one, or to none.
    pub fn observe(&self, mut observer: Option<Box<dyn Observer>>) {
        if let Some(observer) = &mut observer {
            observer.begin(self.inner().part(0).now);
        }
        let install =
            |world: &mut World, observer| std::mem::replace(&mut world.observed.observer, observer);
        // What the previous observers own is dropped without the lock.
        match observer {
            Some(observer) if self.inner().parts() > 1 => {
                let shared = Arc::new(Mutex::new(vec![observer]));
                for part in 0..self.inner().parts() {
                    let shared: Box<dyn Observer> = Box::new(Arc::clone(&shared));
                    let before = install(&mut self.inner().part(part), Some(shared));
                    drop(before);
                }
            }
            Some(observer) => {
                let before = install(&mut self.inner().part(0), Some(observer));
                drop(before);
            }
            None => {
                for part in 0..self.inner().parts() {
                    let before = install(&mut self.inner().part(part), None);
                    drop(before);
                }
            }
        }
    }

    /// Sets the name of a thread for observers.
    pub fn name_thread(&self, thread: ThreadId, name: String) {
        let mut world = self.inner().world(threads::host_of(thread.0));
        world.name_thread(thread.0, name);
    }
}

impl World {
    /// A packet leaves its host at `at`.
    #[inline]
    pub(crate) fn observe_departure(&mut self, packet: u32, at: Ps) {
        if self.observed.observer.is_some() {
            self.show_packet(packet, self.packets[packet].from, at, true);
        }
    }

    /// A packet has reached a host, which may not have room for it.
    #[inline]
    pub(crate) fn observe_arrival(&mut self, packet: u32, host: u16) {
        if self.observed.observer.is_some() && !self.hosts[usize::from(host)].crashed {
            self.show_packet(packet, host, self.now, false);
        }
    }

    #[cold]
    fn show_packet(&mut self, packet: u32, host: u16, at: Ps, leaves: bool) {
        let Some(observer) = &mut self.observed.observer else {
            return;
        };
        let packet = &self.packets[packet];
        // The first packet of a WRITE names the start of the whole WRITE; a READ that is requested again names the
        // start of the rest.
        let skipped = match packet.kind {
            Kind::ReadRequest => packet.offset.min(packet.total),
            _ => 0,
        };
        observer.packet(&SeenPacket {
            at_ps: at.max(self.now),
            now_ps: self.now,
            host: HostId(host),
            leaves,
            from: HostId(packet.from),
            to: HostId(packet.to),
            transport: packet.transport(),
            kind: packet.kind,
            source_queue_pair: packet.from_number,
            queue_pair: packet.to_number,
            psn: packet.psn,
            first: packet.first,
            last: packet.last,
            acknowledge: packet.acknowledge,
            solicited: packet.solicited,
            congested: packet.congested,
            priority: packet.priority,
            immediate: packet.immediate,
            address: packet.address.wrapping_add(u64::from(skipped)),
            key: packet.key,
            bytes: packet.total - skipped,
            operands: packet.operands,
            payload: &packet.payload,
            wire_bytes: packet.wire_bytes,
        });
    }

    /// Sets the name of a thread for observers.
    pub(crate) fn name_thread(&mut self, thread: u32, name: String) {
        self.observed.names.insert(thread, name);
    }

    /// A step of a thread that began now has ended.
    #[inline]
    pub(crate) fn observe_step(&mut self, number: u32) {
        if let Some(observer) = &mut self.observed.observer {
            let thread = &self.threads[number];
            let name = self.observed.names.get(&number);
            observer.busy(&Busy {
                host: HostId(thread.host),
                part: Part::Core(thread.core - self.hosts[usize::from(thread.host)].first_core),
                activity: Activity::Thread {
                    thread: ThreadId(number),
                    name: name.map_or("", String::as_str),
                },
                from_ps: self.now,
                until_ps: thread.busy_until,
            });
        }
    }

    /// A component of a NIC is busy from `from` until `until`.
    #[inline]
    pub(crate) fn observe_busy(
        &mut self,
        host: u16,
        part: Part,
        activity: Activity<'_>,
        (from_ps, until_ps): (Ps, Ps),
    ) {
        if let Some(observer) = &mut self.observed.observer {
            observer.busy(&Busy {
                host: HostId(host),
                part,
                activity,
                from_ps,
                until_ps,
            });
        }
    }

    /// An engine of a NIC did something that takes `time` from now on.
    #[inline]
    pub(crate) fn observe_engine(
        &mut self,
        host: u16,
        engine: u8,
        activity: Activity<'_>,
        time: Ps,
    ) {
        if self.observed.observer.is_some() {
            let busy = (self.now, self.now + time);
            self.observe_busy(host, Part::Engine(engine), activity, busy);
            self.observe_nic(host);
        }
    }

    /// The state of a NIC may have changed.
    #[inline]
    pub(crate) fn observe_nic(&mut self, host: u16) {
        if let Some(observer) = &mut self.observed.observer {
            let nic = &self.hosts[usize::from(host)].nic;
            observer.nic(&SeenNic {
                at_ps: self.now,
                host: HostId(host),
                arrived: nic.arrived.len(),
                senders: nic.ring.len(),
                translation_hits: nic.translations.hits,
                element_hits: nic.elements.hits,
                counters: &nic.counters,
            });
        }
    }

    /// The queue of a switch port has changed.
    #[inline]
    pub(crate) fn observe_port(&mut self, switch: u16, port: u16) {
        if let Some(observer) = &mut self.observed.observer {
            let bytes =
                self.network.switches[usize::from(switch)].ports[usize::from(port)].queued_bytes;
            observer.port(self.now, SwitchId(switch), port, bytes);
        }
    }
}
