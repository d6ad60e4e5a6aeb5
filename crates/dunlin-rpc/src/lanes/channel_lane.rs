//! A lane over one channel of its own, and its outstanding calls.

mod calls;

use std::sync::Arc;

use dunlin_verbs::{
    progress, thread, AnyRegion, Device, PeerMemory, PeerSource, QueuePair, RemoteAddress, Work,
};

use self::calls::{Answered, Calls, EXPORTS};
use crate::bugs::{is_planted, Bug};
use crate::call::core::{ClientCore, Outstanding};
use crate::call::lane::{
    check_length, Body, CallId, Lane, MappedRegion, NoCalls, Sink, Sleeper, Submitted,
    OPERATIONS_STAGED,
};
use crate::call::own::{Own, Registered};
use crate::call::slots::Slots;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::buffers::BytesMut;
use crate::channel::message::{Kind, DESCRIPTOR_BYTES};
use crate::channel::one_sided::{Attached, OneSided, Verb, NAME_BYTES_MAX};
use crate::channel::{Channel, ChannelError};
use crate::effort;
use crate::error::CallError;
use crate::HandlerId;

/// A lane over a channel.
#[derive(Debug)]
pub(crate) struct ChannelLane<C: Channel> {
    core: ClientCore<C>,
    calls: Calls<C::Device>,
    /// One-sided operations of the next flush.
    operations: Vec<OneSided>,
    registered: Registered,
    attached: Vec<(u64, Attached)>,
    /// The calls have been ended because the channel is lost.
    lost: bool,
    /// Held for as long as the lane lives.
    token: Option<Arc<()>>,
}

impl<C: Channel> ChannelLane<C> {
    pub(crate) fn new(channel: C) -> Self {
        let most = channel.config().max_outstanding.min(channel.most_calls());
        Self {
            calls: Calls {
                slots: match C::SHORT_NAMES {
                    true => Slots::with_short_names(most),
                    false => Slots::new(most),
                },
                exports: Vec::new(),
                open: true,
                leaving: false,
            },
            core: ClientCore::new(channel),
            operations: Vec::with_capacity(OPERATIONS_STAGED),
            registered: Registered::default(),
            attached: Vec::new(),
            lost: false,
            token: None,
        }
    }

    fn lose(&mut self, error: &ChannelError, sink: &mut dyn Sink) -> CallError {
        if !self.lost {
            let calls = &mut self.calls;
            let mut answered = Answered { calls, sink };
            if !error.is_violation() {
                self.core.take_last(&mut answered);
            }
            self.lost = true;
            answered.calls.open = false;
            self.core.channel.close();
            let out: Vec<CallId> = answered.calls.slots.out().map(|(call, _)| call).collect();
            for call in out {
                let _ = answered.complete(call, Err(error.into()));
            }
        }
        error.into()
    }

    #[inline]
    fn take(&mut self, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        if self.core.is_idle() {
            C::Device::charge(Work::Poll);
            return Ok(0);
        }
        let calls = &mut self.calls;
        self.core.take(&mut Answered { calls, sink })
    }

    fn post_operations(&mut self) -> Result<(), ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        let posted = self.core.channel.post_one_sided(self.operations.iter());
        self.operations.clear();
        posted
    }

    fn refusal(&self) -> Option<CallError> {
        if self.calls.leaving {
            return Some(CallError::ShuttingDown);
        }
        self.lost.then(|| CallError::ConnectionLost {
            why: "it was lost earlier".into(),
        })
    }
}

impl<C: Channel> ChannelLane<C> {
    /// What the server has granted of a region on this connection.
    ///
    /// # Errors
    /// When the connection accepts no more calls.
    fn attached(&self, region: &RegionKey) -> Result<Option<Attached>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let mut all = self.attached.iter();
        let found = all.find(|(number, _)| *number == region.number);
        Ok(found.map(|(_, attached)| *attached))
    }

    /// The address and length of a region that may be mapped.
    fn place_of(&self, region: &RegionKey) -> Option<(RemoteAddress, usize)> {
        let attached = self.attached(region).ok()??;
        Some((attached.remote, usize::try_from(attached.length).ok()?))
    }

    /// Whether there is room for one more operation.
    fn takes_operation(&mut self) -> Result<bool, CallError> {
        Ok(self.operations.len() < OPERATIONS_STAGED
            && self.core.channel.one_sided_room()? > self.operations.len())
    }

    /// Queues an operation to be sent with the next flush.
    fn stage(&mut self, remote: RemoteAddress, verb: Verb, tag: u64) -> Submitted {
        match self.calls.begin_operation(tag) {
            Some(call) => {
                self.operations.push(OneSided { call, remote, verb });
                Submitted::Call(call)
            }
            None => Submitted::Full,
        }
    }
}

impl<C: Channel> Lane for ChannelLane<C> {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if !self.calls.open || payload.len() > self.core.channel.eager_bytes() {
            return None;
        }
        if !matches!(self.core.channel.make_room(payload.len()), Ok(true)) {
            return None;
        }
        let call = self.calls.slots.begin(tag, ())?;
        C::Device::charge(effort::ASKED);
        self.core.channel.push_request(handler, call, payload);
        Some(call)
    }

    fn submit_filled(
        &mut self,
        handler: HandlerId,
        length: usize,
        tag: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<CallId> {
        let channel = &mut self.core.channel;
        if !self.calls.open || length > channel.eager_bytes() || self.calls.slots.is_full() {
            return None;
        }
        if !matches!(channel.make_room(length), Ok(true)) {
            return None;
        }
        // Before a slot is taken, because `fill` may panic.
        fill(channel.request_space(length)?);
        let call = self.calls.slots.begin(tag, ())?;
        C::Device::charge(effort::ASKED);
        channel.push_written(handler, call, length);
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
        check_length(length, self.core.channel.longest())?;
        let eager = self.core.channel.eager_bytes();
        let in_ring = if length <= eager {
            length
        } else {
            DESCRIPTOR_BYTES
        };
        if !self.core.channel.make_room(in_ring)? {
            return Ok(None);
        }
        if self.calls.slots.is_full() {
            return Ok(None);
        }
        if length <= eager {
            let Some(call) = self.calls.slots.begin(tag, ()) else {
                return Ok(None);
            };
            self.core
                .channel
                .push(Kind::Request, handler, call, body.bytes());
            return Ok(Some(call));
        }
        // Whatever may fail comes before the call exists.
        let export = self.core.channel.exports().export(body.take())?;
        let Some(call) = self.calls.slots.begin(tag, ()) else {
            return Ok(None);
        };
        self.calls.slots.mark(call, EXPORTS);
        self.core
            .channel
            .push_long(Kind::LongRequest, handler, call, &export);
        if !is_planted(Bug::BufferReused) {
            self.calls.exports.push((call, export));
        }
        Ok(Some(call))
    }

    fn submit_attach(&mut self, region: &RegionKey, tag: u64) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let name = &region.name;
        check_length(name.len(), NAME_BYTES_MAX)?;
        let channel = &mut self.core.channel;
        if !channel.make_room(name.len())? {
            return Ok(None);
        }
        let Some(call) = self.calls.slots.begin(tag, ()) else {
            return Ok(None);
        };
        channel.push(Kind::Attach, 0, call, name.as_bytes());
        Ok(Some(call))
    }

    fn set_attached(&mut self, region: u64, attached: Attached) {
        self.attached.retain(|(number, _)| *number != region);
        self.attached.push((region, attached));
    }

    fn submit_one_sided(
        &mut self,
        region: &RegionKey,
        offset: u64,
        wanted: &Wanted<'_>,
        tag: u64,
    ) -> Result<Submitted, CallError> {
        let Some(attached) = self.attached(region)? else {
            return Ok(Submitted::Unattached);
        };
        let remote = wanted.check(region, &attached, offset)?;
        wanted.check_length(self.core.channel.longest_operation())?;
        if !self.takes_operation()? {
            return Ok(Submitted::Full);
        }
        let channel = &self.core.channel;
        let verb = wanted.verb(channel.inline_bytes(), |bytes| {
            Ok(Arc::new(channel.exports().copied(bytes)?))
        })?;
        Ok(self.stage(remote, verb, tag))
    }

    fn submit_own(
        &mut self,
        region: &RegionKey,
        offset: u64,
        own: &Own<'_>,
        tag: u64,
    ) -> Result<Option<Submitted>, CallError> {
        let Some(attached) = self.attached(region)? else {
            return Ok(Some(Submitted::Unattached));
        };
        let remote = attached.check(region, (offset, own.range.len()), own.direction.access())?;
        check_length(own.range.len(), self.core.channel.longest_operation())?;
        let exports = self.core.channel.exports();
        let Some(part) = self
            .registered
            .part(own, |memory| exports.register_own(memory))?
        else {
            return Ok(None);
        };
        if !self.takes_operation()? {
            return Ok(Some(Submitted::Full));
        }
        let verb = Verb::Own(part, own.direction);
        Ok(Some(self.stage(remote, verb, tag)))
    }

    fn allocate(&mut self, length: usize) -> Result<Arc<dyn AnyRegion>, CallError> {
        let exports = self.core.channel.exports();
        Ok(Arc::new(exports.allocate_own(length)?))
    }

    fn region_target(&mut self, region: &RegionKey) -> Option<MappedRegion<dyn PeerMemory>> {
        let (remote, length) = self.place_of(region)?;
        let memory = Box::new(self.core.channel.queue_pair.map_peer(remote, length)?);
        Some(MappedRegion { memory, length })
    }

    fn region_source(&mut self, region: &RegionKey) -> Option<MappedRegion<dyn PeerSource>> {
        let (remote, length) = self.place_of(region)?;
        let pair = &mut self.core.channel.queue_pair;
        let memory = pair.map_peer_source(remote, length)?;
        Some(MappedRegion { memory, length })
    }

    #[inline]
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let flushed = self.core.channel.flush();
        let posted = flushed.and_then(|()| match self.operations.is_empty() {
            true => Ok(()),
            false => self.post_operations(),
        });
        posted.map_err(|error| self.lose(&error, sink))
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.take(sink).map_err(|error| self.lose(&error, sink))
    }

    fn abandon(&mut self, call: CallId) {
        // Optional: without room for the message, the server executes the call needlessly.
        if self.calls.slots.abandon(call) && matches!(self.core.channel.make_room(0), Ok(true)) {
            self.core.channel.push(Kind::Cancel, 0, call, &[]);
            let _ = self.core.channel.flush();
        }
    }

    fn longest(&self) -> usize {
        self.core.channel.longest()
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        check_length(length, self.core.channel.longest())?;
        let buffer = self.core.channel.exports().take(length);
        Ok(Box::new(buffer.map_err(ChannelError::memory)?))
    }

    fn outstanding(&self) -> usize {
        self.calls.slots.outstanding()
    }

    #[inline]
    fn hold(&mut self, token: Arc<()>) {
        self.token = Some(token);
    }

    fn is_usable(&mut self) -> bool {
        // A message that arrives while nobody waits may be a goodbye, after which calls would not be answered; there
        // may be responses to abandoned calls before it. It may have arrived only at a device that makes progress when
        // its users wait.
        let maps_peers = <C::Device as Device>::QueuePair::MAPS_PEERS;
        for _ in 0..=self.calls.slots.outstanding() {
            let channel = &self.core.channel;
            let is_idle = self.calls.open && self.calls.slots.nobody_waits();
            let is_behind = || !maps_peers && progress::catch_up() && channel.has_arrival();
            if !is_idle || !(channel.has_arrival() || is_behind()) {
                break;
            }
            let _ = self.poll(&mut NoCalls);
        }
        self.calls.open && !self.core.channel.is_known_failed()
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let probed = match self.outstanding() {
            0 => Ok(()),
            _ => self.core.channel.probe_at_intervals(thread::now()),
        };
        let progress = probed
            .and_then(|()| {
                let calls = &mut self.calls;
                self.core.progress(&mut Answered { calls, sink })
            })
            .map(drop);
        progress.map_err(|error| self.lose(&error, sink))
    }

    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        self.core
            .channel
            .prepare_sleep()
            .map_err(|error| self.lose(&error, sink))
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.core.channel.wake().clone())
    }
}

impl<C: Channel> Drop for ChannelLane<C> {
    fn drop(&mut self) {
        self.core.channel.close();
    }
}
