//! The client: a handle to a server that any thread may use, and its drivers.
//!
//! Each calling thread has a lane of its own ([`thread_lane`]), so threads share nothing on the path of a call; with
//! presets that share, the lane is a port of the connection handle. Futures share one lane with a driver thread
//! ([`driver`]); a [`Pipeline`] owns one. A lost lane is replaced by the next call.

mod attempts;
mod batch;
mod builder;
mod callbacks;
mod capture;
mod change;
mod connecting;
mod driver;
mod other_lane;
mod peers;
mod pipeline;
mod recipe;
pub(crate) mod region;
mod report;
mod spares;
mod state;
mod thread_future;
mod thread_lane;
mod transfer;
mod wait;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

pub use crate::call::reply::{Reply, RequestBuffer};
pub use batch::Batch;
pub use builder::ClientBuilder;
pub(crate) use callbacks::Serving;
pub use capture::Capture;
pub use connecting::ConnectFuture;
pub use driver::{CallFuture, Permit, Ready};
pub use peers::Peers;
pub use pipeline::local::{LocalCall, LocalClient, LocalDriver, LocalPermit, LocalReply};
pub use pipeline::Pipeline;
pub(crate) use recipe::Opener;
pub use region::{AttachFuture, RemoteRegion};
pub use report::ClientReport;
pub(crate) use report::REPORT;
pub use thread_future::ThreadFuture;
pub use transfer::{Transfer, TransferBuffer, TransferError};

use crate::call::lane::{Answer, Body, Lane, Sink};
use crate::call::timeout::TRAILER_BYTES;
use recipe::Recipe;
use wait::Waiter;

use crate::error::{CallError, ConnectError};
use crate::lanes::Owner;
use crate::HandlerId;
use state::Settings;
pub(crate) use state::{Core, CoreState};

/// The device and preset of a connection, and the reason for the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The name of the device.
    pub device: String,
    /// Why this device was chosen.
    pub why: String,
    /// The kind of pages that back registered memory.
    pub pages: String,
    /// The preset.
    pub preset: crate::Preset,
}

/// A connection to a server. Cheap to clone; any thread may call through any clone.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    /// The deadline of operations started through this clone.
    deadline: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a server with default settings.
    ///
    /// # Errors
    /// When there is no server, no common device, or the handshake fails.
    pub fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(address)
    }

    /// As [`Client::connect`], as a future: a separate thread makes the connection, so no thread of an executor blocks.
    pub fn connect_async(address: &str) -> ConnectFuture {
        Self::builder().connect_async(address)
    }

    /// Returns a builder for other than default settings: device, preset, deadline, limits, secret.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// `apart`: the thread that connects will not call. The thread that drives a simulated cluster also makes the lanes
    /// of others.
    fn start(recipe: Recipe, apart: bool) -> Result<Self, ConnectError> {
        let (owner, window) = match apart {
            true if recipe.is_local() => (Owner::Alone, 1),
            // Most likely the lane of the futures.
            true => (Owner::Alone, recipe.channel.max_outstanding),
            false => (Owner::Thread, 1),
        };
        let (lane, info) = recipe.open(owner, window, None)?;
        tracing::debug!(device = info.device, preset = %info.preset, why = info.why, "connected");
        let reporting = recipe.reporting.clone();
        let client = Self::of(recipe, info);
        let core = &client.core;
        if apart {
            core.recipe().spares.keep_first(lane);
        } else {
            // The lane that was made to check the address belongs to the connecting thread.
            thread_lane::adopt(core, lane);
        }
        if let Some(reporting) = &reporting {
            let thread = report::start(core, reporting).map_err(ConnectError::Thread)?;
            let _ = core.reporter.set(thread);
        }
        Ok(client)
    }

    /// A client that has no lane yet.
    fn of(recipe: Recipe, info: ConnectionInfo) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let deadline = recipe.deadline;
        let settings = Settings {
            channel: recipe.channel.clone(),
            deadline,
            told: recipe.told,
            is_local: recipe.is_local(),
        };
        let core = Arc::new(Core::new(CoreState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            settings,
            current: RwLock::new((Arc::new(recipe), info)),
            changing: Mutex::new(()),
            closed: AtomicBool::new(false),
            lanes: Mutex::new(Vec::new()),
            asynchronous: Mutex::default(),
            reporter: OnceLock::new(),
            regions: AtomicU64::new(0),
            callable: Mutex::default(),
        }));
        Self { core, deadline }
    }

    /// Returns a clone with another deadline for everything started through it: calls, futures, batches, pipelines,
    /// regions that it attaches. The connections are shared.
    #[must_use = "it is a clone that has the deadline"]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            core: Arc::clone(&self.core),
            deadline,
        }
    }

    /// The deadline of each call, as set by [`crate::ClientBuilder::deadline`] or [`Client::within`].
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The device and preset that the connection uses at present, and the reason for the choice.
    pub fn info(&self) -> ConnectionInfo {
        self.core.current().1.clone()
    }

    /// The state of the connection handle; `None` while threads share nothing: with some presets always, with `auto` as
    /// long as it needs no shared lanes. Also `None` in a process that was forked since.
    pub fn figures(&self) -> Option<crate::sharing::figures::HandleFigures> {
        self.core.check().ok()?;
        let figures = self.core.recipe().handle().map(|handle| handle.figures());
        // The handle is being made and has no lane yet.
        figures.filter(|figures| !figures.lanes.is_empty())
    }

    /// Starts capturing the server's calls, those of all clients, from now on, with the first `snap_bytes` bytes of
    /// each request and response. The server must allow it ([`crate::ServerBuilder::allows_capture`]); earlier calls
    /// are not shown.
    ///
    /// # Errors
    /// As for [`Client::call`]; [`CallError::UnknownHandler`] when the server does not allow it,
    /// [`CallError::Unreadable`] when it has another version.
    pub fn capture(&self, snap_bytes: u32) -> Result<Capture, CallError> {
        Capture::begin(self.clone(), snap_bytes)
    }

    /// The connection handle, for tests that break its lanes.
    #[cfg(test)]
    pub(crate) fn handle(&self) -> Option<Arc<crate::sharing::handle::Handle>> {
        self.core.recipe().handle()
    }

    /// Calls `handler` with `payload` and waits for the response, within the client's deadline. The deadline includes
    /// the time to make a new connection if the old one was lost.
    ///
    /// # Errors
    /// See [`CallError`]; each says whether the server may have executed the call.
    #[inline]
    pub fn call(&self, handler: HandlerId, payload: &[u8]) -> Result<Reply, CallError> {
        self.call_within(self.deadline, handler, payload)
    }

    /// As [`Client::call`], with a deadline of its own.
    ///
    /// # Errors
    /// As for [`Client::call`].
    #[inline]
    pub fn call_within(
        &self,
        deadline: Duration,
        handler: HandlerId,
        payload: &[u8],
    ) -> Result<Reply, CallError> {
        self.one_call(deadline, handler, Body::Bytes(payload))
    }

    /// The maximum length of a request in bytes: the server's `max_message_bytes`.
    ///
    /// # Errors
    /// When there is no connection and none can be made.
    pub fn max_message_bytes(&self) -> Result<usize, CallError> {
        thread_lane::with(&self.core, self.deadline, |lane, _| Ok(lane.longest()))
    }

    /// Returns a request of `length` bytes to be filled in place, in memory that the server reads directly. For
    /// [`Client::call_buffer`].
    ///
    /// # Errors
    /// When `length` exceeds the server's limit, or there is no connection.
    pub fn buffer(&self, length: usize) -> Result<RequestBuffer, CallError> {
        let plain = self.core.settings.told.is_enough(self.deadline);
        thread_lane::with(&self.core, self.deadline, |lane, _| {
            buffer_on(lane, length, plain)
        })
    }

    /// As [`Client::call`], with a request filled in place.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn call_buffer(
        &self,
        handler: HandlerId,
        request: RequestBuffer,
    ) -> Result<Reply, CallError> {
        self.one_call(self.deadline, handler, Body::Buffer(request.0))
    }

    #[inline]
    fn one_call(
        &self,
        deadline: Duration,
        mut handler: HandlerId,
        body: Body<'_>,
    ) -> Result<Reply, CallError> {
        let settings = &self.core.settings;
        thread_lane::with(&self.core, deadline, |lane, began| {
            let mut waiter =
                Waiter::new(settings.channel.wait, deadline, &self.core.closed).since(began);
            let mut sink = One(None);
            let mut copy = Vec::new();
            let mut body = body;
            if let Some(said) = settings.told.says(deadline, began) {
                (handler, body) = said.put_behind(handler, body, lane.longest(), &mut copy);
            }
            let short = match body {
                Body::Bytes(bytes) => lane.submit_short(handler, bytes, 0),
                Body::Buffer(_) => None,
            };
            let call = match short {
                Some(call) => call,
                None => {
                    waiter.submit(lane, &mut sink, |lane| lane.submit(handler, &mut body, 0))?
                }
            };
            finish(lane, call, sink, waiter)
        })
    }

    /// The number for a region that is to be attached.
    fn next_region(&self) -> u64 {
        let number = self.core.regions.fetch_add(1, Ordering::SeqCst);
        self.core.recipe().forbid_datagrams();
        number
    }

    /// Attaches memory that the server has granted under this name, to read and write it without the server's
    /// processor.
    ///
    /// # Errors
    /// [`CallError::UnknownRegion`], or as for [`Client::call`].
    pub fn attach(&self, name: &str) -> Result<RemoteRegion, CallError> {
        let number = self.next_region();
        RemoteRegion::attach(&self.core, self.deadline, number, name)
    }

    /// As [`Client::attach`], as a future; it is sent as described at [`Client::call_async`].
    pub fn attach_async(&self, name: &str) -> AttachFuture {
        let number = self.next_region();
        AttachFuture::new(&self.core, self.deadline, number, name)
    }

    /// Starts a call and returns at once; the future resolves to the response under any executor, within the client's
    /// deadline.
    ///
    /// The request is sent now, not at the first poll, or together with those of other tasks when the task that takes
    /// the responses is polled next. If there is no connection yet or no room on it, it is sent as soon as possible, in
    /// the order of the calls. At most [`crate::ChannelConfig::max_outstanding`] calls may be outstanding or queued; a
    /// further call ends with [`CallError::TooManyOutstanding`], while [`Client::ready`] waits. Dropping the future
    /// cancels the call: the response is discarded when it arrives. The server may have executed the call.
    pub fn call_async(&self, handler: HandlerId, payload: &[u8]) -> CallFuture {
        driver::call(&self.core, self.deadline, handler, payload, None)
    }

    /// Waits until one more call of the client's futures may be outstanding or queued
    /// ([`crate::ChannelConfig::max_outstanding`]), and reserves the place for it:
    /// `client.ready().await?.call(ECHO, b"hello").await?` is never refused for too many calls. Waiting tasks are
    /// served in order. The time spent waiting counts towards the call's deadline.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] when no place became free in time; also when the client is closed, or was made
    /// before a fork.
    pub fn ready(&self) -> Ready {
        Ready::new(&self.core, self.deadline)
    }

    /// Returns a batch of calls that are outstanding at the same time, from this thread.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.core, self.deadline)
    }

    /// Makes a lane for a loop that keeps many calls outstanding, up to [`crate::ChannelConfig::max_outstanding`].
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn pipeline(&self) -> Result<Pipeline, ConnectError> {
        self.pipeline_of(self.core.settings.channel.max_outstanding)
    }

    /// Makes a lane for a loop that keeps about `window` calls outstanding. This is not a limit; the preset `auto` uses
    /// it to choose between a lane of the loop's own and one shared with other threads.
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn pipeline_of(&self, window: usize) -> Result<Pipeline, ConnectError> {
        self.core.check()?;
        if self.is_closed() {
            return Err(ConnectError::Setting("the client is closed".into()));
        }
        let recipe = self.core.recipe();
        let lane = match recipe.spares.take() {
            Some(lane) => lane,
            None => recipe.open(Owner::Alone, window, None)?.0,
        };
        Ok(Pipeline::new(
            lane,
            (&self.core, recipe),
            window,
            self.deadline,
        ))
    }

    /// Returns a client for tasks that stay on this thread, and the driver of its calls, which must be spawned on it:
    ///
    /// ```no_run
    /// # async fn calls() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = dunlin_rpc::Client::connect("dunlin://127.0.0.1:7400")?;
    /// let (local, mut driver) = client.local()?;
    /// // Or `tokio::task::spawn_local(driver)`, and what its runtime has for it.
    /// let answer = driver.run_until(local.call(1, b"hello")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn local(&self) -> Result<(LocalClient, LocalDriver), ConnectError> {
        let limit = self.core.settings.channel.max_outstanding;
        Ok(LocalClient::new(self.pipeline()?, limit))
    }

    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Closes the connections of all threads and clones; outstanding calls fail. Otherwise this happens when the last
    /// clone is dropped. In a process that was forked since, neither has an effect: the connections belong to the
    /// parent.
    pub fn close(&self) {
        if !self.core.is_here() {
            return;
        }
        self.core.close();
        if let Some(handle) = self.core.recipe().handle() {
            handle.close();
        }
    }
}

/// A request to be filled in place; unless `plain`, with space behind it for a trailer.
fn buffer_on(lane: &mut dyn Lane, length: usize, plain: bool) -> Result<RequestBuffer, CallError> {
    let with_trailer = length.saturating_add(TRAILER_BYTES);
    let room = match plain || with_trailer > lane.longest() {
        true => length,
        false => with_trailer,
    };
    let mut buffer = lane.buffer(room)?;
    buffer.resize(length);
    Ok(RequestBuffer(buffer))
}

/// Sends the batch and waits for a call on a lane, the only one with a waiting caller.
#[inline]
fn finish(
    lane: &mut dyn Lane,
    call: crate::call::lane::CallId,
    mut sink: One,
    mut waiter: Waiter<'_>,
) -> Result<Reply, CallError> {
    let mut polled = lane.turn(&mut sink, true);
    loop {
        if let Some(result) = sink.0.take() {
            return result;
        }
        let waited = waiter.polled(polled?, lane, &mut sink);
        if let Some(result) = sink.0.take() {
            return result;
        }
        if let Err(error) = waited {
            lane.abandon(call);
            return Err(error);
        }
        polled = lane.poll(&mut sink);
    }
}

/// Takes the response of the only call of a lane that has a waiting caller.
struct One(Option<Result<Reply, CallError>>);

impl Sink for One {
    #[inline]
    fn complete(&mut self, _tag: u64, result: Result<Answer<'_>, CallError>) {
        self.0 = Some(result.map(Reply::new));
    }
}
