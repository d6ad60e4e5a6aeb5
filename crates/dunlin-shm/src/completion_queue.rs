//! Completion queues. Sends complete into a ring; RECEIVEs complete when the queue is polled.

use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    AsyncEvent, Completion, CompletionChannel, CompletionOpcode, CompletionQueue,
    CompletionQueueError, CompletionStatus, Notify, QueuePairState, VerbsError,
};

use crate::channel::ShmCompletionChannel;
use crate::completion_ring::CompletionRing;
use crate::core::lock;
use crate::device::Handle;
use crate::port::{PortMap, ARMED_NEXT, ARMED_SOLICITED};
use crate::queue_pair::Shared;
use crate::receive::Drained;

/// The completion of an entry of a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) bytes: usize,
    pub(crate) status: CompletionStatus,
    pub(crate) opcode: CompletionOpcode,
    pub(crate) number: u32,
    /// Index of the queue pair in the completion queue.
    pub(crate) member: u32,
    pub(crate) incarnation: u32,
    /// Number of entries of the send queue posted up to and including this one.
    pub(crate) posted: u32,
}

impl Entry {
    const BLANK: Self = Self {
        id: 0,
        bytes: 0,
        status: CompletionStatus::General,
        opcode: CompletionOpcode::Send,
        number: 0,
        member: 0,
        incarnation: 0,
        posted: 0,
    };
}

/// What to report to threads that wait for completions: failures wake any waiter.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    #[default]
    Nothing,
    Completion,
    Failure,
    /// A completion found the queue full.
    Overrun,
}

/// A queue pair that reports to a completion queue.
#[derive(Clone, Debug)]
struct Member {
    pair: Arc<Shared>,
    receives: bool,
}

/// An entry in the list of members.
#[derive(Clone, Debug)]
enum Place {
    Free,
    Reserved,
    Taken(Member),
}

impl Place {
    fn member(&self) -> Option<&Member> {
        match self {
            Place::Taken(member) => Some(member),
            Place::Free | Place::Reserved => None,
        }
    }
}

/// State shared by queue pairs and the poller.
#[derive(Debug)]
pub(crate) struct QueueCore {
    ring: CompletionRing<Entry>,
    channel: Option<ShmCompletionChannel>,
    armed: AtomicU32,
    overrun: AtomicBool,
    members: Mutex<Vec<Place>>,
    /// Counts changes of the members and their ports.
    epoch: AtomicU64,
    /// Number of queue pairs with sends left over.
    pub(crate) left_over: AtomicUsize,
}

impl QueueCore {
    pub(crate) fn channel(&self) -> Option<&ShmCompletionChannel> {
        self.channel.as_ref()
    }

    /// Reserves an entry for a queue pair that is being created.
    pub(crate) fn reserve(&self) -> u32 {
        let mut members = lock(&self.members);
        let place = members
            .iter()
            .position(|place| matches!(place, Place::Free));
        let place = place.unwrap_or_else(|| {
            members.push(Place::Free);
            members.len() - 1
        });
        members[place] = Place::Reserved;
        place as u32
    }

    pub(crate) fn join(&self, place: u32, pair: &Arc<Shared>, receives: bool) {
        lock(&self.members)[place as usize] = Place::Taken(Member {
            pair: Arc::clone(pair),
            receives,
        });
        self.changed();
    }

    pub(crate) fn leave(&self, place: u32) {
        lock(&self.members)[place as usize] = Place::Free;
        self.changed();
    }

    /// Makes the poller refresh its view of the members.
    pub(crate) fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Arms a new port, if the queue is armed.
    pub(crate) fn arm_port(&self, port: &PortMap) {
        self.changed();
        fence(Ordering::SeqCst);
        let armed = self.armed.load(Ordering::SeqCst);
        // The port is never disarmed here: a poller that has found it meanwhile may have armed it.
        if armed != 0 {
            port.arm(armed);
        }
    }

    /// Adds a completion. The caller must wake waiters with [`Shared::tell`] once it holds no lock.
    pub(crate) fn push(&self, entry: Entry) -> News {
        if !self.ring.push(entry) {
            return News::Overrun;
        }
        match entry.status {
            CompletionStatus::Success => News::Completion,
            _ => News::Failure,
        }
    }

    /// Wakes the waiter if it has requested this kind of completion.
    pub(crate) fn signal(&self, solicited: bool) {
        let Some(channel) = &self.channel else { return };
        fence(Ordering::SeqCst);
        match self.armed.load(Ordering::Relaxed) {
            ARMED_NEXT => {}
            ARMED_SOLICITED if solicited => {}
            _ => return,
        }
        if self.armed.swap(0, Ordering::SeqCst) != 0 {
            channel.wake();
        }
    }

    /// Fails the queue pairs of a queue that was full when a completion arrived.
    #[cold]
    pub(crate) fn overran(&self) {
        if self.overrun.swap(true, Ordering::SeqCst) {
            return;
        }
        let members: Vec<_> = lock(&self.members)
            .iter()
            .filter_map(Place::member)
            .cloned()
            .collect();
        for member in &members {
            if member.pair.mark_error() {
                member.pair.tell(News::Failure);
            }
            member.pair.core.control.watch(&member.pair);
        }
        if let Some(member) = members.first() {
            member
                .pair
                .core
                .push_event(AsyncEvent::CompletionQueueOverrun);
        }
    }
}

/// A port as the poller sees it.
#[derive(Debug)]
struct Watch {
    pair: Arc<Shared>,
    port: Option<Arc<PortMap>>,
    index: usize,
    seen: u64,
}

/// A completion queue of the shared-memory device.
#[derive(Debug)]
pub struct ShmCompletionQueue {
    core: Arc<QueueCore>,
    epoch: u64,
    members: Vec<Place>,
    watches: Vec<Watch>,
    next: usize,
    made_in: Generation,
    _device: Arc<Handle>,
}

impl ShmCompletionQueue {
    pub(crate) fn new(
        device: &Arc<Handle>,
        entries: usize,
        channel: Option<&ShmCompletionChannel>,
    ) -> Self {
        Self {
            core: Arc::new(QueueCore {
                ring: CompletionRing::new(entries, Entry::BLANK),
                channel: channel.cloned(),
                armed: AtomicU32::new(0),
                overrun: AtomicBool::new(false),
                members: Mutex::new(Vec::new()),
                epoch: AtomicU64::new(0),
                left_over: AtomicUsize::new(0),
            }),
            epoch: 0,
            members: Vec::new(),
            watches: Vec::new(),
            next: 0,
            made_in: device.core().made_in,
            _device: Arc::clone(device),
        }
    }

    pub(crate) fn core(&self) -> &Arc<QueueCore> {
        &self.core
    }

    #[cold]
    fn refresh(&mut self) {
        self.epoch = self.core.epoch.load(Ordering::SeqCst);
        self.members.clone_from(&lock(&self.core.members));
        self.watches.clear();
        for member in self
            .members
            .iter()
            .filter_map(Place::member)
            .filter(|m| m.receives)
        {
            let watches = &mut self.watches;
            member.pair.receive.enter(|state| {
                for (index, inbound) in state.inbound.iter().enumerate() {
                    watches.push(Watch {
                        pair: Arc::clone(&member.pair),
                        port: Some(Arc::clone(&inbound.port)),
                        index,
                        seen: inbound.head(),
                    });
                }
                if state.inbound.is_empty() {
                    watches.push(Watch {
                        pair: Arc::clone(&member.pair),
                        port: None,
                        index: 0,
                        seen: 0,
                    });
                }
            });
        }
    }

    /// Continues sends that could not be finished when they were posted.
    #[cold]
    fn progress(&self) {
        for member in self.members.iter().filter_map(Place::member) {
            if Arc::ptr_eq(&member.pair.send_cq, &self.core) {
                member.pair.try_progress();
            }
        }
    }

    /// Moves completions of sends out of the ring.
    #[inline]
    fn poll_sends(&mut self, out: &mut [Completion]) -> usize {
        let mut made = 0;
        while made < out.len() {
            // SAFETY: `&mut self` makes us the only consumer.
            let Some(entry) = (unsafe { self.core.ring.pop() }) else {
                break;
            };
            let member = self.members.get(entry.member as usize);
            let Some(Place::Taken(member)) = member else {
                continue;
            };
            let pair = &member.pair;
            // Entries of a queue pair that was dropped or reset are not reported.
            if pair.number != entry.number || pair.incarnation() != entry.incarnation {
                continue;
            }
            pair.retired.0.store(entry.posted, Ordering::Release);
            out[made] = Completion {
                id: entry.id,
                status: entry.status,
                opcode: entry.opcode,
                bytes: entry.bytes,
                queue_pair: entry.number,
                ..Completion::EMPTY
            };
            made += 1;
        }
        made
    }

    /// Generates completions for arrived messages, taking the ports in turn.
    #[inline]
    fn poll_receives(&mut self, out: &mut [Completion]) -> usize {
        let count = self.watches.len();
        let mut made = 0;
        for _ in 0..count {
            if made == out.len() {
                break;
            }
            if self.next >= count {
                self.next = 0;
            }
            let watch = &mut self.watches[self.next];
            self.next += 1;
            let arrived = watch
                .port
                .as_ref()
                .is_some_and(|port| port.tail().load(Ordering::Relaxed) != watch.seen);
            if !arrived && watch.pair.state() != QueuePairState::Error {
                continue;
            }
            made += watch.drain(&mut out[made..]);
        }
        made
    }
}

impl Watch {
    fn drain(&mut self, out: &mut [Completion]) -> usize {
        let pair = &self.pair;
        let state = pair.state();
        if state == QueuePairState::Reset || state == QueuePairState::Init {
            return 0;
        }
        let (index, seen) = (self.index, &mut self.seen);
        let port = &self.port;
        let result = pair.receive.try_enter(|receive| {
            // A port that moved or disappeared is found again after the next refresh.
            let same = matches!((receive.inbound.get(index), port), (Some(a), Some(b)) if Arc::ptr_eq(&a.port, b));
            let mut drained = Drained::default();
            if same {
                if state == QueuePairState::Error {
                    receive.inbound[index].close();
                }
                drained = receive.drain(pair, index, out);
                if let Some(inbound) = receive.inbound.get(index) {
                    *seen = inbound.head();
                }
            }
            if drained.failed {
                pair.mark_error();
            }
            // Messages that arrived before the error are delivered, in as many turns as it takes.
            if drained.failed || state == QueuePairState::Error && !drained.more {
                drained.made += receive.flush(pair, &mut out[drained.made..]);
            }
            drained
        });
        let Some(drained) = result else {
            // Another thread is receiving. A thread that armed the queue and finds nothing would not be notified of
            // messages that arrived earlier.
            pair.receive_cq.signal(true);
            return 0;
        };
        if drained.failed {
            pair.tell(News::Failure);
            pair.progress();
        }
        if drained.more {
            // A thread that armed the queue, found no completion and sleeps would not be notified of the rest.
            pair.receive_cq.signal(true);
        }
        drained.made
    }
}

impl CompletionQueue for ShmCompletionQueue {
    #[inline]
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        self.made_in.check()?;
        if self.core.epoch.load(Ordering::Acquire) != self.epoch {
            self.refresh();
        }
        if self.core.left_over.load(Ordering::Relaxed) != 0 {
            self.progress();
        }
        if self.core.overrun.load(Ordering::Relaxed) {
            return Err(CompletionQueueError::Overrun {
                limit: self.core.ring.capacity(),
            });
        }
        let sends = self.poll_sends(completions);
        Ok(sends + self.poll_receives(&mut completions[sends..]))
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        self.made_in.check()?;
        if self.core.channel.is_none() {
            return Err(VerbsError::Invalid {
                argument: "notify",
                why: "the completion queue was created without a channel".to_owned(),
            });
        }
        let armed = match notify {
            Notify::Next => ARMED_NEXT,
            Notify::Solicited => ARMED_SOLICITED,
        };
        // First the word that new ports copy, then the existing ports.
        self.core.armed.store(armed, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.core.epoch.load(Ordering::SeqCst) != self.epoch {
            self.refresh();
        }
        for watch in &self.watches {
            if let Some(port) = &watch.port {
                port.arm(armed);
            }
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}
