//! What an observer of a cluster is shown: packets as they leave hosts and reach them.
//!
//! Nothing that an observer does changes a run, and where there is none each hook is a look at an empty option. All
//! hooks of the simulation are here; other files call them.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::Transport;

use crate::event::Ps;
use crate::packet::Kind;
use crate::world::World;
use crate::{Cluster, HostId};

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
pub(crate) struct Observed(Option<Box<dyn Observer>>);

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}

impl Cluster {
    /// Shows what happens from now on to this observer, instead of the one before; to nobody when there is none.
    pub fn observe(&self, observer: Option<Box<dyn Observer>>) {
        let mut world = self.inner().world();
        let now = world.now;
        let before = std::mem::replace(&mut world.observed.0, observer);
        if let Some(observer) = &mut world.observed.0 {
            observer.begin(now);
        }
        drop(world);
        // What it owns is given back without the lock.
        drop(before);
    }
}

impl World {
    /// A packet leaves its host at `at`.
    #[inline]
    pub(crate) fn observe_departure(&mut self, packet: u32, at: Ps) {
        if self.observed.0.is_some() {
            self.show_packet(packet, self.packets[packet].from, at, true);
        }
    }

    /// A packet has reached a host, which may still have no room for it.
    #[inline]
    pub(crate) fn observe_arrival(&mut self, packet: u32, host: u16) {
        if self.observed.0.is_some() && !self.hosts[usize::from(host)].crashed {
            self.show_packet(packet, host, self.now, false);
        }
    }

    #[cold]
    fn show_packet(&mut self, packet: u32, host: u16, at: Ps, leaves: bool) {
        let Some(observer) = &mut self.observed.0 else {
            return;
        };
        let packet = &self.packets[packet];
        let sender = &self.pairs[packet.from_qp as usize];
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
            transport: sender.transport,
            kind: packet.kind,
            source_queue_pair: sender.number,
            queue_pair: packet.to_number,
            psn: packet.psn,
            first: packet.first,
            last: packet.last,
            acknowledge: packet.acknowledge,
            solicited: packet.solicited,
            congested: packet.congested,
            immediate: packet.immediate,
            address: packet.address.wrapping_add(u64::from(skipped)),
            key: packet.key,
            bytes: packet.total - skipped,
            operands: packet.operands,
            payload: &packet.payload,
            wire_bytes: packet.wire_bytes,
        });
    }
}
