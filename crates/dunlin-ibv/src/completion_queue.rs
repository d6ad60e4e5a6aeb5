//! Completion queues.

use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionQueue, CompletionQueueError, CompletionStatus, Notify,
    VerbsError,
};

use crate::channel::{Channel, IbvCompletionChannel};
use crate::clock::Clock;
use crate::context::{Core, Shared};
use crate::error::{invalid, last, returned};
use crate::events::EventThread;
use crate::poller::Poller;
use crate::queue_pair::QpCore;
use crate::status::status;
use crate::sys::extended as x;
use crate::sys::{constants as c, types};
use crate::work_table::{Found, Kind, Met, WorkTable};

/// Number of completions taken from the provider by one call.
const BATCH: usize = 32;

/// The part of a completion queue that is shared by queue pairs and the event thread.
#[derive(Debug)]
pub(crate) struct CqCore {
    pub(crate) raw: Shared<types::Cq>,
    pub(crate) device: Arc<EventThread>,
    channel: Option<Arc<Channel>>,
    entries: usize,
    overrun: AtomicBool,
    users: Mutex<Vec<Weak<QpCore>>>,
    /// Whether queue pairs with shared receive queues complete here, so that polling must hold `saved`.
    is_shared: AtomicBool,
    saved: Mutex<Saved>,
}

/// Completions of queue pairs that were about to end, which some providers discard with them (mlx5). Losing one of a
/// shared receive queue would lose its entry.
#[derive(Debug)]
struct Saved {
    way: Way,
    /// With their timestamps in ticks: they are converted by the same clock as later ones.
    waiting: VecDeque<(types::Wc, Option<u64>)>,
}

impl CqCore {
    /// Records that another queue pair completes here.
    pub(crate) fn join(&self, queue_pair: &Arc<QpCore>) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() == users.capacity() {
            users.retain(|user| user.strong_count() > 0);
        }
        users.push(Arc::downgrade(queue_pair));
    }

    /// Records that a queue pair with a shared receive queue completes here. Nobody polls meanwhile: the caller that
    /// creates it has borrowed the queue.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the available completions before a queue pair with a shared receive queue is destroyed or reset, and keeps
    /// them for the next poll.
    pub(crate) fn save(&self) {
        let mut saved = self.saved();
        let Saved { way, waiting } = &mut *saved;
        let (mut batch, mut stamps) = ([types::Wc::EMPTY; BATCH], [None; BATCH]);
        let mut left = self.entries;
        while left > 0 {
            let asked = left.min(BATCH);
            // SAFETY: the queue is alive, and not being polled by anybody else: `share` was called before, so they hold
            // `saved`.
            let taken = unsafe { way.poll(self.raw, &mut batch[..asked], &mut stamps) };
            // The next poll finds the same failure.
            let taken = usize::try_from(taken).unwrap_or(0);
            waiting.extend(batch.into_iter().zip(stamps).take(taken));
            if taken < asked {
                break;
            }
            left -= taken;
        }
        let are_too_many = waiting.len() > self.entries;
        drop(saved);
        if are_too_many {
            // The queue itself would have overrun.
            self.fail();
        }
    }

    /// Handles the loss of completions: the queue is unusable, and its queue pairs are moved to error.
    pub(crate) fn fail(&self) {
        self.overrun.store(true, Ordering::Release);
        let users: Vec<_> = {
            let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.iter().filter_map(Weak::upgrade).collect()
        };
        for user in users {
            user.fail();
        }
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        let core = self.device.core();
        if !core.made_in.is_current() {
            return;
        }
        let mut queues = core.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.remove(&(self.raw.0 as usize));
        drop(queues);
        // SAFETY: queue pairs hold this value, so none is left; it is destroyed once.
        let errno = unsafe { (core.api.destroy_cq)(self.raw.0) };
        if errno != 0 {
            tracing::warn!(device = %core.nic, errno, "ibv_destroy_cq failed");
        }
    }
}

/// Creates a queue that is polled by extended calls; `None` if the provider has none, or not with timestamps.
pub(crate) fn create_extended(
    core: &Core,
    entries: u32,
    channel: *mut types::CompletionChannel,
    timestamps: bool,
) -> Option<*mut x::CqEx> {
    let make = core.extended?.create_cq_ex()?;
    let mut init = x::CqInit {
        entries,
        user: null_mut(),
        channel,
        vector: core.vector() as u32,
        fields: x::WC_STANDARD | if timestamps { x::WC_TIMESTAMP } else { 0 },
        mask: 0,
        flags: 0,
        parent: null_mut(),
    };
    // SAFETY: the context is open, the channel, if any, is of it, and `init` is valid for the call.
    let raw = unsafe { make(core.context.0, &mut init) };
    (!raw.is_null()).then_some(raw)
}

/// How completions are taken from the provider.
#[derive(Debug)]
enum Way {
    /// As an array.
    List(types::PollCq),
    /// One by one, field by field, by extended calls.
    Calls(Poller),
}

// SAFETY: the pointers in it are the provider's, whose functions may be called from any thread, by one at a time.
unsafe impl Send for Way {}

impl Way {
    /// Takes completions and their timestamps in ticks, as many as there is space for. Returns their number, negative
    /// if the queue has failed.
    ///
    /// # Safety
    /// The queue must be alive, and nobody else may poll it.
    unsafe fn poll(
        &mut self,
        queue: Shared<types::Cq>,
        batch: &mut [types::Wc],
        stamps: &mut [Option<u64>],
    ) -> i32 {
        match self {
            // SAFETY: as for the caller, and the batch has space for as many as are requested.
            Self::List(poll) => unsafe { poll(queue.0, batch.len() as i32, batch.as_mut_ptr()) },
            // SAFETY: as for the caller.
            Self::Calls(poller) => unsafe { poller.poll(batch, stamps) },
        }
    }
}

/// A completion queue of the NIC.
pub struct IbvCompletionQueue {
    core: Arc<CqCore>,
    way: Way,
    /// The device's clock, if the queue has timestamps.
    clock: Option<Clock>,
    request: types::RequestNotify,
    met: Met,
    batch: Box<[types::Wc; BATCH]>,
    /// Timestamps of the batch in ticks, if the device provides them.
    stamps: Box<[Option<u64>; BATCH]>,
}

impl std::fmt::Debug for IbvCompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IbvCompletionQueue")
            .field("entries", &self.core.entries)
            .finish_non_exhaustive()
    }
}

impl IbvCompletionQueue {
    pub(crate) fn new(
        device: &Arc<EventThread>,
        entries: usize,
        channel: Option<&IbvCompletionChannel>,
    ) -> Result<Self, VerbsError> {
        let core = device.core();
        let operations = core.operations();
        let (Some(poll), Some(request)) = (operations.poll_cq, operations.request_notify) else {
            return Err(invalid(
                "device",
                format!(
                    "the provider of {} does not implement all required calls",
                    core.nic
                ),
            ));
        };
        let channel = channel.map(|channel| Arc::clone(channel.inner()));
        let raw_channel = channel.as_ref().map_or(null_mut(), |channel| channel.raw.0);
        let asked = entries.max(1) as i32;
        let extended = if core.polls_by_calls() {
            create_extended(core, asked as u32, raw_channel, core.clock.is_some())
        } else {
            None
        };
        let (raw, way) = match extended
            .map(|raw| (raw, Poller::of(raw, core.clock.is_some(), core.soft_roce)))
        {
            // Its first fields are those of a plain queue.
            Some((raw, Some(poller))) => (raw.cast(), Way::Calls(poller)),
            Some((raw, None)) => {
                // SAFETY: just made and not used.
                unsafe { (core.api.destroy_cq)(raw.cast()) };
                return Err(invalid(
                    "device",
                    format!(
                        "the provider of {} does not implement all extended calls; DUNLIN_IBV_EXTENDED=no does without \
                         them",
                        core.nic
                    ),
                ));
            }
            // SAFETY: the context is open, and the channel, if any, is of it and held below.
            None => unsafe {
                let (context, vector) = (core.context.0, core.vector());
                let raw = (core.api.create_cq)(context, asked, null_mut(), raw_channel, vector);
                (raw, Way::List(poll))
            },
        };
        if raw.is_null() {
            return Err(last(
                "ibv_create_cq",
                format!(
                    "a completion queue of {entries} entries on {}; ENOMEM: the device's resources or RLIMIT_MEMLOCK \
                     are exhausted, use fewer or shorter queues",
                    core.nic
                ),
            ));
        }
        let saving = match way {
            Way::List(poll) => Way::List(poll),
            Way::Calls(_) => Poller::of(raw.cast(), core.clock.is_some(), core.soft_roce)
                .map_or(Way::List(poll), Way::Calls),
        };
        // SAFETY: the queue was just made.
        let entries = unsafe { (*raw).entries }.max(asked) as usize;
        let queue = Arc::new(CqCore {
            raw: Shared(raw),
            device: Arc::clone(device),
            channel,
            entries,
            overrun: AtomicBool::new(false),
            users: Mutex::default(),
            is_shared: AtomicBool::new(false),
            saved: Mutex::new(Saved {
                way: saving,
                waiting: VecDeque::new(),
            }),
        });
        let mut queues = core.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.insert(raw as usize, Arc::downgrade(&queue));
        drop(queues);
        Ok(Self {
            core: queue,
            way,
            clock: core.clock,
            request,
            met: Met::default(),
            batch: Box::new([types::Wc::EMPTY; BATCH]),
            stamps: Box::new([None; BATCH]),
        })
    }

    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    fn overrun(&self) -> CompletionQueueError {
        CompletionQueueError::Overrun {
            limit: self.core.entries,
        }
    }
}

/// Soft-RoCE reports "local operation error" for every problem with local memory, and for a link that is down. What was
/// posted was checked, so it failed because its region has ended since; otherwise a RECEIVE failed because the message
/// is too long.
#[cold]
fn refine(core: &Core, status: CompletionStatus, found: &Found) -> CompletionStatus {
    if !core.soft_roce || status != CompletionStatus::LocalQueuePairOperation {
        return status;
    }
    if found.lkey != 0 && !core.keys.is_live(found.lkey) {
        CompletionStatus::LocalProtection
    } else if found.kind == Kind::Send {
        status
    } else {
        CompletionStatus::LocalLength
    }
}

fn translate(
    core: &Core,
    (wc, timestamp_ns): (&types::Wc, Option<u64>),
    table: &WorkTable,
    found: &Found,
) -> Completion {
    let mut status = status(wc.status);
    if status != CompletionStatus::Success {
        table.set_failed();
        status = refine(core, status, found);
    }
    let received = found.kind != Kind::Send;
    let opcode = if received && wc.opcode == c::WC_RECEIVE_WRITE_WITH_IMMEDIATE {
        CompletionOpcode::ReceiveWriteWithImmediate
    } else {
        found.opcode
    };
    let with_immediate = received && wc.flags & c::WC_WITH_IMMEDIATE != 0;
    Completion {
        id: found.id,
        status,
        opcode,
        bytes: if received {
            wc.bytes as usize
        } else {
            found.length
        },
        immediate: with_immediate.then(|| u32::from_be(wc.immediate)),
        queue_pair: wc.queue_pair,
        source_queue_pair: (received && table.datagrams()).then_some(wc.source),
        timestamp_ns,
    }
}

#[inline]
fn nanoseconds(clock: &mut Option<Clock>, ticks: Option<u64>) -> Option<u64> {
    Some(clock.as_mut()?.nanoseconds(ticks?))
}

impl CompletionQueue for IbvCompletionQueue {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        self.core.device.core().made_in.check()?;
        let device = self.core.device.core();
        let mut count = 0;
        let mut failed = false;
        let is_shared = self.core.is_shared.load(Ordering::Acquire);
        let mut saved = is_shared.then(|| self.core.saved());
        while count < completions.len() {
            let next = saved.as_mut().and_then(|saved| saved.waiting.pop_front());
            let Some((wc, ticks)) = next else { break };
            if let Some((table, found)) = self.met.complete(&device.tables, wc.id) {
                let time = nanoseconds(&mut self.clock, ticks);
                completions[count] = translate(device, (&wc, time), table, &found);
                count += 1;
            }
        }
        while count < completions.len() {
            let asked = (completions.len() - count).min(BATCH);
            let (batch, stamps) = (&mut self.batch[..asked], &mut self.stamps[..]);
            // SAFETY: the queue is alive. Only this value polls it, except for `save`, which needs `saved`.
            let taken = unsafe { self.way.poll(self.core.raw, batch, stamps) };
            let Ok(taken) = usize::try_from(taken) else {
                failed = true;
                break;
            };
            for (wc, &ticks) in self.batch[..taken].iter().zip(&self.stamps[..]) {
                if let Some((table, found)) = self.met.complete(&device.tables, wc.id) {
                    let time = nanoseconds(&mut self.clock, ticks);
                    completions[count] = translate(device, (wc, time), table, &found);
                    count += 1;
                }
            }
            if taken < asked {
                break;
            }
        }
        // Released first: a queue pair that is dropped in `fail` saves its completions under this lock.
        drop(saved);
        if failed {
            self.core.fail();
        }
        if count == 0 && self.core.overrun.load(Ordering::Acquire) {
            return Err(self.overrun());
        }
        Ok(count)
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        self.core.device.core().made_in.check()?;
        if self.core.channel.is_none() {
            return Err(invalid(
                "channel",
                "the completion queue was created without one",
            ));
        }
        let solicited = i32::from(notify == Notify::Solicited);
        // SAFETY: the queue is alive.
        let errno = unsafe { (self.request)(self.core.raw.0, solicited) };
        if errno != 0 {
            return Err(returned("ibv_req_notify_cq", errno, "requesting an event"));
        }
        Ok(())
    }
}
