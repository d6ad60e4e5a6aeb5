//! A lane over a datagram session: FaSST's RPC as a client sees it (§4).
//!
//! A call is a message in the packet that leaves with the next flush. There is no acknowledgement but the answer. Calls that stay without
//! one are asked about (`watch.rs`); the server says what became of them, and a lost packet is an error to the calls that were in it.

mod watch;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use dunlin_verbs::{thread, Device, Work};

use super::lane::{Answer, Body, CallId, Lane, Sink, Sleeper, Submitted};
use super::region::{RegionKey, Wanted};
use super::slots::Slots;
use crate::channel::buffers::BytesMut;
use crate::channel::datagram::fate::{self, Fate};
use crate::channel::datagram::packet::{Cursor, Head, Packet, HEAD_BYTES};
use crate::channel::datagram::segments::{
    count_in, put_segment, Reassembly, SegmentHead, Taken, Transfer, SEGMENT_HEAD_BYTES,
};
use crate::channel::datagram::{Endpoint, Greeting, Shared, UnconnectedSession};
use crate::channel::message::{Header, Kind};
use crate::channel::one_sided::Attached;
use crate::channel::ChannelError;
use crate::config::{ChannelConfig, PacketLoss};
use crate::error::{CallError, WireFailure};
use crate::HandlerId;
use watch::{Due, Watch};

/// Datagrams taken in one poll: bounds the time that a poll holds its caller.
const POLL_BUDGET: usize = 64;
/// Packets that wait for a flush, at most; as many go with one doorbell.
const PACKETS: usize = 16;
/// Calls in one question: it is one datagram on any device.
const QUESTION_CALLS: usize = 24;

/// A lane over a datagram session.
#[derive(Debug)]
pub(crate) struct DatagramLane<D: Device> {
    endpoint: Shared<D>,
    wake: D::CompletionChannel,
    session: u32,
    /// How the server knows us.
    to: Head,
    /// Longest payload in one datagram, and at all, to the server; and from it.
    capacity: usize,
    longest: usize,
    longest_answer: usize,
    calls: Slots,
    /// The batch: packets up to `last` hold something, or are the one that is open.
    packets: Vec<Packet>,
    last: usize,
    packet_bytes: usize,
    /// The datagram that is being read.
    scratch: Box<[u8]>,
    /// Long requests: the first is on its way.
    transfers: VecDeque<Transfer<Box<[u8]>>>,
    transfer: u32,
    /// The long response that is on its way.
    reassembly: Option<Reassembly>,
    /// The last long response that came whole, and its segments: the word about it may be lost, and others wait behind it.
    last_whole: Option<(CallId, u32)>,
    /// Given up by their callers: the server hears it with the next packet.
    cancels: Vec<CallId>,
    watch: Watch,
    /// The server was heard of: until then one datagram of ours may be on its way, because its RECEIVEs may not be posted yet.
    met: bool,
    introduced: bool,
    /// Calls are taken: neither has the server said goodbye (`leaving`), nor is the session lost.
    open: bool,
    leaving: bool,
    lost: bool,
    on_loss: PacketLoss,
    /// A packet was lost, and that ends the client.
    fatal: Arc<AtomicBool>,
}

impl<D: Device> DatagramLane<D> {
    pub(crate) fn new(
        opened: &UnconnectedSession<D>,
        theirs: &Greeting,
        config: &ChannelConfig,
        fatal: &Arc<AtomicBool>,
    ) -> Self {
        let held = opened
            .endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (own, wake) = (held.packet_bytes(), held.wake().clone());
        drop(held);
        let packet_bytes = theirs.packet_bytes.min(own);
        Self {
            endpoint: Arc::clone(&opened.endpoint),
            wake,
            session: opened.number,
            to: theirs.to,
            capacity: theirs.capacity(own),
            longest: theirs.longest,
            longest_answer: config.max_message_bytes,
            calls: Slots::new(theirs.calls),
            packets: vec![Packet::new(packet_bytes)],
            last: 0,
            packet_bytes,
            scratch: vec![0; own].into(),
            transfers: VecDeque::new(),
            transfer: 0,
            reassembly: None,
            last_whole: None,
            cancels: Vec::new(),
            watch: Watch::new(config.loss_timeout),
            met: false,
            introduced: false,
            open: true,
            leaving: false,
            lost: false,
            on_loss: config.packet_loss,
            fatal: Arc::clone(fatal),
        }
    }

    #[inline]
    fn endpoint(&self) -> MutexGuard<'_, Endpoint<D>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a segment.
    fn piece(&self) -> usize {
        self.capacity - SEGMENT_HEAD_BYTES
    }

    /// Makes the open packet one that a message with `payload` bytes fits into, if the batch has such.
    #[inline]
    fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        if self.packets[self.last].fits(payload) {
            return Ok(true);
        }
        self.next_packet()
    }

    #[cold]
    fn next_packet(&mut self) -> Result<bool, ChannelError> {
        if self.last + 1 == PACKETS {
            self.send()?;
        }
        if !self.packets[self.last].is_empty() {
            if self.last + 1 == PACKETS {
                return Ok(false);
            }
            self.last += 1;
            if self.last == self.packets.len() {
                self.packets.push(Packet::new(self.packet_bytes));
            }
        }
        Ok(true)
    }

    #[inline]
    fn push(&mut self, kind: Kind, handler: HandlerId, call: CallId, payload: &[u8]) {
        let header = Header::new(kind, handler, call, payload.len());
        D::charge(Work::Copy(payload.len()));
        self.packets[self.last].push(header, payload);
    }

    /// Hands the batch to the device, and as many segments of long requests as may be on their way.
    #[inline]
    fn send(&mut self) -> Result<(), ChannelError> {
        loop {
            if !self.transfers.is_empty() {
                self.continue_transfers()?;
            }
            if self.packets[0].is_empty() {
                return Ok(());
            }
            let mut count = self.last + usize::from(!self.packets[self.last].is_empty());
            if !self.met {
                if self.introduced {
                    return Ok(());
                }
                count = 1;
                self.introduced = true;
            }
            self.send_packets(count)?;
            if self.transfers.is_empty() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn send_packets(&mut self, count: usize) -> Result<(), ChannelError> {
        while let Some(&call) = self.cancels.last() {
            if !self.packets[0].fits(0) {
                break;
            }
            self.packets[0].push(Header::new(Kind::Cancel, 0, call, 0), &[]);
            self.cancels.pop();
        }
        for packet in &mut self.packets[..count] {
            packet.seal(self.to);
        }
        let session = self.session;
        let datagrams = self.packets[..count].iter();
        let sent = self
            .endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(datagrams.map(|packet| (session, packet.bytes())));
        for packet in &mut self.packets[..count] {
            packet.clear();
        }
        if count <= self.last {
            // Only before the server was heard of.
            self.packets[..=self.last].rotate_left(count);
        }
        self.last -= count.min(self.last);
        sent
    }

    /// Puts segments of long requests into the batch, as many as may be on their way.
    #[cold]
    fn continue_transfers(&mut self) -> Result<(), ChannelError> {
        let piece = self.piece();
        loop {
            let Some(transfer) = self.transfers.front() else {
                return Ok(());
            };
            if !self.calls.is_out(transfer.call) {
                // Lost, or answered before all of it was sent.
                self.transfers.pop_front();
                self.transfer = self.transfer.wrapping_add(1);
                continue;
            }
            let full = !self.packets[self.last].is_empty() && self.last + 1 == PACKETS;
            if full || (!self.met && !self.packets[0].is_empty()) {
                return Ok(());
            }
            if !self.packets[self.last].is_empty() {
                self.next_packet()?;
            }
            let Some(transfer) = self.transfers.front_mut() else {
                return Ok(());
            };
            let Some(range) = transfer.next(piece) else {
                return Ok(());
            };
            let head = SegmentHead {
                total: transfer.bytes.len() as u32,
                offset: range.start as u32,
                transfer: self.transfer,
            };
            put_segment::<D>(&mut self.packets[self.last], transfer, head, range);
            let (call, tick) = (transfer.call, self.watch.tick());
            self.calls.touch(call, tick);
        }
    }

    fn take(&mut self, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        let mut taken = 0;
        let mut looked = false;
        for _ in 0..POLL_BUDGET {
            let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            if !looked && !held.has_arrival(self.session) {
                looked = true;
                held.poll(|_| {})?;
            }
            let Some(length) = held.take(self.session, &mut self.scratch)? else {
                break;
            };
            drop(held);
            taken += self.read(length, sink)?;
        }
        if taken > 0 {
            self.watch.heard();
            if !self.met {
                self.met = true;
                self.send()?;
            }
        }
        if self.watch.looked() {
            taken += self.look()?;
        }
        Ok(taken)
    }

    /// Takes the messages of the datagram in `scratch`.
    #[inline]
    fn read(&mut self, length: usize, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        let Some(head) = self.scratch.first_chunk().and_then(Head::read) else {
            return Ok(0);
        };
        debug_assert!(length >= HEAD_BYTES);
        let mut cursor = Cursor::new(head);
        let mut taken = 0;
        loop {
            let next = cursor.take(&self.scratch[..length]);
            let Some((header, payload)) = next.map_err(ChannelError::violation)? else {
                return Ok(taken);
            };
            taken += 1;
            if header.kind == Kind::Response {
                // A late one, of a call that was given up as lost, is nobody's.
                if let Some(tag) = self.calls.finish(header.call) {
                    sink.answer(tag, &self.scratch[payload]);
                }
            } else {
                self.dispatch(header, payload, sink)?;
            }
        }
    }

    #[cold]
    fn dispatch(
        &mut self,
        header: Header,
        payload: std::ops::Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        match header.kind {
            Kind::Failure => {
                let failure = WireFailure::decode(&self.scratch[payload])
                    .ok_or_else(|| ChannelError::violation("a failure without a reason"))?;
                if let Some(tag) = self.calls.finish(header.call) {
                    sink.complete(tag, Err(failure.into_call_error()));
                }
            }
            Kind::ResponseSegment => return self.take_segment(header, payload, sink),
            Kind::Segments => {
                let count = count_in(&self.scratch[payload])?;
                let piece = self.piece();
                let tick = self.watch.tick();
                if let Some(transfer) = self.transfers.front_mut() {
                    if transfer.call == header.call {
                        self.calls.touch(header.call, tick);
                        if transfer.has(count as usize, piece) {
                            self.transfers.pop_front();
                            self.transfer = self.transfer.wrapping_add(1);
                        }
                    }
                }
                return self.send();
            }
            Kind::Fates => {
                for (call, fate) in fate::told(&self.scratch[payload]) {
                    let tick = self.watch.tick();
                    match fate {
                        Fate::Working => {
                            self.calls.touch(call, tick);
                            // It is there, whole, whatever became of the word about its segments.
                            let front = self.transfers.front();
                            if front.is_some_and(|transfer| transfer.call == call) {
                                self.transfers.pop_front();
                                self.transfer = self.transfer.wrapping_add(1);
                            }
                        }
                        Fate::Unknown | Fate::Answered if self.calls.is_out(call) => {
                            if self.on_loss == PacketLoss::EndClient {
                                self.fatal.store(true, Ordering::Relaxed);
                            }
                            let error = CallError::PacketLost {
                                executed: fate == Fate::Answered,
                            };
                            tracing::warn!(call, ?fate, "a packet was lost");
                            if let Some(tag) = self.calls.finish(call) {
                                sink.complete(tag, Err(error));
                            }
                        }
                        Fate::Unknown | Fate::Answered => {}
                    }
                }
            }
            Kind::Goodbye => {
                self.leaving = true;
                self.open = false;
            }
            _ => return Err(ChannelError::violation("a server that calls its client")),
        }
        Ok(())
    }

    fn take_segment(
        &mut self,
        header: Header,
        payload: std::ops::Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        let piece_bytes = self.piece();
        let (head, piece) = SegmentHead::read(&self.scratch[payload])
            .ok_or_else(|| ChannelError::violation("a segment without a head"))?;
        if head.total as usize > self.longest_answer {
            let words = "a response that is longer than its caller takes";
            return Err(ChannelError::violation(words));
        }
        if !self.calls.is_out(header.call) {
            // Late: of a call that was given up as lost.
            return Ok(());
        }
        let current = self.reassembly.as_ref().map(|here| here.compare(head));
        if current == Some(std::cmp::Ordering::Less) {
            return Ok(());
        }
        if current != Some(std::cmp::Ordering::Equal) {
            let begun = Reassembly::new(head, 0, header.call, piece_bytes);
            self.reassembly =
                Some(begun.ok_or_else(|| ChannelError::violation("a segment of nothing"))?);
        }
        let Some(reassembly) = &mut self.reassembly else {
            return Ok(());
        };
        let taken = reassembly
            .take(head, header.call, piece)
            .ok_or_else(|| ChannelError::violation("a segment that does not fit"))?;
        D::charge(Work::Copy(piece.len()));
        self.calls.touch(header.call, self.watch.tick());
        let count = match taken {
            Taken::Nothing => return Ok(()),
            Taken::Tell(count) | Taken::Whole(count) => count as u32,
        };
        if matches!(taken, Taken::Whole(_)) {
            self.last_whole = Some((header.call, count));
            if let (Some(whole), Some(tag)) =
                (self.reassembly.take(), self.calls.finish(header.call))
            {
                let bytes: Box<dyn crate::channel::buffers::Bytes> = Box::new(whole.into_bytes());
                sink.complete(tag, Ok(Answer::Long(bytes)));
            }
        }
        if self.make_room(4)? {
            self.push(Kind::Segments, 0, header.call, &count.to_le_bytes());
        }
        self.send()
    }

    /// Looks at the clock, and asks about calls that are overdue.
    #[cold]
    fn look(&mut self) -> Result<usize, ChannelError> {
        match self.watch.pass(thread::now()) {
            Due::Nothing => Ok(0),
            Due::Gone => Err(ChannelError::queue_pair(
                "the server answers nothing, not even what became of calls".to_owned(),
            )),
            Due::Question => self.ask().map(|()| 0),
        }
    }

    fn ask(&mut self) -> Result<(), ChannelError> {
        // What is asked about must have been sent, or the server would say that it did not come.
        self.send()?;
        let mut question = Vec::with_capacity(QUESTION_CALLS * fate::ASKED_BYTES);
        let waiting = |call| {
            let mut all = self.transfers.iter();
            all.any(|transfer| transfer.call == call && !transfer.has_begun())
        };
        let mut overdue = false;
        for (call, since) in self.calls.out() {
            if !self.watch.is_overdue(since) || waiting(call) {
                continue;
            }
            overdue = true;
            // Before the server was heard of most calls are not sent: then the question is only whether it is there.
            if self.met && question.len() < QUESTION_CALLS * fate::ASKED_BYTES {
                question.extend_from_slice(&call.to_le_bytes());
            }
        }
        if !overdue {
            return Ok(());
        }
        self.watch.asked();
        // In a datagram of its own: what waits in the batch may wait for the very answer.
        let mut packet = Packet::new(self.packet_bytes);
        if let Some((call, count)) = self.last_whole {
            packet.push(
                Header::new(Kind::Segments, 0, call, 4),
                &count.to_le_bytes(),
            );
        }
        packet.push(Header::new(Kind::Question, 0, 0, question.len()), &question);
        packet.seal(self.to);
        self.endpoint()
            .send(std::iter::once((self.session, packet.bytes())))
    }

    fn lose(&mut self, error: &ChannelError, sink: &mut dyn Sink) -> CallError {
        let error = CallError::ConnectionLost {
            why: error.to_string(),
        };
        if !self.lost {
            self.lost = true;
            self.open = false;
            let out: Vec<CallId> = self.calls.out().map(|(call, _)| call).collect();
            for call in out {
                if let Some(tag) = self.calls.finish(call) {
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
            why: "it was lost before".into(),
        })
    }

    /// Whether a lost packet has ended the client, as it does where the user wants that.
    #[inline]
    fn is_over(&self) -> bool {
        self.on_loss == PacketLoss::EndClient && self.fatal.load(Ordering::Relaxed)
    }

    /// When no more calls may be out.
    fn full(&self) -> Result<Option<CallId>, CallError> {
        // The session's credits bound a lane before the user's limit does: then there is only no room for now.
        if self.calls.limit() < crate::channel::datagram::CALLS {
            let limit = self.calls.limit();
            return Err(CallError::TooManyOutstanding { limit });
        }
        Ok(None)
    }
}

fn lost(error: ChannelError) -> CallError {
    CallError::ConnectionLost {
        why: error.to_string(),
    }
}

impl<D: Device> Lane for DatagramLane<D> {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if !self.open || payload.len() > self.capacity || self.is_over() {
            return None;
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
        let bytes = match body {
            Body::Bytes(bytes) => bytes,
            Body::Buffer(buffer) => buffer.bytes_ref(),
        };
        let length = bytes.len();
        if length > self.longest {
            let (bytes, limit) = (length, self.longest);
            return Err(CallError::TooLong { bytes, limit });
        }
        if self.calls.is_full() {
            return self.full();
        }
        if length <= self.capacity {
            if !self.make_room(length).map_err(lost)? {
                return Ok(None);
            }
            let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
                return Ok(None);
            };
            let bytes = match body {
                Body::Bytes(bytes) => bytes,
                Body::Buffer(buffer) => buffer.bytes_ref(),
            };
            self.push(Kind::Request, handler, call, bytes);
            return Ok(Some(call));
        }
        let bytes: Box<[u8]> = match std::mem::replace(body, Body::Bytes(&[])) {
            Body::Bytes(bytes) => bytes.into(),
            Body::Buffer(buffer) => match buffer.into_any().downcast::<Box<[u8]>>() {
                Ok(own) => *own,
                Err(_) => unreachable!("a client keeps to one kind of lane"),
            },
        };
        let Some(call) = self.calls.begin(tag, self.watch.tick()) else {
            return Ok(None);
        };
        let kind = Kind::RequestSegment;
        let transfer = Transfer::new(kind, handler, call, bytes);
        self.transfers.push_back(transfer);
        Ok(Some(call))
    }

    fn submit_attach(&mut self, _name: &str, _tag: u64) -> Result<Option<CallId>, CallError> {
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

    fn gathers(&self) -> bool {
        // One that is alone goes at once.
        self.calls.outstanding() > 1
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.take(sink).map_err(|error| self.lose(&error, sink))
    }

    fn abandon(&mut self, call: CallId) {
        if self.calls.is_out(call) {
            self.calls.abandon(call);
            self.cancels.push(call);
            let limit = self.calls.limit();
            if self.cancels.len() > limit {
                // Only a courtesy: without it the server simply answers in vain.
                self.cancels.clear();
            }
        }
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        if length > self.longest {
            let (bytes, limit) = (length, self.longest);
            return Err(CallError::TooLong { bytes, limit });
        }
        Ok(Box::new(vec![0; length].into_boxed_slice()))
    }

    fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    #[inline]
    fn is_usable(&self) -> bool {
        // One that a lost packet has ended is not made anew: it says so.
        self.open || self.is_over()
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let broken = self.endpoint().is_broken();
        let looked = match broken {
            true => Err(ChannelError::queue_pair("it is in error".to_owned())),
            false if self.lost => Err(ChannelError::peer_gone()),
            false => self.look().map(drop),
        };
        looked.map_err(|error| self.lose(&error, sink))
    }

    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        let armed = self.send().and_then(|()| self.endpoint().prepare_sleep());
        armed.map_err(|error| self.lose(&error, sink))?;
        Ok(true)
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.wake.clone())
    }
}

impl<D: Device> Drop for DatagramLane<D> {
    fn drop(&mut self) {
        let mut packet = Packet::new(self.packet_bytes);
        packet.push(Header::new(Kind::Goodbye, 0, 0, 0), &[]);
        packet.seal(self.to);
        // Of the last session nobody takes care of what is on its way.
        let is_last = Arc::strong_count(&self.endpoint) == 1;
        let mut held = self.endpoint();
        if !self.lost && !held.is_broken() {
            // If it is lost, the server finds a session that is silent when it needs the place.
            held.signal_next();
            let sent = held.send(std::iter::once((self.session, packet.bytes())));
            // The time of a simulated device does not pass while a real thread waits.
            let time_passes = held.device().seed().is_none() || thread::is_simulated();
            if sent.is_ok() && is_last && time_passes {
                held.finish();
            }
        }
        held.leave(self.session);
    }
}
