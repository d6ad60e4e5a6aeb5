//! The interface of a lane: calls are submitted to it and responses come from it, whatever its implementation. An
//! engine without threads or clocks; its users poll it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::thread;
use dunlin_verbs::{AnyRegion, CompletionChannel, PeerMemory, PeerSource, VerbsError};

use crate::call::own::Own;
use crate::call::wanted::{RegionKey, Wanted};
pub(crate) use crate::channel::buffers::Body;
use crate::channel::buffers::{Bytes, BytesMut};
pub(crate) use crate::channel::call_id::CallId;
use crate::channel::one_sided::Attached;
use crate::config::REST;
use crate::error::CallError;
use crate::HandlerId;

/// Maximum number of one-sided operations that wait for a flush.
pub(crate) const OPERATIONS_STAGED: usize = 16;

/// Checks that the other side accepts a message of this length.
///
/// # Errors
/// [`CallError::TooLong`] when it does not.
#[inline]
pub(crate) fn check_length(bytes: usize, limit: usize) -> Result<(), CallError> {
    match bytes <= limit {
        true => Ok(()),
        false => Err(CallError::TooLong { bytes, limit }),
    }
}

/// The result of a call.
pub(crate) enum Answer<'a> {
    /// In private memory of the lane, valid until the next message.
    Short(&'a [u8]),
    /// In a buffer of its own.
    Long(Box<dyn Bytes>),
}

/// The receiver of the results of calls.
pub(crate) trait Sink {
    /// The call submitted with `tag` has ended.
    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>);
    /// The call has ended successfully with a short response: by far the most frequent case.
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        self.complete(tag, Ok(Answer::Short(response)));
    }
    /// Whether it runs user code, which may make calls on the same lane and take any amount of time.
    #[inline]
    fn calls_back(&self) -> bool {
        false
    }
}

/// A lane, independent of its device.
pub(crate) trait Lane: Send {
    /// Sends a short request with the next flush, if nothing prevents it; otherwise [`Lane::submit`] returns the
    /// reason.
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId>;
    /// As [`Lane::submit_short`], with a payload of `length` bytes that `fill` writes completely, at the place from
    /// which it is sent. Returns `None`, without having called `fill`, also where the lane has no such place.
    fn submit_filled(
        &mut self,
        _handler: HandlerId,
        _length: usize,
        _tag: u64,
        _fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<CallId> {
        None
    }
    /// Sends a request with the next flush. `Ok(None)`: there is no room, or the maximum number of calls is
    /// outstanding, including abandoned ones until they are answered; poll and try again with the same body.
    fn submit(
        &mut self,
        handler: HandlerId,
        body: &mut Body<'_>,
        tag: u64,
    ) -> Result<Option<CallId>, CallError>;
    /// Requests a region with the next flush; the response is an encoded [`Attached`]. `Ok(None)` as for
    /// [`Lane::submit`].
    fn submit_attach(&mut self, region: &RegionKey, tag: u64) -> Result<Option<CallId>, CallError>;
    /// The server has granted the region with this number at the client, as requested by this lane.
    fn set_attached(&mut self, region: u64, attached: Attached);
    /// Starts a one-sided operation with the next flush; its result is what it read.
    fn submit_one_sided(
        &mut self,
        region: &RegionKey,
        offset: u64,
        wanted: &Wanted<'_>,
        tag: u64,
    ) -> Result<Submitted, CallError>;
    /// Allocates memory of the lane's device for its user, for operations that read and fill it in place.
    fn allocate(&mut self, _length: usize) -> Result<Arc<dyn AnyRegion>, CallError> {
        Err(CallError::OneSidedUnsupported)
    }
    /// As [`Lane::submit_one_sided`], a READ or WRITE of the caller's own memory, whose result is empty. `None`: the
    /// lane cannot use that memory.
    fn submit_own(
        &mut self,
        _region: &RegionKey,
        _offset: u64,
        _own: &Own<'_>,
        _tag: u64,
    ) -> Result<Option<Submitted>, CallError> {
        Ok(None)
    }
    /// The memory of an attached region, if it is mapped here and may be written: available once a WRITE to it has
    /// succeeded.
    fn region_target(&mut self, _region: &RegionKey) -> Option<MappedRegion<dyn PeerMemory>> {
        None
    }
    /// The same for reading, once a READ has succeeded.
    fn region_source(&mut self, _region: &RegionKey) -> Option<MappedRegion<dyn PeerSource>> {
        None
    }
    /// Posts the batch to the device. An error ends the lane, after every call has been completed with it; the same
    /// holds for the other methods with a sink.
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError>;
    /// Whether requests of futures may wait for the driver's next poll, so that those of many tasks are sent together.
    fn gathers(&self) -> bool {
        false
    }
    /// The queue that it shares with other lanes, if it can: lanes that are opened with it use the same one. Then
    /// [`Lane::gather`] keeps its batch there.
    fn queue(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    /// As [`Lane::flush`], but the batch may wait in the shared queue for [`Lane::send_gathered`] of any lane there.
    fn gather(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.flush(sink)
    }
    /// Sends what lanes have gathered in the shared queue.
    fn send_gathered(&mut self, _sink: &mut dyn Sink) -> Result<(), CallError> {
        Ok(())
    }
    /// Whether nothing has arrived for it, as far as other lanes of the shared queue have seen.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Takes what has arrived.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError>;
    /// [`Lane::flush`] followed by [`Lane::poll`]. `waits`: the caller has nothing to do until a response arrives.
    #[inline]
    fn turn(&mut self, sink: &mut dyn Sink, waits: bool) -> Result<usize, CallError> {
        let _ = waits;
        self.flush(sink)?;
        self.poll(sink)
    }
    /// The caller no longer wants the response; the slot is free again when it arrives.
    fn abandon(&mut self, call: CallId);
    /// To be called after a poll without success.
    #[inline]
    fn rest(&mut self) {
        thread::idle(REST, false);
    }
    /// Maximum length of a payload that the server accepts, in bytes.
    fn longest(&self) -> usize;
    /// A registered buffer to be filled in place.
    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError>;
    /// Number of outstanding calls, including abandoned ones.
    fn outstanding(&self) -> usize;
    /// Holds the token for as long as the lane lives.
    fn hold(&mut self, _token: Arc<()>) {}
    /// Whether other threads send over the same queue pair.
    fn is_shared(&self) -> bool {
        false
    }
    /// Whether the server requests datagrams of clients that have the choice, as far as the lane knows
    /// ([`Standing::DATAGRAMS`](crate::admission::Standing::DATAGRAMS)).
    fn wants_datagrams(&self) -> bool {
        false
    }
    /// Whether the lane takes calls.
    fn is_usable(&mut self) -> bool;
    /// Checks for completions and failures, which arriving messages do not show.
    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError>;
    /// Announces sleep to the server. See [`crate::channel::carrier::Carrier::prepare_sleep`].
    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError>;
    /// What a sleeping thread waits on, and how it is woken.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// A sink for lanes whose outstanding calls were all abandoned.
pub(crate) struct NoCalls;

impl Sink for NoCalls {
    fn complete(&mut self, _tag: u64, _result: Result<Answer<'_>, CallError>) {}
}

/// Memory of an attached region that is mapped here.
pub(crate) struct MappedRegion<M: ?Sized> {
    pub(crate) memory: Box<M>,
    /// Length of the region in bytes as granted to this connection. On another it may have been longer.
    pub(crate) length: usize,
}

impl<M: ?Sized> MappedRegion<M> {
    /// The position of `length` bytes at `offset`; `None` if they are not inside.
    pub(crate) fn place(&self, offset: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(offset)
    }
}

/// The outcome of submitting a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    Call(CallId),
    /// There is no room: poll and try again.
    Full,
    /// The region must be attached on this lane first.
    Unattached,
}

/// A thread's means to sleep until the lane's peer has something for it.
pub(crate) trait Sleeper: Send + Sync {
    /// Sleeps for at most `timeout`.
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
