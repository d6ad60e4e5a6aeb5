//! State of a logical queue pair that is shared by its owner, its device's thread and any thread that polls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use dunlin_verbs::software::Completions;
use dunlin_verbs::{Completion, CompletionOpcode, CompletionStatus, Device, QueuePairState};

use super::{Cause, Engine};
use crate::device::work::ReceiveQueue;

/// What a queue pair is created from.
#[derive(Debug)]
pub(crate) struct Parts<D: Device> {
    pub(crate) number: u32,
    pub(crate) domain: u64,
    pub(crate) send_completions: Arc<Completions<D::CompletionChannel>>,
    pub(crate) receive_completions: Arc<Completions<D::CompletionChannel>>,
    pub(crate) receives: Arc<ReceiveQueue<D::Region>>,
    pub(crate) shares_receives: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared<D: Device> {
    pub(crate) number: u32,
    pub(crate) domain: u64,
    state: AtomicU32,
    pub(crate) send_completions: Arc<Completions<D::CompletionChannel>>,
    pub(crate) receive_completions: Arc<Completions<D::CompletionChannel>>,
    pub(crate) receives: Arc<ReceiveQueue<D::Region>>,
    pub(crate) shares_receives: bool,
    /// Total number of entries of the send queue that have been freed.
    pub(crate) retired: Arc<AtomicU32>,
    /// Why it is in error.
    cause: Mutex<Option<Cause>>,
    engine: Mutex<Engine<D>>,
}

impl<D: Device> Shared<D> {
    pub(crate) fn new(parts: Parts<D>, engine: Engine<D>) -> Self {
        Self {
            number: parts.number,
            domain: parts.domain,
            state: AtomicU32::new(QueuePairState::Reset as u32),
            send_completions: parts.send_completions,
            receive_completions: parts.receive_completions,
            receives: parts.receives,
            shares_receives: parts.shares_receives,
            retired: Arc::new(AtomicU32::new(0)),
            cause: Mutex::new(None),
            engine: Mutex::new(engine),
        }
    }

    pub(crate) fn state(&self) -> QueuePairState {
        let number = self.state.load(Ordering::Acquire);
        QueuePairState::from_number(number).unwrap_or(QueuePairState::Error)
    }

    pub(crate) fn set_state(&self, state: QueuePairState) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Whether anything can arrive or is to be done, which is not the case before it is connected.
    pub(crate) fn is_at_work(&self) -> bool {
        !matches!(self.state(), QueuePairState::Reset | QueuePairState::Init)
    }

    /// Records why it went to the error state; the first cause counts.
    pub(crate) fn failed_by(&self, cause: Cause) {
        dunlin_verbs::thread::lock(&self.cause).get_or_insert(cause);
    }

    /// Why it is in the error state, if it is.
    pub(crate) fn cause(&self) -> Option<String> {
        let cause = dunlin_verbs::thread::lock(&self.cause);
        cause.as_ref().map(Cause::to_string)
    }

    pub(crate) fn forget_cause(&self) {
        dunlin_verbs::thread::lock(&self.cause).take();
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine<D>> {
        dunlin_verbs::thread::lock(&self.engine)
    }

    /// The engine, unless another thread is using it.
    pub(crate) fn free_engine(&self) -> Option<MutexGuard<'_, Engine<D>>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether it completes to this queue.
    pub(crate) fn completes_to(&self, queue: &Arc<Completions<D::CompletionChannel>>) -> bool {
        [&self.send_completions, &self.receive_completions]
            .iter()
            .any(|own| Arc::ptr_eq(own, queue))
    }

    /// Whether one of its completion queues has overrun.
    pub(crate) fn is_overrun(&self) -> bool {
        let overrun = self.send_completions.is_overrun() || self.receive_completions.is_overrun();
        overrun && self.state() != QueuePairState::Error
    }

    /// Ends the RECEIVEs of a queue pair in error.
    pub(crate) fn flush_receives(&self) {
        if self.shares_receives {
            return;
        }
        while let Some(receive) = self.receives.pop() {
            let completion = Completion {
                id: receive.id,
                status: CompletionStatus::Flushed,
                opcode: CompletionOpcode::Receive,
                queue_pair: self.number,
                ..Completion::EMPTY
            };
            self.receive_completions.push(completion, false, None);
        }
    }
}
