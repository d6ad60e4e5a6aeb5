//! A lane over a datagram session: the client's side of FaSST's RPC (§4).
//!
//! A call is a message in the packet that is sent with the next flush. The response is the only acknowledgement. The
//! client asks about calls that remain without one (`asking.rs`); the server reports their state, and the calls in a
//! lost packet end with an error.

mod arrivals;
mod asking;
mod batch;
mod driving;
#[cfg(all(test, not(loom)))]
mod tests;
mod watch;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use dunlin_verbs::{progress, thread, Device, QueuePair};

use crate::call::lane::{check_length, Body, CallId, Lane, NoCalls, Sink, Sleeper, Submitted};
use crate::call::slots::Slots;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::buffers::{downcast, BytesMut};
use crate::channel::datagram::driven::client::Driver;
use crate::channel::datagram::driven::{CREDITS, CREDITS_WITHOUT_NIC, PART_BYTES};
use crate::channel::datagram::packet::{Head, Packet, Room};
use crate::channel::datagram::segments::{Incoming, Transfer, SEGMENT_HEAD_BYTES};
use crate::channel::datagram::spare::{LongBytes, Spare};
use crate::channel::datagram::written::Uplink;
use crate::channel::datagram::{Endpoint, Greeting, Protocol, Shared, UnconnectedSession};
use crate::channel::message::{Header, Kind};
use crate::channel::one_sided::Attached;
use crate::channel::ChannelError;
use crate::config::{PacketLoss, MESSAGES};
use crate::error::CallError;
use crate::lanes::LaneSetup;
use crate::HandlerId;
use driving::Driving;
use watch::Watch;

/// Maximum number of packets that wait for a flush; the maximum for one doorbell.
const PACKETS: usize = 16;
/// A lane over a datagram session.
#[derive(Debug)]
pub(crate) struct DatagramLane<D: Device> {
    endpoint: Shared<D>,
    wake: D::CompletionChannel,
    session: u32,
    /// The address of the server: the device may report that it is gone.
    server: D::AddressHandle,
    /// The head by which the server knows this session.
    to: Head,
    /// Maximum length of a payload to the server, in one datagram and altogether.
    capacity: usize,
    longest: usize,
    /// The calls, with the tick at which each began or was last heard of.
    calls: Slots<u32>,
    /// The batch: packets up to `last` are filled or open.
    packets: Vec<Packet>,
    last: usize,
    room: Room,
    /// Something to be sent has found no room.
    held_up: bool,
    /// Packets wait in the endpoint for those of other sessions.
    gathering: bool,
    /// The datagram being read.
    scratch: Box<[u8]>,
    /// Long requests: the first is being sent.
    transfers: VecDeque<Transfer<LongBytes>>,
    transfer: u32,
    /// Memory of long messages.
    spare: Spare,
    /// The long response being received.
    incoming: Incoming,
    /// The last long response that was complete, and its number of segments: the report about it may have been lost,
    /// and other responses wait behind it.
    last_whole: Option<(CallId, u32)>,
    /// Calls given up by their callers, and calls whose long responses have arrived but are still kept by the server:
    /// it is informed with the next packet.
    cancels: Vec<CallId>,
    releases: Vec<CallId>,
    /// If packets are retransmitted, the driver that sends in place of all that is above.
    driving: Option<Box<Driving>>,
    /// The uplink for short requests, if they are not sent in packets.
    uplink: Option<Box<Uplink<D>>>,
    /// The server has reported that it sleeps, and does not notice what is written. Something was written since the
    /// last flush.
    asleep: bool,
    written: bool,
    /// It was sent a question to wake it, and has not answered yet.
    rousing: bool,
    watch: Watch,
    /// The server has been heard of: before that only one datagram may be in flight, because its RECEIVEs may not be
    /// posted yet.
    met: bool,
    introduced: bool,
    /// Calls are accepted: the server has not sent a goodbye (`leaving`), and the session is not lost.
    open: bool,
    leaving: bool,
    lost: bool,
    on_loss: PacketLoss,
    /// Set when a packet of the client was lost.
    packet_lost: Arc<AtomicBool>,
    /// From the last datagram: see [`Lane::wants_datagrams`].
    wants_datagrams: bool,
}

impl<D: Device> DatagramLane<D> {
    pub(crate) fn new(
        opened: &UnconnectedSession<D>,
        (theirs, server): (&Greeting, D::AddressHandle),
        uplink: Option<Uplink<D>>,
        (protocol, setup): (Protocol, &LaneSetup),
    ) -> Self {
        let config = &setup.config;
        let held = opened
            .endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (own, wake) = (held.packet_bytes(), held.wake().clone());
        // There is no wire, or kernels and threads precede it at both ends, so a round trip says little about a
        // network's queues.
        let without_nic = held.device().attributes().queue_pairs_by_software();
        let mut room = held.room_for(theirs.packet_bytes);
        drop(held);
        if protocol == Protocol::Driven {
            // Each packet has one part of a message, with control messages in addition.
            room.messages = MESSAGES;
        }
        let capacity = theirs.capacity(own);
        let spare = Spare::default();
        let driving = (protocol == Protocol::Driven).then(|| {
            let limits = (capacity - PART_BYTES, config.max_message_bytes);
            let controlled = config.congestion_control && !without_nic;
            let credits = config.session_credits.unwrap_or(match without_nic {
                true => CREDITS_WITHOUT_NIC,
                false => CREDITS,
            });
            let driver = Driver::new(theirs.calls, credits, limits, controlled, &spare);
            Box::new(Driving::new(driver))
        });
        let mut lane = Self {
            endpoint: Arc::clone(&opened.endpoint),
            wake,
            session: opened.number,
            server,
            to: theirs.to,
            capacity,
            longest: theirs.longest,
            calls: Slots::new(theirs.calls),
            packets: Vec::new(),
            last: 0,
            room,
            held_up: false,
            gathering: false,
            scratch: vec![0; own].into(),
            transfers: VecDeque::new(),
            transfer: 0,
            spare: spare.clone(),
            incoming: Incoming::new(
                capacity - SEGMENT_HEAD_BYTES,
                config.max_message_bytes,
                &spare,
            ),
            last_whole: None,
            cancels: Vec::new(),
            releases: Vec::new(),
            driving,
            uplink: uplink.map(Box::new),
            asleep: false,
            rousing: false,
            written: false,
            watch: Watch::new(config.loss_timeout),
            met: false,
            introduced: false,
            open: true,
            leaving: false,
            lost: false,
            on_loss: config.packet_loss,
            packet_lost: Arc::clone(&setup.packet_lost),
            wants_datagrams: false,
        };
        lane.add_packet();
        lane
    }

    #[inline]
    fn endpoint(&self) -> MutexGuard<'_, Endpoint<D>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call has ended: returns its tag, unless it is not outstanding or its response is not wanted.
    #[inline]
    fn finish(&mut self, call: CallId) -> Option<u64> {
        self.calls.finish(call)?.tag
    }

    /// Records that the call was heard of.
    fn touch(&mut self, call: CallId) {
        if let Some(since) = self.calls.extra(call) {
            *since = self.watch.tick();
        }
    }

    fn lose(&mut self, error: &ChannelError, sink: &mut dyn Sink) -> CallError {
        let error = CallError::from(error);
        if !self.lost {
            self.lost = true;
            self.open = false;
            let out: Vec<CallId> = self.calls.out().map(|(call, _)| call).collect();
            for call in out {
                if let Some(tag) = self.finish(call) {
                    sink.complete(tag, Err(error.clone()));
                }
            }
        }
        error
    }

    fn refusal(&self) -> Option<CallError> {
        if self.is_over() {
            return Some(CallError::PacketLossFatal);
        }
        if self.leaving {
            return Some(CallError::ShuttingDown);
        }
        self.lost.then(|| CallError::ConnectionLost {
            why: "it was lost earlier".into(),
        })
    }

    /// Whether a lost packet has ended the client, as it does if so configured.
    #[inline]
    fn is_over(&self) -> bool {
        self.on_loss == PacketLoss::EndClient && self.packet_lost.load(Ordering::Relaxed)
    }

    /// Takes a long request into memory of this lane.
    fn own(&self, body: &mut Body<'_>) -> Result<LongBytes, CallError> {
        match body.take() {
            Body::Bytes(bytes) => Ok(self.spare.copied(bytes).map_err(ChannelError::memory)?),
            Body::Buffer(buffer) => match downcast::<LongBytes>(buffer) {
                Ok(own) => Ok(own),
                // Made by another kind of lane, which the thread had before.
                Err(foreign) => self.own(&mut Body::Bytes(foreign.bytes_ref())),
            },
        }
    }
}

impl<D: Device> Lane for DatagramLane<D> {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if !self.open || payload.len() > self.capacity || self.is_over() {
            return None;
        }
        if let Some(driving) = &mut self.driving {
            let call = self.calls.begin(tag, self.watch.tick())?;
            driving.driver.begin(call, handler, payload);
            return Some(call);
        }
        if let Some(uplink) = &mut self.uplink {
            if payload.len() > uplink.capacity() || !matches!(uplink.make_room(), Ok(true)) {
                return None;
            }
            let call = self.calls.begin(tag, self.watch.tick())?;
            uplink.write(handler, call, payload);
            self.written = true;
            return Some(call);
        }
        if !matches!(self.make_room(payload.len()), Ok(true)) {
            return None;
        }
        let call = self.calls.begin(tag, self.watch.tick())?;
        self.push(Kind::Request, handler, call, payload);
        Some(call)
    }

    fn submit(
        &mut self,
        handler: HandlerId,
        body: &mut Body<'_>,
        tag: u64,
    ) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let length = body.bytes().len();
        check_length(length, self.longest)?;
        if self.calls.is_full() {
            return Ok(None);
        }
        if self.driving.is_some() {
            let request = match length > self.capacity {
                true => self.own(body)?,
                false => LongBytes::default(),
            };
            let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
                return Ok(None);
            };
            let Some(driving) = &mut self.driving else {
                return Ok(None);
            };
            if length <= self.capacity {
                driving.driver.begin(call, handler, body.bytes());
            } else {
                driving.driver.begin_long(call, handler, request);
            }
            return Ok(Some(call));
        }
        if let Some(uplink) = &mut self.uplink {
            if length <= uplink.capacity() {
                if !uplink.make_room()? {
                    return Ok(None);
                }
                let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
                    return Ok(None);
                };
                uplink.write(handler, call, body.bytes());
                self.written = true;
                return Ok(Some(call));
            }
        }
        if length <= self.capacity {
            if !self.make_room(length)? {
                return Ok(None);
            }
            let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
                return Ok(None);
            };
            self.push(Kind::Request, handler, call, body.bytes());
            return Ok(Some(call));
        }
        let bytes = self.own(body)?;
        let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
            return Ok(None);
        };
        let kind = Kind::RequestSegment;
        let transfer = Transfer::new(kind, handler, call, bytes);
        self.transfers.push_back(transfer);
        Ok(Some(call))
    }

    fn submit_attach(&mut self, _: &RegionKey, _: u64) -> Result<Option<CallId>, CallError> {
        Err(CallError::OneSidedUnsupported)
    }

    fn set_attached(&mut self, _region: u64, _attached: Attached) {}

    fn submit_one_sided(
        &mut self,
        _region: &RegionKey,
        _offset: u64,
        _wanted: &Wanted<'_>,
        _tag: u64,
    ) -> Result<Submitted, CallError> {
        Err(CallError::OneSidedUnsupported)
    }

    #[inline]
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.send().map_err(|error| self.lose(&error, sink))
    }

    fn queue(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let is_bare = self.driving.is_none() && self.uplink.is_none();
        is_bare.then(|| -> Arc<dyn Any + Send + Sync> { self.endpoint.clone() })
    }

    #[inline]
    fn gather(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.gathering = self.driving.is_none() && self.uplink.is_none();
        let sent = self.send();
        self.gathering = false;
        sent.map_err(|error| self.lose(&error, sink))
    }

    fn send_gathered(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let sent = self.endpoint().send_gathered();
        sent.map_err(|error| self.lose(&error, sink))
    }

    fn is_quiet(&self) -> bool {
        !self.lost && !self.endpoint().has_arrival(self.session)
    }

    fn gathers(&self) -> bool {
        // A single request is sent at once.
        self.calls.outstanding() > 1
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.take(sink).map_err(|error| self.lose(&error, sink))
    }

    fn abandon(&mut self, call: CallId) {
        if self.calls.abandon(call) {
            self.cancels.push(call);
            let limit = self.calls.limit();
            if self.cancels.len() > limit {
                // Optional: otherwise the server executes them needlessly.
                self.cancels.clear();
            }
        }
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        check_length(length, self.longest)?;
        let bytes = self.spare.unfilled(length);
        Ok(Box::new(bytes.map_err(ChannelError::memory)?))
    }

    fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    fn wants_datagrams(&self) -> bool {
        self.wants_datagrams
    }

    #[inline]
    fn is_usable(&mut self) -> bool {
        let may_be_behind = !D::QueuePair::MAPS_PEERS && self.open && self.calls.nobody_waits();
        if may_be_behind && progress::catch_up() {
            // A goodbye may have arrived at a device that makes progress when its users wait.
            let _ = self.take(&mut NoCalls);
        }
        // A lane ended by a lost packet is not replaced: it returns that error.
        self.open && !D::is_gone(&self.server) || self.is_over()
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let broken = self.endpoint().is_broken();
        let looked = match broken {
            true => Err(ChannelError::queue_pair(
                "it is in the error state".to_owned(),
            )),
            false if self.lost => Err(ChannelError::peer_gone()),
            false if D::is_gone(&self.server) => {
                // What the server sent before it went away may be a response.
                while let Ok(1..) = self.take(sink) {}
                Err(ChannelError::peer_gone())
            }
            false => self.look().map(drop),
        };
        looked.map_err(|error| self.lose(&error, sink))
    }

    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        let sent = match self.driving {
            Some(_) => self.keep_time(),
            None => self.send(),
        };
        let armed = sent.and_then(|()| self.endpoint().prepare_sleep());
        armed.map_err(|error| self.lose(&error, sink))?;
        if self.held_up {
            return Ok(false);
        }
        // If the server should answer at once, the thread waits awake, for as long as a timer runs.
        let hurried = |driving: &Driving| driving.driver.is_hurried();
        Ok(!self.driving.as_deref().is_some_and(hurried))
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.wake.clone())
    }
}

impl<D: Device> Drop for DatagramLane<D> {
    fn drop(&mut self) {
        let mut packet = Packet::new(self.room.bytes);
        packet.push(Header::new(Kind::Goodbye, 0, 0, 0), &[]);
        packet.seal(self.to);
        // After the last session nothing takes care of packets in flight.
        let is_last = Arc::strong_count(&self.endpoint) == 1;
        let mut held = self.endpoint();
        if !self.lost && !held.is_broken() && !D::is_gone(&self.server) {
            // If it is lost, the server discovers the silent session when it needs the place.
            held.signal_next();
            let sent = held.send(std::iter::once((self.session, packet.bytes())));
            // The time of a simulated device does not advance while a real thread waits.
            let time_passes = held.device().seed().is_none() || thread::is_simulated();
            if sent.is_ok() && is_last && time_passes {
                held.finish();
            }
        }
        held.leave(self.session);
    }
}
