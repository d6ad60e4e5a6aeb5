//! Calls of one thread as futures: tasks that stay on a thread share a lane that nobody else has, so neither a lock,
//! nor an atomic instruction, nor another thread is between a task and its answer.
//!
//! One task more, the [`LocalDriver`], sends what the others have submitted and takes what has come for all of them,
//! each time that the executor comes to it; while nothing is out, nobody polls it. What is out is kept as for futures
//! of all threads ([`crate::client::driver`]), and the lane is a [`Pipeline`]'s. Wakers are somebody else's code, which
//! may call or give up calls: none is cloned, woken or dropped while the calls are borrowed.

mod call;
mod driver;
mod place;
mod reply;

pub use call::LocalCall;
pub use driver::LocalDriver;
pub use place::LocalPermit;
pub use reply::LocalReply;

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::Pipeline;
use crate::call::wanted::Wanted;
use crate::client::driver::calls::{Calls, Holds, Wish};
use crate::client::RemoteRegion;
use crate::error::CallError;
use crate::HandlerId;
use reply::CountedReply;

/// What a thread's client, its driver and its calls share.
struct Shared(RefCell<Inner>);

struct Inner {
    /// `None`: no call is taken any more.
    pipeline: Option<Pipeline>,
    calls: Calls<CountedReply>,
    /// Why calls end that come after the end.
    end: CallError,
    /// The driver's task, while it waits for a call, or sleeps.
    driver: Option<Waker>,
    /// Looks of the driver that took something.
    found: u32,
    /// When calls are looked at next for their deadlines.
    next_expiry: Instant,
}

impl Shared {
    #[inline]
    fn lock(&self) -> RefMut<'_, Inner> {
        self.0.borrow_mut()
    }

    /// Ends the borrow, and then wakes those whose calls have ended.
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
        // So that none is allocated for each look.
        let mut inner = self.lock();
        if inner.calls.woken.capacity() == 0 {
            inner.calls.woken = woken;
        }
    }

    /// No call is taken any more, and those that are out end with this.
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

    /// Sends a call with the driver's next look, or lets it wait for room.
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

/// Sees to it that the pipeline's lane is the one that calls are to go over now, when its client has changed its
/// preset, or when all are to share. What is out then ends on the lane before.
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
        // Calls are out still on the lane before this one.
        return;
    }
    // What the server grants on one lane says nothing of another.
    if let Some(attaching) = calls.give_up_attaching() {
        pipeline.lane.abandon(attaching);
    }
    pipeline.change(successor);
    if pipeline.former.is_some() {
        calls.leave_lane();
        if !calls.are_on_former() {
            // Calls that were given up may be out for ever.
            pipeline.end_former();
        }
    }
}

/// What a client or a call has of the shared state; the driver ends when the last is dropped.
struct Holder(Rc<Shared>);

impl Clone for Holder {
    #[inline]
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
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
        // The driver has the other.
        if Rc::strong_count(&self.0) == 2 {
            self.wake_driver();
        }
    }
}

impl Holder {
    #[cold]
    fn wake_driver(&self) {
        let driver = self.0.lock().driver.take();
        driver.into_iter().for_each(Waker::wake);
    }
}

/// A client of one thread, for tasks that stay there: a runtime of one thread for each core, tokio's `LocalSet` or
/// `current_thread`, or any executor of futures that are not [`Send`]. Its calls cost a fraction of those of
/// [`crate::Client::call_async`], and no thread runs for them. Made by [`crate::Client::local`].
///
/// Cheap to clone; a clone's calls go over the same connection, which is its own and which it does not make anew: when
/// it is lost all calls end with an error, and another must be made. It goes along when its client changes its preset.
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

    /// A clone whose calls have this deadline.
    #[must_use = "it is a clone that has the deadline"]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            holder: self.holder.clone(),
            deadline,
        }
    }

    /// Calls that are out or wait.
    pub fn outstanding(&self) -> usize {
        self.holder.0.lock().calls.live
    }

    /// Calls and returns at once; the future brings the answer, within the client's deadline. The request leaves when
    /// the driver is polled next, with those of other tasks; when there is no room on the connection, as soon as there
    /// is, in the order of the calls. One call more than [`crate::ChannelConfig::max_outstanding`] ends with
    /// [`CallError::TooManyOutstanding`]; [`LocalClient::call`] waits instead. Dropping the future cancels the call, as
    /// for [`crate::Client::call_async`].
    #[inline]
    pub fn call_async(&self, handler: HandlerId, payload: &[u8]) -> LocalCall {
        let terms = (self.deadline, Holds::Nothing);
        self.holder.put(Wish::Call(handler, payload), terms)
    }

    /// As [`LocalClient::call_async`], but it is sent with the first poll, and waits for its place while as many calls
    /// are out or wait as may be. Those that wait are served in their order; the wait is a part of the deadline.
    ///
    /// # Errors
    /// As for [`crate::Client::call`].
    pub async fn call(&self, handler: HandlerId, payload: &[u8]) -> Result<LocalReply, CallError> {
        let left = place::place(&self.holder.0, self.deadline).await?;
        let terms = (left, Holds::Nothing);
        let ended = self.holder.put(Wish::Call(handler, payload), terms);
        ended.await.map_err(|error| match error {
            CallError::DeadlineExceeded { .. } => CallError::DeadlineExceeded {
                after: self.deadline,
            },
            error => error,
        })
    }

    /// Waits until one more call may be out or wait, as [`LocalClient::call`] does, and holds the place for it:
    /// `local.ready().await?.call(ECHO, b"hello").await?` is never refused for too many.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] when there was no place for so long.
    pub async fn ready(&self) -> Result<LocalPermit, CallError> {
        let left = place::place(&self.holder.0, self.deadline).await?;
        Ok(LocalPermit::take(&self.holder, left))
    }

    /// Reads `length` bytes of a region, which is attached on this connection before the first operation on it.
    pub fn read_async(&self, region: &RemoteRegion, offset: u64, length: usize) -> LocalCall {
        self.operate(region, offset, Wanted::Read(length))
    }

    /// Writes into a region; the bytes are taken now, and the answer has none.
    pub fn write_async(&self, region: &RemoteRegion, offset: u64, bytes: &[u8]) -> LocalCall {
        self.operate(region, offset, Wanted::Write(bytes))
    }

    /// Adds to 8 bytes of a region; the answer is the 8 bytes that were there.
    pub fn fetch_add_async(&self, region: &RemoteRegion, offset: u64, add: u64) -> LocalCall {
        self.operate(region, offset, Wanted::FetchAndAdd(add))
    }

    /// Replaces 8 bytes of a region when they are `compare`; the answer is the 8 bytes that were there.
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
