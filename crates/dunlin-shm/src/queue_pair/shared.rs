//! State that a queue pair shares with completion queues and the control thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use dunlin_verbs::{
    Access, CompletionStatus, ConnectAttributes, EndpointAddress, QueuePairState, SendFlags,
    Transport,
};

use crate::completion_queue::{Entry, News, QueueCore};
use crate::core::{lock, Core};
use crate::gate::Gate;
use crate::handover::{Handover, Held};
use crate::port::PortMap;
use crate::receive::{ReceiveSource, ReceiveState};

use super::executor::{Executor, Mail};
use super::work::Work;

/// A word on a cache line of its own, because another thread writes it.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Line<T>(pub(crate) T);

/// What was agreed with the peer, and the ports of this queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) remote: Option<EndpointAddress>,
    pub(crate) attributes: ConnectAttributes,
    pub(crate) access: Access,
    /// The port of a connected queue pair, and its descriptor.
    pub(crate) own: Option<(OwnedFd, Arc<PortMap>)>,
    /// The request by which the peer's port was obtained.
    pub(crate) attach_request: Option<u32>,
    /// All ports that publish the state of this queue pair.
    pub(crate) ports: Vec<Arc<PortMap>>,
}

/// The queue pair.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) me: Weak<Shared>,
    pub(crate) core: Arc<Core>,
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) domain: u64,
    pub(crate) token: u64,
    pub(crate) queue_key: u32,
    state: AtomicU32,
    incarnation: AtomicU32,
    /// Whether the mailbox has mail about destinations that are gone, whose ports the sender must release.
    pub(crate) has_gone: AtomicBool,
    pub(crate) send: Handover<Executor>,
    pub(crate) send_cq: Arc<QueueCore>,
    pub(crate) receive_cq: Arc<QueueCore>,
    pub(crate) send_place: u32,
    pub(crate) receive_place: u32,
    pub(crate) receive: Gate<ReceiveState>,
    pub(crate) source: ReceiveSource,
    /// Data bytes of its port.
    pub(crate) port_bytes: usize,
    pub(crate) link: Mutex<Link>,
    mailbox: Mutex<Vec<(u32, Mail)>>,
    pub(crate) watched: AtomicBool,
    /// Number of entries of the send queue that were freed, as found by the poller of its completions.
    pub(crate) retired: Line<AtomicU32>,
}

/// The parameters of [`Shared`] that its creator chooses.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) core: Arc<Core>,
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) domain: u64,
    pub(crate) send_cq: Arc<QueueCore>,
    pub(crate) receive_cq: Arc<QueueCore>,
    pub(crate) send_place: u32,
    pub(crate) receive_place: u32,
    pub(crate) source: ReceiveSource,
    pub(crate) segments: usize,
    pub(crate) port_bytes: usize,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            core: parts.core,
            number: parts.number,
            transport: parts.transport,
            domain: parts.domain,
            token: crate::core::random_u64(),
            queue_key: crate::core::random_u64() as u32,
            state: AtomicU32::new(QueuePairState::Reset as u32),
            incarnation: AtomicU32::new(0),
            has_gone: AtomicBool::new(false),
            send: Handover::new(Executor::new()),
            send_cq: parts.send_cq,
            receive_cq: parts.receive_cq,
            send_place: parts.send_place,
            receive_place: parts.receive_place,
            receive: Gate::new(ReceiveState::new(parts.segments)),
            source: parts.source,
            port_bytes: parts.port_bytes,
            link: Mutex::new(Link {
                remote: None,
                attributes: ConnectAttributes::default(),
                access: Access::empty(),
                own: None,
                attach_request: None,
                ports: Vec::new(),
            }),
            mailbox: Mutex::new(Vec::new()),
            watched: AtomicBool::new(false),
            retired: Line(AtomicU32::new(0)),
        })
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> QueuePairState {
        QueuePairState::from_number(self.state.load(Ordering::Acquire))
            .unwrap_or(QueuePairState::Error)
    }

    #[inline(always)]
    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Moves from `from` to `to`, unless the state has changed meanwhile; publishes the state to the senders of our
    /// ports.
    pub(crate) fn change_state(&self, from: QueuePairState, to: QueuePairState) -> bool {
        let link = lock(&self.link);
        let changed = self
            .state
            .compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if changed {
            for port in &link.ports {
                port.state().store(to as u32, Ordering::SeqCst);
            }
        }
        changed
    }

    /// Moves to Error from any state but Reset; returns `false` if the state did not change. Flushing is left to the
    /// next [`Shared::progress`] and to polling, and waiters for completions are woken by calling [`Shared::tell`] with
    /// a failure.
    pub(crate) fn mark_error(&self) -> bool {
        self.mark(QueuePairState::Error)
    }

    fn mark(&self, to: QueuePairState) -> bool {
        loop {
            let from = self.state();
            if matches!(from, QueuePairState::Reset | QueuePairState::Error) || from == to {
                return false;
            }
            if self.change_state(from, to) {
                return true;
            }
        }
    }

    /// Moves to Error, and flushes the sends that were left over. Must not be called while holding the executor.
    pub(crate) fn enter_error(&self) {
        if self.mark_error() {
            self.tell(News::Failure);
        }
        self.progress();
    }

    /// Begins a reset: nothing from before is reported or delivered any more.
    pub(crate) fn begin_reset(&self) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
        let mut link = lock(&self.link);
        self.state
            .store(QueuePairState::Reset as u32, Ordering::SeqCst);
        for port in link.ports.drain(..) {
            port.state()
                .store(QueuePairState::Reset as u32, Ordering::SeqCst);
        }
        link.own = None;
        link.attach_request = None;
        link.remote = None;
        drop(link);
        lock(&self.mailbox).clear();
    }

    /// Wakes threads that wait for completions and have not been notified. Must not be called while holding the
    /// executor, the gate or another lock.
    #[inline(always)]
    pub(crate) fn tell(&self, news: News) {
        if news != News::Nothing {
            self.tell_some(news);
        }
    }

    #[inline]
    fn tell_some(&self, news: News) {
        if news == News::Overrun {
            self.send_cq.overran();
        }
        self.send_cq.signal(news != News::Completion);
        if news != News::Completion {
            self.receive_cq.signal(true);
        }
    }

    /// Reports the completion of `work`.
    #[inline]
    pub(crate) fn complete(&self, work: &Work<'_>, status: CompletionStatus, bytes: usize) -> News {
        self.send_cq.push(Entry {
            id: work.id,
            bytes,
            status,
            opcode: work.opcode(),
            number: self.number,
            member: self.send_place,
            incarnation: self.incarnation(),
            posted: work.posted,
        })
    }

    /// Reports the success of `work`, if that is requested.
    #[inline(always)]
    pub(crate) fn succeed(&self, work: &Work<'_>, bytes: usize) -> News {
        if work.flags.contains(SendFlags::SIGNALED) {
            return self.complete(work, CompletionStatus::Success, bytes);
        }
        News::Nothing
    }

    /// Reports the failure of `work` and moves to the error state of the transport.
    #[cold]
    pub(crate) fn fail(&self, work: &Work<'_>, status: CompletionStatus) -> News {
        tracing::debug!(queue_pair = self.number, id = work.id, %status, "request failed");
        let news = self.complete(work, status, 0);
        self.mark(match self.transport {
            Transport::ReliableConnection => QueuePairState::Error,
            _ => QueuePairState::SendQueueError,
        });
        news.max(News::Failure)
    }

    /// Continues what was left over, if the executor is free.
    pub(crate) fn try_progress(&self) {
        if let Some(held) = self.send.try_lock() {
            self.run(held);
        }
    }

    /// Continues what was left over.
    pub(crate) fn progress(&self) {
        fence(Ordering::SeqCst);
        if self.send.is_shared() {
            if let Some(held) = self.send.lock() {
                self.run(held);
            }
        }
    }

    /// Runs the executor; returns it to the owner if nothing is left.
    pub(crate) fn run(&self, mut held: Held<'_, Executor>) {
        let (finished, mut notices) = held.with(|executor| {
            let finished = executor.run(self);
            (finished, std::mem::take(&mut executor.notices))
        });
        if finished {
            self.send_cq.left_over.fetch_sub(1, Ordering::SeqCst);
            held.give_back();
        } else {
            drop(held);
        }
        notices.tell(self);
    }

    /// Delivers an answer of the control thread to the executor.
    pub(crate) fn deliver(&self, incarnation: u32, mail: Mail) {
        lock(&self.mailbox).push((incarnation, mail));
        self.progress();
    }

    /// Takes the answers of the control thread.
    pub(crate) fn take_mail(&self) -> Vec<(u32, Mail)> {
        std::mem::take(&mut *lock(&self.mailbox))
    }
}
