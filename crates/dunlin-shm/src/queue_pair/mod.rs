//! Queue pairs.

mod datagram;
mod executor;
mod mapped;
mod notices;
mod post;
mod shared;
mod work;

pub(crate) use executor::{Mail, PeerRegion};
pub use mapped::MappedRegion;
use mapped::MappedSource;
pub(crate) use shared::{Link, Parts, Shared};
pub(crate) use work::Target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    Aborter, Access, ConnectAttributes, EndpointAddress, PeerSource, PostError, PostErrorKind,
    QueuePair, QueuePairState, ReceiveRequest, RemoteAddress, SendRequest, Transport, VerbsError,
};

use crate::control::Command;
use crate::core::lock;
use crate::device::{Handle, ShmAddressHandle, MTU_BYTES};
use crate::mapping::system;
use crate::port::{Geometry, Inbound, PortMap};
use crate::receive::{check_receive, ReceiveSource};
use crate::region::ShmRegion;

/// How long dropping a queue pair waits for ports of peers.
const LINGER: Duration = Duration::from_millis(500);

/// A queue pair of the shared-memory device.
#[derive(Debug)]
pub struct ShmQueuePair {
    shared: Arc<Shared>,
    limits: Limits,
    /// Number of entries of the send queue taken so far.
    posted: u32,
    /// Number of entries known to be freed.
    given_back: u32,
    /// The port in which the lengths of RECEIVEs are published.
    port: Option<Arc<PortMap>>,
    received: u64,
    made_in: Generation,
    _device: Arc<Handle>,
}

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) send_requests: usize,
    pub(crate) segments: usize,
    pub(crate) receive_segments: usize,
    pub(crate) inline_bytes: usize,
    /// Whether the bytes of a WRITE become visible in order of addresses.
    pub(crate) in_order: bool,
    /// Maximum length of a message, except for datagrams.
    pub(crate) message_bytes: usize,
}

impl ShmQueuePair {
    pub(crate) fn new(device: &Arc<Handle>, shared: Arc<Shared>, limits: Limits) -> Self {
        Self {
            shared,
            limits,
            posted: 0,
            given_back: 0,
            port: None,
            received: 0,
            made_in: device.core().made_in,
            _device: Arc::clone(device),
        }
    }

    fn check_move(&self, to: QueuePairState) -> Result<QueuePairState, VerbsError> {
        self.made_in.check()?;
        let from = self.shared.state();
        if from.may_move(to, self.shared.transport) {
            return Ok(from);
        }
        Err(self.no_transition(from, to))
    }

    fn no_transition(&self, from: QueuePairState, to: QueuePairState) -> VerbsError {
        VerbsError::Transition {
            queue_pair: self.shared.number,
            from,
            to,
        }
    }

    fn change(&self, from: QueuePairState, to: QueuePairState) -> Result<(), VerbsError> {
        if self.shared.change_state(from, to) {
            return Ok(());
        }
        Err(self.no_transition(self.shared.state(), to))
    }

    /// Creates a new port for a new connection.
    fn open_port(&mut self) -> Result<(), VerbsError> {
        let shared = &self.shared;
        let (lengths, shared_receive) = match &shared.source {
            ReceiveSource::Own(ring) => (ring.capacity() as u32, false),
            ReceiveSource::Shared(_) => (1, true),
        };
        let geometry = Geometry {
            lengths,
            data_bytes: shared.port_bytes as u32,
            shared_receive,
        };
        let (file, port) =
            PortMap::create(geometry).map_err(system("memfd of a queue pair's port"))?;
        let port = Arc::new(port);
        self.received = 0;
        self.port = Some(Arc::clone(&port));
        let mut link = lock(&shared.link);
        link.ports.push(Arc::clone(&port));
        link.own = Some((file, port));
        Ok(())
    }

    /// Not done in a child: another thread may have held the executor at the time of the fork, and the peer is its
    /// parent's.
    fn reset(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        let shared = &self.shared;
        shared.begin_reset();
        // SAFETY: we are the owner, and not inside the executor.
        let mut held = unsafe { shared.send.owner_lock() };
        held.with(executor::Executor::reset);
        if shared.send.is_shared() {
            shared
                .send_cq
                .left_over
                .fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        }
        held.give_back();
        shared
            .receive
            .enter(|receive| receive.reset(&shared.source));
        shared.receive_cq.changed();
        self.port = None;
        self.received = 0;
        self.given_back = self.posted;
    }
}

impl ShmQueuePair {
    /// Waits for datagrams that have not been sent because their ports are missing. For the user they have been sent,
    /// and a goodbye may be the first message to a peer.
    fn linger(&self) {
        let shared = &self.shared;
        let sends = shared.state() == QueuePairState::ReadyToSend;
        if !sends || shared.transport != Transport::UnreliableDatagram {
            return;
        }
        let until = Instant::now() + LINGER;
        while shared.send.is_shared() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for ShmQueuePair {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        self.linger();
        self.reset();
        let shared = &self.shared;
        shared.send_cq.leave(shared.send_place);
        shared.receive_cq.leave(shared.receive_place);
        shared.core.remove_queue_pair(shared.number);
        shared.core.control.push(Command::Closed(shared.number));
    }
}

impl ShmQueuePair {
    /// A range of the peer's memory, if it is mapped here with this access.
    fn mapped(
        &mut self,
        remote: RemoteAddress,
        length: usize,
        access: Access,
    ) -> Option<MappedRegion> {
        // Stores are placed in order; a device configured to pretend that they are not must use requests.
        if !self.limits.in_order || !self.made_in.is_current() {
            return None;
        }
        // SAFETY: `&mut self` makes us the owner.
        let found = unsafe {
            let send = &self.shared.send;
            send.owned(|executor| executor.mapped(remote, length, access))
        };
        Some(MappedRegion::new(
            Arc::clone(&self.shared),
            found.flatten()?,
        ))
    }
}

impl QueuePair for ShmQueuePair {
    type Region = ShmRegion;
    type AddressHandle = ShmAddressHandle;
    type Mapped = MappedRegion;

    const MAPS_PEERS: bool = true;

    fn number(&self) -> u32 {
        self.shared.number
    }

    fn transport(&self) -> Transport {
        self.shared.transport
    }

    fn state(&self) -> QueuePairState {
        self.shared.state()
    }

    fn address(&self) -> EndpointAddress {
        EndpointAddress {
            gid: self.shared.core.uid,
            lid: 0,
            mtu_bytes: MTU_BYTES as u32,
            queue_pair: self.shared.number,
            packet_sequence: 0,
            queue_key: self.shared.queue_key,
            token: self.shared.token,
        }
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        let from = self.check_move(QueuePairState::Init)?;
        if from == QueuePairState::Reset && self.shared.transport != Transport::UnreliableDatagram {
            self.open_port()?;
        }
        lock(&self.shared.link).access = access;
        self.change(from, QueuePairState::Init)
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        let from = self.check_move(QueuePairState::ReadyToReceive)?;
        let connected = self.shared.transport != Transport::UnreliableDatagram;
        if connected != remote.is_some() {
            return Err(VerbsError::Address(if connected {
                "a connected queue pair needs its peer's address".to_owned()
            } else {
                "a datagram queue pair cannot have a peer address".to_owned()
            }));
        }
        if let Some(remote) = remote {
            if remote.queue_pair == 0 || remote.lid != 0 || remote.gid == [0; 16] {
                return Err(VerbsError::Address(
                    "not an address of a shared-memory queue pair".to_owned(),
                ));
            }
        }
        let shared = Arc::clone(&self.shared);
        {
            let mut link = lock(&shared.link);
            link.remote = remote.copied();
            link.attributes = attributes;
        }
        // SAFETY: we are the owner, and not inside the executor.
        unsafe { shared.send.owner_lock() }.with(|executor| executor.connect(&shared));
        if let (Some(port), Some(remote)) = (&self.port, remote) {
            let inbound = Inbound::new(Arc::clone(port), remote.queue_pair);
            shared
                .receive
                .enter(|receive| receive.inbound.push(inbound));
            shared.receive_cq.arm_port(port);
        }
        self.change(from, QueuePairState::ReadyToReceive)?;
        if let Some(remote) = remote {
            shared.core.control.push(Command::Attach {
                pair: Arc::downgrade(&shared),
                incarnation: shared.incarnation(),
                remote: *remote,
            });
        }
        shared.core.control.push(Command::Ready(shared.number));
        Ok(())
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        let from = self.check_move(QueuePairState::ReadyToSend)?;
        self.change(from, QueuePairState::ReadyToSend)?;
        self.shared.progress();
        Ok(())
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        let from = self.check_move(QueuePairState::SendQueueDrained)?;
        self.change(from, QueuePairState::SendQueueDrained)
    }

    fn to_error(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        if self.shared.state() == QueuePairState::Reset {
            self.shared
                .change_state(QueuePairState::Reset, QueuePairState::Error);
        }
        self.shared.enter_error();
    }

    fn aborter(&self) -> Option<Aborter> {
        let shared = Arc::downgrade(&self.shared);
        Some(Box::new(move || {
            // Not in a child, whose ports are its parent's.
            let pair = shared.upgrade();
            if let Some(pair) = pair.filter(|pair| pair.core.made_in.is_current()) {
                pair.enter_error();
                // As if it were dropped, so that peers do not wait for what never comes.
                pair.core.control.push(Command::Closed(pair.number));
            }
        }))
    }

    fn to_reset(&mut self) {
        self.reset();
    }

    #[inline]
    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, ShmRegion, ShmAddressHandle>],
    ) -> Result<(), PostError> {
        self.made_in.check().map_err(PostError::forked)?;
        for (index, request) in requests.iter().enumerate() {
            self.post_one(request)
                .map_err(|kind| PostError { index, kind })?;
        }
        Ok(())
    }

    fn map_peer(&mut self, remote: RemoteAddress, length: usize) -> Option<MappedRegion> {
        self.mapped(remote, length, Access::REMOTE_WRITE)
    }

    fn map_peer_source(
        &mut self,
        remote: RemoteAddress,
        length: usize,
    ) -> Option<Box<dyn PeerSource>> {
        let mapped = self.mapped(remote, length, Access::REMOTE_READ)?;
        Some(Box::new(MappedSource(mapped)))
    }

    #[inline]
    fn expect_write(&mut self, remote: RemoteAddress, length: usize) {
        // SAFETY: `&mut self` makes us the owner.
        unsafe {
            self.shared
                .send
                .owned(|executor| executor.expect_write(&remote, length));
        }
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, ShmRegion>],
    ) -> Result<(), PostError> {
        self.made_in.check().map_err(PostError::forked)?;
        for (index, request) in requests.iter().enumerate() {
            self.receive_one(request)
                .map_err(|kind| PostError { index, kind })?;
        }
        Ok(())
    }
}

impl ShmQueuePair {
    fn receive_one(
        &mut self,
        request: &ReceiveRequest<'_, ShmRegion>,
    ) -> Result<(), PostErrorKind> {
        let shared = &self.shared;
        let state = shared.state();
        if !state.takes_receives() {
            return Err(PostErrorKind::State(state));
        }
        let ReceiveSource::Own(ring) = &shared.source else {
            return Err(PostErrorKind::Verb(shared.transport));
        };
        check_receive(request, self.limits.receive_segments)?;
        if shared.transport == Transport::UnreliableDatagram && ring.is_empty() {
            // Datagrams that arrived before there was a RECEIVE are lost, as on a wire.
            shared.receive.enter(|receive| {
                if !receive.is_active() {
                    receive.drop_unreceived(shared);
                }
            });
        }
        // SAFETY: `&mut self` makes us the only poster.
        if !unsafe { ring.post(request) } {
            return Err(PostErrorKind::Full {
                limit: ring.limit(),
            });
        }
        if let Some(port) = &self.port {
            let length: usize = request.segments.iter().map(|segment| segment.length).sum();
            port.announce_receive(self.received, length);
            self.received += 1;
        }
        if state == QueuePairState::Error {
            shared.receive_cq.signal(true);
        }
        Ok(())
    }
}

#[cfg(any(feature = "fuzzing", all(test, not(loom))))]
impl ShmQueuePair {
    /// The first port that a peer may write, once one has requested it.
    pub(crate) fn inbound_port(&self) -> Option<Arc<PortMap>> {
        let shared = &self.shared;
        shared
            .receive
            .enter(|receive| Some(Arc::clone(&receive.inbound.first()?.port)))
    }
}

#[cfg(all(test, not(loom)))]
impl ShmQueuePair {
    /// Number of bytes of records taken out of each port.
    pub(crate) fn taken_for_tests(&self) -> Vec<u64> {
        let receive = &self.shared.receive;
        receive.enter(|receive| receive.inbound.iter().map(Inbound::head).collect())
    }
}
