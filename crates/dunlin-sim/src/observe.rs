//! What an observer of a cluster is shown: packets as they leave hosts and reach them, what cores and the parts of NICs
//! do when, what waits for them.
//!
//! Nothing that an observer does changes a run, and where there is none each hook is a look at an empty option. All
//! hooks of the simulation are here; other files call them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::Transport;

use crate::counters::Counters;
use crate::event::Ps;
use crate::packet::Kind;
use crate::threads;
use crate::world::World;
use crate::{Cluster, HostId, SwitchId, ThreadId};

/// Somebody who looks at a cluster while it runs, in virtual time. It is called with the cluster locked, so it must not
/// call the cluster.
pub trait Observer: Send {
    /// From this time on it is shown what happens, in picoseconds since the cluster was made.
    fn begin(&mut self, now_ps: u64) {
        let _ = now_ps;
    }

    /// A packet leaves a host, or reaches one. Of those that leave, `at_ps` may be ahead of what is shown next.
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        let _ = packet;
    }

    /// A core or a part of a NIC was, or will be, busy. What one part does does not overlap.
    fn busy(&mut self, busy: &Busy<'_>) {
        let _ = busy;
    }

    /// Something may have changed in a NIC.
    fn nic(&mut self, nic: &SeenNic<'_>) {
        let _ = nic;
    }

    /// So many bytes wait at a port of a switch now.
    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let _ = (at_ps, switch, port, queued_bytes);
    }
}

/// All of them are shown everything.
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

/// Who gives an observer away and keeps a hand on what it has seen.
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

/// A part of a host that does one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// A core, by its number on the host.
    Core(u32),
    /// An engine of the NIC: 0 takes packets in, 1 sends, unless 0 does both.
    Engine(u8),
    /// The wire from the NIC to its switch.
    Wire,
    /// PCIe from the NIC to memory.
    PcieUp,
    /// PCIe from the host to the NIC.
    PcieDown,
}

/// What a part does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity<'a> {
    /// A step of a thread, or as much of one with a stack as it took at once.
    Thread {
        /// Which.
        thread: ThreadId,
        /// Its name, empty if it has none.
        name: &'a str,
    },
    /// Takes a packet in.
    Receive(Kind),
    /// Makes a packet of a request.
    Request,
    /// Makes a packet of a long answer.
    Answer,
    /// Moves bytes.
    Bytes(u64),
}

/// A time in which a part was busy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Busy<'a> {
    /// Of this host.
    pub host: HostId,
    /// The part.
    pub part: Part,
    /// With what.
    pub activity: Activity<'a>,
    /// From when, which may be later than what is shown next.
    pub from_ps: u64,
    /// Until when.
    pub until_ps: u64,
}

/// What waits in a NIC, and what it has counted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SeenNic<'a> {
    /// When.
    pub at_ps: u64,
    /// Of this host.
    pub host: HostId,
    /// Packets that have arrived and wait for the engine.
    pub arrived: usize,
    /// Queue pairs that have something to send.
    pub senders: usize,
    /// Lookups of translations that found theirs.
    pub translation_hits: u64,
    /// Lookups of elements that found theirs.
    pub element_hits: u64,
    /// Everything else.
    pub counters: &'a Counters,
}

/// A packet at the port of a host.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SeenPacket<'a> {
    /// When it leaves, or has arrived.
    pub at_ps: u64,
    /// Virtual time of the simulation, which does not go back: `at_ps` is not before it.
    pub now_ps: u64,
    /// The host at whose port it is.
    pub host: HostId,
    /// Whether it leaves that host.
    pub leaves: bool,
    /// Who sent it.
    pub from: HostId,
    /// Whom it is for.
    pub to: HostId,
    /// Transport of the queue pair that sent it.
    pub transport: Transport,
    /// What it is.
    pub kind: Kind,
    /// Number of the queue pair that sent it.
    pub source_queue_pair: u32,
    /// Number of the queue pair that it is for.
    pub queue_pair: u32,
    /// Sequence number, which does not wrap here.
    pub psn: u64,
    /// The first of its message, or of its response.
    pub first: bool,
    /// The last of them.
    pub last: bool,
    /// It asks for an acknowledgement.
    pub acknowledge: bool,
    /// The completion of its receiver is solicited.
    pub solicited: bool,
    /// A switch has marked it.
    pub congested: bool,
    /// Its priority, by the traffic class of who sent it.
    pub priority: u8,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Remote address: of a WRITE its first byte, of a READ or atomic the first that this packet asks for.
    pub address: u64,
    /// Remote key; of a datagram the queue key.
    pub key: u32,
    /// Bytes of the whole WRITE, or those that a READ asks for.
    pub bytes: u32,
    /// Compare and swap: what to find and what to put there. Fetch and add: what to add. Their answer: what was there.
    pub operands: [u64; 2],
    /// Payload.
    pub payload: &'a [u8],
    /// Bytes that the model takes it to have on the wire.
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
    /// Somebody looks.
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
    /// Shows what happens from now on to this observer, instead of the one before; to nobody when there is none.
    pub fn observe(&self, mut observer: Option<Box<dyn Observer>>) {
        if let Some(observer) = &mut observer {
            observer.begin(self.inner().part(0).now);
        }
        let install =
            |world: &mut World, observer| std::mem::replace(&mut world.observed.observer, observer);
        // What the ones before own is given back without the lock.
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

    /// What an observer is to call a thread.
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

    /// A packet has reached a host, which may still have no room for it.
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
        // A WRITE says where all of it begins, in its first packet; a READ that is asked for again where the rest does.
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

    /// What an observer is to call a thread.
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

    /// A part of a NIC is busy from `from` until `until`.
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

    /// Something may have changed in a NIC.
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

    /// What waits at a port of a switch has changed.
    #[inline]
    pub(crate) fn observe_port(&mut self, switch: u16, port: u16) {
        if let Some(observer) = &mut self.observed.observer {
            let bytes =
                self.network.switches[usize::from(switch)].ports[usize::from(port)].queued_bytes;
            observer.port(self.now, SwitchId(switch), port, bytes);
        }
    }
}
