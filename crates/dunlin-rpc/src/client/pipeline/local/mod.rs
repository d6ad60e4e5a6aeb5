//! Calls of one thread as futures: tasks that stay on a thread share a lane of their own, so neither a lock, nor an
//! atomic instruction, nor another thread is between a task and its response.
//!
//! One more task, the [`LocalDriver`], sends what the others have submitted and takes what has arrived for all of them,
//! each time the executor polls it; while nothing is outstanding, it is not polled. Calls are kept as for futures of
//! all threads ([`crate::client::driver`]), and the lane is that of a [`Pipeline`]. Wakers are foreign code, which may
//! make or cancel calls: none is cloned, woken or dropped while the calls are borrowed.

mod call;
mod driver;
mod place;
mod reply;

pub use call::LocalCall;
pub use driver::LocalDriver;
pub use place::LocalPermit;
pub use reply::LocalReply;

use std::cell::{RefCell, RefMut};
use std::ops::Deref;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::Pipeline;
use crate::call::wanted::Wanted;
use crate::client::driver::calls::{Calls, Holds, Wish};
use crate::client::driver::waiters::SharedCalls;
use crate::client::RemoteRegion;
use crate::error::CallError;
use crate::HandlerId;
use reply::CountedReply;

/// The state shared by a thread's client, its driver and its calls.
struct Shared(RefCell<Inner>);

struct Inner {
    /// `None`: no call is accepted any more.
    pipeline: Option<Pipeline>,
    calls: Calls<CountedReply>,
    /// The error of calls made after the end.
    end: CallError,
    /// The driver's task, while it waits for a call, or sleeps.
    driver: Option<Waker>,
    /// Number of the driver's polls that took something.
    found: u32,
    /// When calls are checked for their deadlines next.
    next_expiry: Instant,
}

impl Shared {
    #[inline]
    fn lock(&self) -> RefMut<'_, Inner> {
        self.0.borrow_mut()
    }

    /// Ends the borrow, and then wakes the tasks whose calls have ended.
    #[inline]
    fn give_back(&self, inner: RefMut<'_, Inner>) {
        if !inner.calls.woken.is_empty() {
            self.give_back_and_wake(inner);
        }
    }

    fn give_back_and_wake(&self, mut inner: RefMut<'_, Inner>) {
        let mut woken = std::mem::take(&mut inner.calls.woken);
        drop(inner);
        woken.drain(..).for_each(Waker::wake);
        // So that none is allocated for each poll.
        let mut inner = self.lock();
        if inner.calls.woken.capacity() == 0 {
            inner.calls.woken = woken;
        }
    }

    /// No call is accepted any more, and outstanding ones end with this error.
    fn end(&self, error: CallError) {
        let mut inner = self.lock();
        let pipeline = inner.pipeline.take();
        inner.calls.end(&error);
        inner.end = error;
        self.give_back(inner);
        drop(pipeline);
    }
}

impl Inner {
    /// Whether this process has not been forked since.
    #[inline]
    fn is_here(&self) -> bool {
        let pipeline = self.pipeline.as_ref();
        pipeline.is_none_or(|pipeline| pipeline.lane.is_here())
    }

    /// Sends a call with the driver's next poll, or queues it until there is room.
    #[inline]
    fn put(&mut self, wish: Wish<'_>, terms: (Duration, Holds)) -> Result<usize, CallError> {
        let Some(pipeline) = &mut self.pipeline else {
            return Err(self.end.clone());
        };
        pipeline.lane.check()?;
        go_along(pipeline, &mut self.calls);
        self.calls.put(pipeline.lane.as_mut(), wish, terms, false)
    }
}

/// Makes sure that the pipeline uses the lane that calls should use now, when its client has changed its preset, or
/// when all threads are to share. Outstanding calls end on the former lane.
#[inline]
fn go_along(pipeline: &mut Pipeline, calls: &mut Calls<CountedReply>) {
    if !pipeline.recipe.keeps_lanes() {
        go_over(pipeline, calls);
    }
}

#[cold]
fn go_over(pipeline: &mut Pipeline, calls: &mut Calls<CountedReply>) {
    let Some(successor) = pipeline.successor() else {
        return;
    };
    if pipeline.former.is_some() {
        // There are still outstanding calls on the former lane.
        return;
    }
    // A grant on one lane does not apply to another.
    if let Some(attaching) = calls.give_up_attaching() {
        pipeline.lane.abandon(attaching);
    }
    pipeline.change(successor);
    if pipeline.former.is_some() {
        calls.leave_lane();
        if !calls.are_on_former() {
            // Calls that were cancelled may be outstanding for ever.
            pipeline.end_former();
        }
    }
}

/// A reference of a client or a call to the shared state; the driver ends when the last is dropped.
struct Holder(Rc<Shared>);

impl Clone for Holder {
    #[inline]
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl Deref for Holder {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Holder {
    #[inline]
    fn put(&self, wish: Wish<'_>, terms: (Duration, Holds)) -> LocalCall {
        let shared = &self.0;
        let mut inner = shared.lock();
        let put = inner.put(wish, terms);
        let tag = put.unwrap_or_else(|error| inner.calls.refuse(error));
        let driver = inner.driver.take();
        shared.give_back(inner);
        if let Some(driver) = driver {
            driver.wake();
        }
        LocalCall::new(self.clone(), tag)
    }
}

impl Drop for Holder {
    #[inline]
    fn drop(&mut self) {
        // The other reference is the driver's.
        if Rc::strong_count(&self.0) == 2 {
            self.wake_driver();
        }
    }
}

/// A client of one thread, for tasks that stay there: a runtime with one thread per core, tokio's `LocalSet` or
/// `current_thread`, or any executor of futures that are not [`Send`]. Its calls cost a fraction of those of
/// [`crate::Client::call_async`], and no thread runs for them. Made by [`crate::Client::local`].
///
/// Cheap to clone; calls of clones share one connection, which is not used by others and not re-established: when it is
/// lost all calls end with an error, and a new client must be made. It follows when its client changes its preset.
#[derive(Clone)]
pub struct LocalClient {
    holder: Holder,
    deadline: Duration,
}

impl std::fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClient")
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

impl LocalClient {
    pub(in crate::client) fn new(mut pipeline: Pipeline, limit: usize) -> (Self, LocalDriver) {
        pipeline.kind.is_task = true;
        let (deadline, told) = (pipeline.deadline, pipeline.told);
        let shared = Rc::new(Shared(RefCell::new(Inner {
            pipeline: Some(pipeline),
            calls: Calls::new(limit, told),
            end: CallError::Closed,
            driver: None,
            found: 0,
            next_expiry: thread::now(),
        })));
        let driver = LocalDriver::new(Rc::clone(&shared));
        let holder = Holder(shared);
        (Self { holder, deadline }, driver)
    }

    /// Returns a clone with this deadline for its calls.
    #[must_use = "it is a clone that has the deadline"]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            holder: self.holder.clone(),
            deadline,
        }
    }

    /// Number of calls that are outstanding or queued.
    pub fn outstanding(&self) -> usize {
        self.holder.0.lock().calls.live
    }

    /// Starts a call and returns at once; the future resolves to the response, within the client's deadline. The
    /// request is sent when the driver is polled next, together with those of other tasks, or, if there is no room on
    /// the connection, as soon as there is, in the order of the calls. A call beyond
    /// [`crate::ChannelConfig::max_outstanding`] ends with [`CallError::TooManyOutstanding`]; [`LocalClient::call`]
    /// waits instead. Dropping the future cancels the call, as for [`crate::Client::call_async`].
    #[inline]
    pub fn call_async(&self, handler: HandlerId, payload: &[u8]) -> LocalCall {
        let terms = (self.deadline, Holds::Nothing);
        self.holder.put(Wish::Call(handler, payload), terms)
    }

    /// As [`LocalClient::call_async`], but the call is sent at the first poll, and waits for a place while the maximum
    /// number of calls is outstanding or queued. Waiting tasks are served in order; the wait counts towards the
    /// deadline.
    ///
    /// # Errors
    /// As for [`crate::Client::call`].
    pub async fn call(&self, handler: HandlerId, payload: &[u8]) -> Result<LocalReply, CallError> {
        let mut place = place::place(&*self.holder, self.deadline).await?;
        let ended = self.holder.put(Wish::Call(handler, payload), place.terms());
        ended.await.map_err(|error| match error {
            CallError::DeadlineExceeded { .. } => CallError::DeadlineExceeded {
                after: self.deadline,
            },
            error => error,
        })
    }

    /// Waits until one more call may be outstanding or queued, as [`LocalClient::call`] does, and reserves the place
    /// for it: `local.ready().await?.call(ECHO, b"hello").await?` is never refused for too many calls.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] when no place became free in time.
    pub async fn ready(&self) -> Result<LocalPermit, CallError> {
        let place = place::place(self.holder.clone(), self.deadline).await?;
        Ok(LocalPermit(place))
    }

    /// Reads `length` bytes of a region, which is attached on this connection before the first operation on it.
    pub fn read_async(&self, region: &RemoteRegion, offset: u64, length: usize) -> LocalCall {
        self.operate(region, offset, Wanted::Read(length))
    }

    /// Writes into a region; the bytes are copied now, and the response is empty.
    pub fn write_async(&self, region: &RemoteRegion, offset: u64, bytes: &[u8]) -> LocalCall {
        self.operate(region, offset, Wanted::Write(bytes))
    }

    /// Adds to 8 bytes of a region; the response is their previous value.
    pub fn fetch_add_async(&self, region: &RemoteRegion, offset: u64, add: u64) -> LocalCall {
        self.operate(region, offset, Wanted::FetchAndAdd(add))
    }

    /// Replaces 8 bytes of a region if they equal `compare`; the response is their previous value.
    pub fn compare_and_swap_async(
        &self,
        region: &RemoteRegion,
        offset: u64,
        (compare, swap): (u64, u64),
    ) -> LocalCall {
        self.operate(region, offset, Wanted::CompareAndSwap { compare, swap })
    }

    fn operate(&self, region: &RemoteRegion, offset: u64, wanted: Wanted<'_>) -> LocalCall {
        let wish = Wish::OneSided(region.key(), offset, wanted);
        self.holder.put(wish, (self.deadline, Holds::Nothing))
    }
}
