//! Queue pairs, as seen by their owners: states and posting.

mod posting;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use dunlin_verbs::{
    Aborter, Access, ConnectAttributes, EndpointAddress, NotMapped, PostError, PostErrorKind,
    QueuePair, QueuePairState, ReceiveRequest, SendRequest, Transport, VerbsError,
};

use crate::address::{gid, Peer, RoceAddressHandle, MAX_OUTSTANDING_READS};
use crate::device::Handle;
use crate::engine::{Engine, Protocol, Shared};
use crate::packet::Psn;
use crate::port::{with_train, Port};
use crate::region::RoceRegion;
use crate::reliable::{Requester, RequesterConfig, Responder, ResponderConfig};
use crate::shared_receive::post_receives;
use crate::socket::{Link, Path, Route, LONG_PAYLOAD_BYTES};
use crate::sync::{now_ns, random_u32};
use crate::unreliable::{Receiver, Sender};

/// Maximum number of packets in flight, whatever the peer's buffer.
const MAX_WINDOW_PACKETS: usize = 128;
/// Approximate memory that the kernel uses for a packet besides its bytes.
const PACKET_OVERHEAD_BYTES: usize = 512;

type SendOf<'a> = SendRequest<'a, RoceRegion, RoceAddressHandle>;

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) segments: usize,
    pub(crate) inline_bytes: usize,
    /// Maximum length of a message or of a datagram.
    pub(crate) message_bytes: usize,
    /// The limits of this side's link and configuration.
    pub(crate) link: Link,
}

/// A queue pair of the RoCE device.
#[derive(Debug)]
pub struct RoceQueuePair {
    port: Arc<Port>,
    /// Keeps the device's thread running as long as there is a queue pair.
    _device: Arc<Handle>,
    shared: Arc<Shared>,
    limits: Limits,
    /// The local address of its packets, if one was chosen.
    local: Option<IpAddr>,
    /// Number of sends posted so far.
    posted: u32,
}

impl RoceQueuePair {
    pub(crate) fn new(
        device: &Arc<Handle>,
        shared: Arc<Shared>,
        limits: Limits,
        local: Option<IpAddr>,
    ) -> Self {
        Self {
            port: Arc::clone(&device.port),
            _device: Arc::clone(device),
            shared,
            limits,
            local,
            posted: 0,
        }
    }

    /// Begins a transition to another state, if it is allowed from the current one. The state does not change until the
    /// engine is released.
    fn begin_move(&self, to: QueuePairState) -> Result<MutexGuard<'_, Engine>, VerbsError> {
        self.port.core.made_in.check()?;
        let shared = &self.shared;
        // An overrun of a completion queue is detected here.
        shared.state();
        let engine = shared.engine();
        let from = shared.state_in_engine();
        if from.may_move(to, shared.transport) {
            return Ok(engine);
        }
        Err(VerbsError::Transition {
            queue_pair: shared.number,
            from,
            to,
        })
    }

    /// Creates the protocol of a connection.
    fn connect(
        &self,
        engine: &mut Engine,
        remote: &EndpointAddress,
        attributes: &ConnectAttributes,
    ) -> Result<(), VerbsError> {
        let habits = self.port.core.habits();
        let peer = Peer::new(remote, &habits)?;
        let route = Route::find(self.local, peer.address);
        let (local, link) = match (self.local, route) {
            // What was determined about the MTU before still holds.
            (Some(local), route) => {
                let payload_bytes = route.map_or(0, |route| route.link.payload_bytes);
                (local, self.limits.link.with_payload(payload_bytes))
            }
            (None, Some(route)) => (route.local, route.link.min(self.limits.link)),
            (None, None) => {
                let words = format!("no route to {}", peer.address);
                return Err(VerbsError::Address(words));
            }
        };
        let link = self.port.probes.limit(peer.address, link);
        if peer.address.is_ipv4() != local.is_ipv4() {
            return Err(VerbsError::Address(format!(
                "{} cannot be reached from {local}: one is IPv4 and the other IPv6",
                peer.address
            )));
        }
        let mtu_bytes = match remote.mtu_bytes {
            0 => link.mtu_bytes,
            theirs => link.mtu_bytes.min(theirs as usize).max(256),
        };
        // Packets between two Dunlin devices are not limited to the standard's sizes.
        let payload_bytes = peer.payload_bytes.min(link.payload_bytes).max(mtu_bytes);
        let payload = payload_bytes as u32;
        let theirs = Psn::new(remote.packet_sequence);
        engine.path = Some(Path { local, peer });
        self.shared.set_local(local);
        engine.mtu_bytes = Some(mtu_bytes as u32);
        engine.protocol = match self.shared.transport {
            Transport::ReliableConnection => {
                // Half of what the peer can buffer: others may send to it, too.
                let window = peer.buffer_bytes / 2 / (payload_bytes + PACKET_OVERHEAD_BYTES);
                let requester = Requester::new(RequesterConfig {
                    peer_queue_pair: remote.queue_pair,
                    first_psn: engine.first_psn,
                    mtu_bytes: payload,
                    window_packets: window.clamp(4, MAX_WINDOW_PACKETS) as u32,
                    requests: self.shared.send_requests,
                    max_outstanding_reads: peer.answers,
                    timeout_ns: attributes.timeout_ns,
                    retry_count: attributes.retry_count,
                    receiver_not_ready_retries: attributes.receiver_not_ready_retries,
                    // Kernels and NICs are not known to acknowledge without a request.
                    asks_for_each: !peer.is_dunlin,
                });
                let responder = Responder::new(ResponderConfig {
                    peer_queue_pair: remote.queue_pair,
                    first_psn: theirs,
                    mtu_bytes: payload,
                    max_outstanding_reads: MAX_OUTSTANDING_READS,
                    receiver_not_ready_timer_ns: attributes.receiver_not_ready_timer_ns,
                });
                let round_trip = self.port.core.round_trip((peer.address, peer.port));
                Protocol::Reliable {
                    requester: Box::new(requester.of_peer(round_trip)),
                    responder: Box::new(responder),
                }
            }
            Transport::UnreliableConnection => Protocol::Unreliable {
                sender: Sender::new(remote.queue_pair, engine.first_psn, payload),
                receiver: Receiver::new(theirs, payload),
            },
            Transport::UnreliableDatagram => Protocol::Datagram {
                next: engine.first_psn,
            },
        };
        Ok(())
    }

    fn reset(&mut self) {
        if !self.port.core.made_in.is_current() {
            return;
        }
        let shared = &self.shared;
        let mut engine = shared.engine();
        with_train(|train| {
            engine.send_postponed(shared, train);
            shared.set_state(QueuePairState::Reset);
            engine.acknowledge_last(shared, now_ns(), train);
        });
        // Without random numbers the device could not have been opened.
        let psn = Psn::new(random_u32().unwrap_or_default());
        engine.reset(shared, psn);
        shared.send_completions.forget(shared.number);
        shared.receive_completions.forget(shared.number);
        if !shared.shares_receives {
            while shared.receives.pop().is_some() {}
        }
        shared.retired.store(self.posted, Ordering::Release);
    }
}

impl Drop for RoceQueuePair {
    fn drop(&mut self) {
        if !self.port.core.made_in.is_current() {
            return;
        }
        self.reset();
        self.port.pairs.remove(self.shared.number);
    }
}

impl QueuePair for RoceQueuePair {
    type Region = RoceRegion;
    type AddressHandle = RoceAddressHandle;
    type Mapped = NotMapped;

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
        let engine = self.shared.engine();
        let local = self.local.or(engine.path.map(|path| path.local));
        EndpointAddress {
            gid: local.map_or([0; 16], gid),
            lid: 0,
            mtu_bytes: engine
                .mtu_bytes
                .unwrap_or(self.limits.link.mtu_bytes as u32),
            queue_pair: self.shared.number,
            packet_sequence: engine.first_psn.value(),
            queue_key: self.shared.queue_key,
            token: self
                .port
                .core
                .habits()
                .token(self.limits.link.payload_bytes),
        }
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        let mut engine = self.begin_move(QueuePairState::Init)?;
        engine.access = access;
        self.shared.set_state(QueuePairState::Init);
        Ok(())
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        let mut engine = self.begin_move(QueuePairState::ReadyToReceive)?;
        match (remote, self.shared.transport) {
            (None, Transport::UnreliableDatagram) => {
                let next = engine.first_psn;
                engine.protocol = Protocol::Datagram { next };
            }
            (Some(_), Transport::UnreliableDatagram) => {
                return Err(VerbsError::Address(
                    "a datagram queue pair cannot have a peer address".to_owned(),
                ))
            }
            (None, _) => {
                return Err(VerbsError::Address(
                    "a connected queue pair needs its peer's address".to_owned(),
                ))
            }
            (Some(remote), _) => self.connect(&mut engine, remote, &attributes)?,
        }
        self.shared.set_state(QueuePairState::ReadyToReceive);
        Ok(())
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        let mut engine = self.begin_move(QueuePairState::ReadyToSend)?;
        let shared = &self.shared;
        shared.set_state(QueuePairState::ReadyToSend);
        engine.release();
        with_train(|train| engine.progress(shared, now_ns(), train));
        Ok(())
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        let _engine = self.begin_move(QueuePairState::SendQueueDrained)?;
        self.shared.set_state(QueuePairState::SendQueueDrained);
        Ok(())
    }

    fn to_error(&mut self) {
        if self.port.core.made_in.is_current() {
            with_train(|train| self.shared.engine().give_up(&self.shared, train));
        }
    }

    fn aborter(&self) -> Option<Aborter> {
        let shared = Arc::downgrade(&self.shared);
        Some(Box::new(move || {
            let shared = shared.upgrade();
            if let Some(shared) = shared.filter(|shared| shared.core.made_in.is_current()) {
                with_train(|train| shared.engine().give_up(&shared, train));
            }
        }))
    }

    fn datagram_path(&self) -> Option<(SocketAddr, SocketAddr)> {
        let Path { local, peer } = self.shared.engine().path?;
        let port = self.port.core.socket.port();
        Some((
            SocketAddr::new(local, port),
            SocketAddr::new(peer.address, peer.port),
        ))
    }

    fn to_reset(&mut self) {
        self.reset();
    }

    fn post_send(&mut self, requests: &[SendOf<'_>]) -> Result<(), PostError> {
        self.port.core.made_in.check().map_err(PostError::forked)?;
        let shared = Arc::clone(&self.shared);
        let mut engine = shared.engine();
        with_train(|train| {
            let mut result = Ok(());
            let mut longest = 0;
            for (index, request) in requests.iter().enumerate() {
                match self.post_one(&mut engine, request, train) {
                    Ok(bytes) => longest = longest.max(bytes),
                    Err(kind) => {
                        result = Err(PostError { index, kind });
                        break;
                    }
                }
            }
            let now_ns = now_ns();
            let is_short = longest < LONG_PAYLOAD_BYTES && result.is_ok();
            if !is_short || !engine.postpone(&shared, now_ns, requests.len()) {
                engine.progress(&shared, now_ns, train);
            }
            result
        })
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, RoceRegion>],
    ) -> Result<(), PostError> {
        self.port.core.made_in.check().map_err(PostError::forked)?;
        let shared = &*self.shared;
        let refused = |kind| PostError { index: 0, kind };
        if shared.shares_receives {
            return Err(refused(PostErrorKind::Verb(shared.transport)));
        }
        let state = shared.state();
        if !state.takes_receives() {
            return Err(refused(PostErrorKind::State(state)));
        }
        let result = post_receives(&shared.receives, requests);
        // It may have failed meanwhile, after flushing what was posted then.
        if shared.state() == QueuePairState::Error {
            shared.engine().flush(shared);
        }
        result
    }
}
