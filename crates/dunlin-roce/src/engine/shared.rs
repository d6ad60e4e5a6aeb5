//! State of a queue pair that is shared by its owner, the thread that receives from the socket, and the device's
//! thread.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dunlin_verbs::{
    AsyncEvent, Completion, CompletionOpcode, CompletionStatus, QueuePairState, Transport,
};

use super::Engine;
use dunlin_verbs::software::Retirement;

use crate::completion_queue::RoceCompletions;
use crate::core::Core;
use crate::packet::Psn;
use crate::reliable::Delivered;
use crate::sync::lock;
use crate::work::{Receive, ReceiveQueue, Send};

/// What a queue pair is created from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) core: Arc<Core>,
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) domain: u64,
    pub(crate) queue_key: u32,
    pub(crate) send_completions: Arc<RoceCompletions>,
    pub(crate) receive_completions: Arc<RoceCompletions>,
    pub(crate) receives: Arc<ReceiveQueue>,
    /// Whether the receive queue is shared with other queue pairs.
    pub(crate) shares_receives: bool,
    pub(crate) send_requests: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    state: AtomicU32,
    /// Number of sends whose entries of the send queue have been freed.
    pub(crate) retired: Arc<AtomicU32>,
    /// This host's address on the path to the peer, for callers that do not hold the engine.
    local: Mutex<Option<IpAddr>>,
    engine: Mutex<Engine>,
}

impl std::ops::Deref for Shared {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, first_psn: Psn) -> Self {
        Self {
            parts,
            state: AtomicU32::new(QueuePairState::Reset as u32),
            retired: Arc::new(AtomicU32::new(0)),
            local: Mutex::new(None),
            engine: Mutex::new(Engine::new(first_psn)),
        }
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        lock(&self.engine)
    }

    /// This host's address on the path to the peer.
    pub(crate) fn local(&self) -> Option<IpAddr> {
        *lock(&self.local)
    }

    pub(crate) fn set_local(&self, local: IpAddr) {
        *lock(&self.local) = Some(local);
    }

    /// The current state; an overrun of a completion queue is detected here, too.
    pub(crate) fn state(&self) -> QueuePairState {
        let number = self.state.load(Ordering::SeqCst);
        let state = QueuePairState::from_number(number).unwrap_or(QueuePairState::Error);
        let lives = !matches!(state, QueuePairState::Reset | QueuePairState::Error);
        if lives && self.is_overrun() {
            self.engine().enter_error(self);
            return QueuePairState::Error;
        }
        state
    }

    /// The current state, for callers that hold the engine.
    pub(crate) fn state_in_engine(&self) -> QueuePairState {
        let number = self.state.load(Ordering::SeqCst);
        QueuePairState::from_number(number).unwrap_or(QueuePairState::Error)
    }

    /// Sets the state; to be called only while holding the engine.
    pub(crate) fn set_state(&self, state: QueuePairState) {
        self.state.store(state as u32, Ordering::SeqCst);
    }

    pub(super) fn is_overrun(&self) -> bool {
        self.send_completions.is_overrun() || self.receive_completions.is_overrun()
    }

    /// Reports the completion of a send, if it is to be reported.
    pub(super) fn complete_send(&self, send: &Send, status: CompletionStatus, until: u32) {
        if status == CompletionStatus::Success && !send.signaled {
            return;
        }
        let completion = Completion {
            id: send.id,
            status,
            opcode: send.opcode,
            bytes: send.bytes.len(),
            queue_pair: self.number,
            ..Completion::EMPTY
        };
        let retired = Arc::clone(&self.retired);
        let retirement = Some(Retirement { retired, until });
        self.push(&self.send_completions, completion, false, retirement);
    }

    /// Reports a RECEIVE that was filled by a message.
    pub(super) fn complete_receive(
        &self,
        receive: &Receive,
        delivered: Delivered,
        source_queue_pair: Option<u32>,
    ) {
        let completion = Completion {
            id: receive.id,
            status: CompletionStatus::Success,
            opcode: if delivered.write {
                CompletionOpcode::ReceiveWriteWithImmediate
            } else {
                CompletionOpcode::Receive
            },
            bytes: delivered.bytes as usize,
            immediate: delivered.immediate,
            queue_pair: self.number,
            source_queue_pair,
            timestamp_ns: None,
        };
        self.push(
            &self.receive_completions,
            completion,
            delivered.solicited,
            None,
        );
    }

    /// Reports a RECEIVE that failed.
    pub(super) fn fail_receive(&self, receive: &Receive, status: CompletionStatus) {
        let completion = Completion {
            id: receive.id,
            status,
            opcode: CompletionOpcode::Receive,
            queue_pair: self.number,
            ..Completion::EMPTY
        };
        self.push(&self.receive_completions, completion, false, None);
    }

    fn push(
        &self,
        queue: &RoceCompletions,
        completion: Completion,
        solicited: bool,
        retirement: Option<Retirement>,
    ) {
        queue.push(completion, solicited, retirement);
        if queue.is_overrun() {
            self.core.push_event(AsyncEvent::CompletionQueueOverrun);
        }
    }
}
