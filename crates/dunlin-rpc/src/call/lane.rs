//! What a lane is to its users: something that calls are submitted to and answers come from, whatever stands behind it.
//! An engine without threads or clocks; its users poll it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::thread;
use dunlin_verbs::{AnyRegion, CompletionChannel, PeerMemory, PeerSource, VerbsError};

use crate::call::own::Own;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::buffers::{Bytes, BytesMut};
pub(crate) use crate::channel::call_id::CallId;
use crate::channel::one_sided::Attached;
use crate::config::REST;
use crate::error::CallError;
use crate::HandlerId;

/// One-sided operations that wait for a flush, at most.
pub(crate) const OPERATIONS_STAGED: usize = 16;

/// What is sent.
pub(crate) enum Body<'a> {
    /// Bytes of the caller, copied.
    Bytes(&'a [u8]),
    /// A buffer from [`Lane::buffer`], sent as it is.
    Buffer(Box<dyn BytesMut>),
}

impl Body<'_> {
    /// The bytes, whoever has them.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Body::Bytes(bytes) => bytes,
            Body::Buffer(buffer) => buffer.bytes_ref(),
        }
    }

    /// Takes what is to be sent; nothing is left.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Body::Bytes(&[]))
    }
}

/// Whether a message of this length is one that the other side takes.
///
/// # Errors
/// [`CallError::TooLong`] when it is not.
#[inline]
pub(crate) fn check_length(bytes: usize, limit: usize) -> Result<(), CallError> {
    match bytes <= limit {
        true => Ok(()),
        false => Err(CallError::TooLong { bytes, limit }),
    }
}

/// What came back.
pub(crate) enum Answer<'a> {
    /// In private memory of the lane until the next message.
    Short(&'a [u8]),
    /// In a buffer of its own.
    Long(Box<dyn Bytes>),
}

/// Who wants the answers.
pub(crate) trait Sink {
    /// The call submitted with `tag` has ended.
    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>);
    /// It has ended well and its response is short: by far the most frequent end.
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        self.complete(tag, Ok(Answer::Short(response)));
    }
    /// Whether it runs code of users, which may call by the same lane and take as long as it likes.
    #[inline]
    fn calls_back(&self) -> bool {
        false
    }
}

/// A lane, whatever its device.
pub(crate) trait Lane: Send {
    /// Sends a short request with the next flush, if nothing at all stands against it; else [`Lane::submit`] says what
    /// does.
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId>;
    /// As [`Lane::submit_short`], with a payload of `length` bytes that `fill` writes where it will leave from, all of
    /// them. `None` also where the lane has no such place; `fill` was not called then.
    fn submit_filled(
        &mut self,
        _handler: HandlerId,
        _length: usize,
        _tag: u64,
        _fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<CallId> {
        None
    }
    /// Sends a request with the next flush. `Ok(None)`: there is no room, or as many calls are out as may be, those
    /// that were given up among them until they are answered; poll and try again with the same body.
    fn submit(
        &mut self,
        handler: HandlerId,
        body: &mut Body<'_>,
        tag: u64,
    ) -> Result<Option<CallId>, CallError>;
    /// Asks for a region with the next flush; the answer is an encoded [`Attached`]. `Ok(None)` as for
    /// [`Lane::submit`].
    fn submit_attach(&mut self, region: &RegionKey, tag: u64) -> Result<Option<CallId>, CallError>;
    /// The server has granted the region with this number at the client, as it was asked by this lane.
    fn set_attached(&mut self, region: u64, attached: Attached);
    /// Does a one-sided operation with the next flush; its answer is what it read.
    fn submit_one_sided(
        &mut self,
        region: &RegionKey,
        offset: u64,
        wanted: &Wanted<'_>,
        tag: u64,
    ) -> Result<Submitted, CallError>;
    /// Memory of the lane's device for its user, for operations that read and fill it where it stands.
    fn allocate(&mut self, _length: usize) -> Result<Arc<dyn AnyRegion>, CallError> {
        Err(CallError::OneSidedUnsupported)
    }
    /// As [`Lane::submit_one_sided`], a READ or WRITE of memory of the caller's own, which answers without bytes.
    /// `None`: the lane cannot have that memory.
    fn submit_own(
        &mut self,
        _region: &RegionKey,
        _offset: u64,
        _own: &Own<'_>,
        _tag: u64,
    ) -> Result<Option<Submitted>, CallError> {
        Ok(None)
    }
    /// The memory of an attached region, where it is mapped here and may be written: after a WRITE to it has succeeded.
    fn region_target(&mut self, _region: &RegionKey) -> Option<MappedRegion<dyn PeerMemory>> {
        None
    }
    /// The same for who may read it, after a READ.
    fn region_source(&mut self, _region: &RegionKey) -> Option<MappedRegion<dyn PeerSource>> {
        None
    }
    /// Hands the batch to the device. An error ends the lane, after every call has been completed with it; so do those
    /// of the other methods with a sink.
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError>;
    /// Whether requests of futures may wait for the driver's next look, so that those of many tasks leave together.
    fn gathers(&self) -> bool {
        false
    }
    /// What it shares with other lanes, where it can: lanes that are opened beside it use the same. Then
    /// [`Lane::gather`] keeps its batch there.
    fn queue(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    /// As [`Lane::flush`], but the batch may wait in the queue that it shares, for [`Lane::send_gathered`] of any lane
    /// there.
    fn gather(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.flush(sink)
    }
    /// Sends what lanes have gathered in the queue that it shares.
    fn send_gathered(&mut self, _sink: &mut dyn Sink) -> Result<(), CallError> {
        Ok(())
    }
    /// Whether nothing has come for it, as far as other lanes of the queue that it shares have seen.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Takes what has arrived.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError>;
    /// [`Lane::flush`] and then [`Lane::poll`]. `waits`: the caller has nothing to do before an answer comes.
    #[inline]
    fn turn(&mut self, sink: &mut dyn Sink, waits: bool) -> Result<usize, CallError> {
        let _ = waits;
        self.flush(sink)?;
        self.poll(sink)
    }
    /// The caller is no longer interested; the slot is free again when the answer comes.
    fn abandon(&mut self, call: CallId);
    /// After a look in vain.
    #[inline]
    fn rest(&mut self) {
        thread::idle(REST, false);
    }
    /// Longest payload that the server takes, in bytes.
    fn longest(&self) -> usize;
    /// A registered buffer to fill in place.
    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError>;
    /// Calls that are out, abandoned ones included.
    fn outstanding(&self) -> usize;
    /// Holds this as long as it lives.
    fn hold(&mut self, _token: Arc<()>) {}
    /// Whether other threads send by the same queue pair.
    fn is_shared(&self) -> bool {
        false
    }
    /// Whether the server wants datagrams of those that have the choice, as far as the lane has heard
    /// ([`Standing::DATAGRAMS`](crate::admission::Standing::DATAGRAMS)).
    fn wants_datagrams(&self) -> bool {
        false
    }
    /// Whether the lane takes calls.
    fn is_usable(&mut self) -> bool;
    /// Looks for completions and failures, which arriving messages do not show.
    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError>;
    /// Announces sleep to the server. See [`crate::channel::carrier::Carrier::prepare_sleep`].
    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError>;
    /// What a sleeper waits on, and what wakes it.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// Nobody wants answers, because no call is out that was not given up.
pub(crate) struct NoCalls;

impl Sink for NoCalls {
    fn complete(&mut self, _tag: u64, _result: Result<Answer<'_>, CallError>) {}
}

/// Memory of an attached region that is mapped here.
pub(crate) struct MappedRegion<M: ?Sized> {
    pub(crate) memory: Box<M>,
    /// Bytes of the region as this connection was granted it. On another it may have been longer.
    pub(crate) length: usize,
}

impl<M: ?Sized> MappedRegion<M> {
    /// Where `length` bytes at `offset` are; `None`: not inside.
    pub(crate) fn place(&self, offset: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(offset)
    }
}

/// What became of a one-sided operation that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    Call(CallId),
    /// There is no room: poll and try again.
    Full,
    /// The region must be attached on this lane first.
    Unattached,
}

/// A place to sleep until the lane's peer has something.
pub(crate) trait Sleeper: Send + Sync {
    /// Sleeps for `timeout` at most.
    fn sleep(&self, timeout: Duration) -> Result<(), VerbsError>;
    /// Wakes the sleeper.
    fn wake(&self);
}

impl<C: CompletionChannel> Sleeper for C {
    fn sleep(&self, timeout: Duration) -> Result<(), VerbsError> {
        self.wait(timeout).map(drop)
    }

    fn wake(&self) {
        CompletionChannel::wake(self);
    }
}
