//! A lane over one channel of its own, and the calls that are out on it.

use std::sync::Arc;

use dunlin_verbs::{Device, Work};

use super::lane::{
    check_length, Answer, Body, CallId, Lane, NoCalls, Sink, Sleeper, Submitted, OPERATIONS_STAGED,
};
use super::region::{RegionKey, Wanted};
use super::slots::Slots;
use crate::channel::buffers::{Buffer, BytesMut, Landed};
use crate::channel::carrier::Finished;
use crate::channel::message::{Header, Kind, DESCRIPTOR_BYTES};
use crate::channel::one_sided::{Attached, OneSided, NAME_BYTES_MAX};
use crate::channel::{Channel, ChannelError};
use crate::effort;
use crate::error::{CallError, WireFailure};
use crate::HandlerId;

/// Messages taken in one poll: bounds the time that a poll holds its caller.
const POLL_BUDGET: usize = 64;

/// What a lane knows of a call besides.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    /// The response is being fetched.
    fetching: bool,
    /// An entry of `exports` is this call's.
    exports: bool,
}

/// A lane over a channel.
#[derive(Debug)]
pub(crate) struct ChannelLane<C: Channel> {
    channel: C,
    calls: Slots<Traits>,
    /// Payloads of long requests while the server may still read them.
    exports: Vec<(CallId, Buffer<C::Device>)>,
    /// One-sided operations of the next flush.
    operations: Vec<OneSided>,
    attached: Vec<(u64, Attached)>,
    /// Long responses that were read, and whose server is still to be told.
    releases: Vec<CallId>,
    /// Calls are taken: neither has the server said goodbye (`leaving`), nor is the channel lost.
    open: bool,
    /// The server said goodbye: answers still come.
    leaving: bool,
    /// The calls were told that the channel is lost.
    lost: bool,
    /// What is held as long as the lane lives.
    token: Option<Arc<()>>,
}

impl<C: Channel> ChannelLane<C> {
    pub(crate) fn new(channel: C) -> Self {
        let most = channel.config().max_outstanding.min(channel.most_calls());
        Self {
            calls: Slots::new(most),
            channel,
            exports: Vec::new(),
            operations: Vec::with_capacity(OPERATIONS_STAGED),
            attached: Vec::new(),
            releases: Vec::new(),
            open: true,
            leaving: false,
            lost: false,
            token: None,
        }
    }

    /// The call has ended: says whose it was, unless nobody wants the answer.
    #[inline]
    fn finish(&mut self, call: CallId) -> Result<Option<u64>, ChannelError> {
        let ended = self.calls.finish(call).ok_or_else(no_such_call)?;
        if ended.extra.exports {
            self.exports.retain(|(owner, _)| *owner != call);
        }
        Ok(ended.tag)
    }

    /// The call has ended well, with a response that has a buffer of its own.
    fn finish_long(
        &mut self,
        call: CallId,
        buffer: Buffer<C::Device>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        if let Some(tag) = self.finish(call)? {
            let landed = Landed::after_completion(buffer);
            sink.complete(tag, Ok(Answer::Long(Box::new(landed))));
        }
        Ok(())
    }

    /// When no more calls may be out: an error where that is the user's limit, else there is only no room for now.
    fn full<T>(&self, no_room: T) -> Result<T, CallError> {
        let limit = self.calls.limit();
        match limit < self.channel.most_calls() {
            true => Err(CallError::TooManyOutstanding { limit }),
            false => Ok(no_room),
        }
    }

    /// Takes what the server sent before it went, which is still an answer.
    fn take_last(&mut self, sink: &mut dyn Sink) {
        while let Ok(Some(header)) = self.channel.receive() {
            if self.dispatch(header, sink).is_err() {
                break;
            }
        }
    }

    fn lose(&mut self, error: &ChannelError, sink: &mut dyn Sink) -> CallError {
        if !self.lost {
            if !error.is_violation() {
                self.take_last(sink);
            }
            self.lost = true;
            self.open = false;
            self.channel.close();
            let out: Vec<CallId> = self.calls.out().map(|(call, _)| call).collect();
            for call in out {
                if let Ok(Some(tag)) = self.finish(call) {
                    sink.complete(tag, Err(error.into()));
                }
            }
        }
        error.into()
    }

    fn take(&mut self, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        if self.channel.is_idle() && self.releases.is_empty() {
            C::Device::charge(Work::Poll);
            return Ok(0);
        }
        let mut taken = 0;
        while taken < POLL_BUDGET {
            let Some(header) = self.channel.receive()? else {
                break;
            };
            taken += 1;
            match header.kind {
                Kind::Response => self.answer(header, sink)?,
                _ => self.dispatch(header, sink)?,
            }
        }
        if self.channel.is_fetching() || self.channel.has_one_sided() || !self.releases.is_empty() {
            self.channel.progress()?;
            taken += self.take_fetched(sink)?;
        }
        if taken > 0 {
            self.channel.tell_consumed()?;
        }
        Ok(taken)
    }

    fn post_operations(&mut self) -> Result<(), ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        let posted = self.channel.post_one_sided(self.operations.iter());
        self.operations.clear();
        posted
    }

    fn refusal(&self) -> Option<CallError> {
        if self.leaving {
            return Some(CallError::ShuttingDown);
        }
        self.lost.then(|| CallError::ConnectionLost {
            why: "it was lost before".into(),
        })
    }

    #[inline]
    fn answer(&mut self, header: Header, sink: &mut dyn Sink) -> Result<(), ChannelError> {
        C::Device::charge(effort::TOOK);
        if let Some(tag) = self.finish(header.call)? {
            sink.answer(tag, self.channel.payload(header));
        }
        Ok(())
    }

    #[cold]
    fn dispatch(&mut self, header: Header, sink: &mut dyn Sink) -> Result<(), ChannelError> {
        match header.kind {
            Kind::Response => self.answer(header, sink)?,
            Kind::Failure => {
                let failure = WireFailure::decode(self.channel.payload(header))
                    .ok_or_else(|| ChannelError::violation("a failure without a reason"))?;
                if let Some(tag) = self.finish(header.call)? {
                    sink.complete(tag, Err(failure.into_call_error()));
                }
            }
            Kind::LongResponse => {
                let call = self.calls.extra(header.call).ok_or_else(no_such_call)?;
                // Else one call of ours could make us fetch any number of times.
                if std::mem::replace(&mut call.fetching, true) {
                    return Err(ChannelError::violation("two answers to one call"));
                }
                let mut descriptor = [0; DESCRIPTOR_BYTES];
                let payload = self.channel.payload(header);
                if payload.len() != descriptor.len() {
                    return Err(ChannelError::violation(
                        "a long message without a descriptor",
                    ));
                }
                descriptor.copy_from_slice(payload);
                match self.channel.fetch(header.call, &descriptor) {
                    Err(error) if error.is_memory() => {
                        // The server need not keep it.
                        self.releases.push(header.call);
                        if let Some(tag) = self.finish(header.call)? {
                            sink.complete(tag, Err(CallError::no_memory_for_response(&error)));
                        }
                    }
                    fetched => fetched?,
                }
            }
            Kind::Goodbye => {
                self.leaving = true;
                self.open = false;
            }
            Kind::Request | Kind::LongRequest | Kind::Release | Kind::Cancel | Kind::Attach => {
                return Err(ChannelError::violation("a server that calls its client"));
            }
            _ => {
                return Err(ChannelError::violation(
                    "a message of another kind of channel",
                ))
            }
        }
        Ok(())
    }

    fn take_fetched(&mut self, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        let mut taken = 0;
        while let Some(finished) = self.channel.take_one_sided() {
            taken += 1;
            match finished {
                Finished::Short(call, length) => {
                    if let Some(tag) = self.finish(call)? {
                        sink.answer(tag, self.channel.result(length));
                    }
                }
                Finished::Long(call, buffer) => self.finish_long(call, buffer, sink)?,
                Finished::Refused(call, error) => {
                    if let Some(tag) = self.finish(call)? {
                        sink.complete(tag, Err(error.into()));
                    }
                }
            }
        }
        while let Some(fetched) = self.channel.take_fetched() {
            taken += 1;
            self.releases.push(fetched.id);
            self.finish_long(fetched.id, fetched.buffer, sink)?;
        }
        let due = !self.releases.is_empty();
        while let Some(&call) = self.releases.last() {
            if !self.channel.make_room(0)? {
                break;
            }
            self.channel.push(Kind::Release, 0, call, &[]);
            self.releases.pop();
        }
        if due {
            self.channel.flush()?;
        }
        Ok(taken)
    }
}

#[cold]
fn no_such_call() -> ChannelError {
    ChannelError::violation("an answer to no call of ours")
}

impl<C: Channel> Lane for ChannelLane<C> {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if !self.open || payload.len() > self.channel.eager_bytes() {
            return None;
        }
        if !matches!(self.channel.make_room(payload.len()), Ok(true)) {
            return None;
        }
        let call = self.calls.begin(tag, Traits::default())?;
        C::Device::charge(effort::ASKED);
        self.channel.push(Kind::Request, handler, call, payload);
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
        check_length(length, self.channel.longest())?;
        let eager = self.channel.eager_bytes();
        let in_ring = if length <= eager {
            length
        } else {
            DESCRIPTOR_BYTES
        };
        if !self.channel.make_room(in_ring)? {
            return Ok(None);
        }
        if self.calls.is_full() {
            return self.full(None);
        }
        if length <= eager {
            let Some(call) = self.calls.begin(tag, Traits::default()) else {
                return self.full(None);
            };
            self.channel
                .push(Kind::Request, handler, call, body.bytes());
            return Ok(Some(call));
        }
        // Whatever may fail comes before the call exists.
        let export = match body.take() {
            Body::Bytes(bytes) => {
                let export = self.channel.export(length)?;
                export.fill(bytes);
                export
            }
            Body::Buffer(buffer) => match buffer.into_any().downcast::<Buffer<C::Device>>() {
                Ok(own) if self.channel.owns(&own) => *own,
                Ok(foreign) => {
                    // Made by an earlier connection of this lane: its key means nothing here.
                    let export = self.channel.export(length)?;
                    export.fill(foreign.bytes_ref());
                    export
                }
                Err(_) => unreachable!("a client keeps to one device"),
            },
        };
        let traits = Traits {
            exports: true,
            ..Traits::default()
        };
        let Some(call) = self.calls.begin(tag, traits) else {
            return self.full(None);
        };
        self.channel
            .push_long(Kind::LongRequest, handler, call, &export);
        self.exports.push((call, export));
        Ok(Some(call))
    }

    fn submit_attach(&mut self, name: &str, tag: u64) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        check_length(name.len(), NAME_BYTES_MAX)?;
        let room = self.channel.make_room(name.len());
        if !room? {
            return Ok(None);
        }
        let Some(call) = self.calls.begin(tag, Traits::default()) else {
            return self.full(None);
        };
        self.channel.push(Kind::Attach, 0, call, name.as_bytes());
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
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let found = self.attached.iter().find(|(n, _)| *n == region.number);
        let Some(&(_, attached)) = found else {
            return Ok(Submitted::Unattached);
        };
        let remote = wanted.check(region, &attached, offset)?;
        wanted.check_length(self.channel.longest_operation())?;
        let full = self.operations.len() >= OPERATIONS_STAGED
            || self.channel.one_sided_room()? <= self.operations.len();
        if full {
            return Ok(Submitted::Full);
        }
        let verb = wanted.verb(self.channel.inline_bytes(), |bytes| {
            let export = self.channel.export(bytes.len())?;
            export.fill(bytes);
            Ok(Arc::new(export))
        })?;
        let Some(call) = self.calls.begin(tag, Traits::default()) else {
            return self.full(Submitted::Full);
        };
        self.operations.push(OneSided { call, remote, verb });
        Ok(Submitted::Call(call))
    }

    #[inline]
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let flushed = self.channel.flush();
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
        // Only a courtesy: when there is no room the server simply answers in vain.
        if self.calls.abandon(call) && matches!(self.channel.make_room(0), Ok(true)) {
            self.channel.push(Kind::Cancel, 0, call, &[]);
            let _ = self.channel.flush();
        }
    }

    fn longest(&self) -> usize {
        self.channel.longest()
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        check_length(length, self.channel.longest())?;
        Ok(Box::new(self.channel.export(length)?))
    }

    fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    #[inline]
    fn hold(&mut self, token: Arc<()>) {
        self.token = Some(token);
    }

    fn is_usable(&mut self) -> bool {
        // What comes while no call is out may be a goodbye, after which nobody would answer.
        if self.calls.outstanding() == 0 && self.channel.has_arrival() {
            let _ = self.poll(&mut NoCalls);
        }
        self.open && !self.channel.is_known_failed()
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let probed = match self.outstanding() {
            0 => Ok(()),
            _ => self.channel.probe_at_intervals(),
        };
        let progress = probed
            .and_then(|()| self.channel.progress())
            .and_then(|()| self.take_fetched(sink))
            .map(drop);
        progress.map_err(|error| self.lose(&error, sink))
    }

    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        self.channel
            .prepare_sleep()
            .map_err(|error| self.lose(&error, sink))
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.channel.wake().clone())
    }
}

impl<C: Channel> Drop for ChannelLane<C> {
    fn drop(&mut self) {
        self.channel.close();
    }
}
