//! Conversion of a user's work requests to the engine's.

use std::sync::atomic::Ordering;

use dunlin_verbs::{
    Access, CompletionOpcode, Operation, Payload, PostErrorKind, QueuePairState, SendFlags,
    Transport,
};

use super::{RoceQueuePair, SendOf};
use crate::engine::{Datagram, Engine};
use crate::packet::AtomicTarget;
use crate::reliable::{Request, Verb};
use crate::shared_receive::bytes_of;
use crate::socket::{Path, Train};
use crate::work::{Bytes, Send};

pub(super) fn opcode(operation: &Operation) -> CompletionOpcode {
    match operation {
        Operation::Send { .. } => CompletionOpcode::Send,
        Operation::Write { .. } => CompletionOpcode::Write,
        Operation::Read { .. } => CompletionOpcode::Read,
        Operation::CompareAndSwap { .. } => CompletionOpcode::CompareAndSwap,
        Operation::FetchAndAdd { .. } => CompletionOpcode::FetchAndAdd,
    }
}

pub(super) fn verb(operation: &Operation) -> Verb {
    match *operation {
        Operation::Send { immediate } => Verb::Send { immediate },
        Operation::Write { remote, immediate } => Verb::Write {
            address: remote.address,
            key: remote.key.0,
            immediate,
        },
        Operation::Read { remote } => Verb::Read {
            address: remote.address,
            key: remote.key.0,
        },
        Operation::CompareAndSwap {
            remote,
            compare,
            swap,
        } => Verb::CompareAndSwap {
            target: AtomicTarget {
                address: remote.address,
                key: remote.key.0,
            },
            compare,
            swap,
        },
        Operation::FetchAndAdd { remote, add } => Verb::FetchAdd {
            target: AtomicTarget {
                address: remote.address,
                key: remote.key.0,
            },
            add,
        },
    }
}

impl RoceQueuePair {
    /// Posts one request; returns its length in bytes.
    pub(super) fn post_one(
        &mut self,
        engine: &mut Engine,
        request: &SendOf<'_>,
        train: &mut Train,
    ) -> Result<usize, PostErrorKind> {
        let shared = &*self.shared;
        let state = shared.state_in_engine();
        if !state.takes_sends() {
            return Err(PostErrorKind::State(state));
        }
        let bytes = self.check(request)?;
        let limit = shared.send_requests;
        let retired = shared.retired.load(Ordering::Acquire);
        if self.posted.wrapping_sub(retired) as usize >= limit {
            return Err(PostErrorKind::Full { limit });
        }
        self.posted = self.posted.wrapping_add(1);
        let length = bytes.len();
        let number = engine.keep(Send {
            id: request.id,
            opcode: opcode(&request.operation),
            signaled: request.flags.contains(SendFlags::SIGNALED),
            bytes,
        });
        if state == QueuePairState::Error {
            engine.flush(shared);
            return Ok(length);
        }
        let solicited = request.flags.contains(SendFlags::SOLICITED);
        if let Some(to) = &request.destination {
            let Operation::Send { immediate } = request.operation else {
                return Err(PostErrorKind::Verb(shared.transport));
            };
            let datagram = Datagram {
                path: Path {
                    local: self.local.unwrap_or(to.handle.local),
                    peer: to.handle.peer,
                },
                queue_pair: to.queue_pair,
                queue_key: to.queue_key,
                immediate,
                solicited,
            };
            engine.send_datagram(shared, train, &datagram);
            return Ok(length);
        }
        let request = Request {
            id: number,
            verb: verb(&request.operation),
            bytes: length as u32,
            fence: request.flags.contains(SendFlags::FENCE),
            prompt: request.flags.contains(SendFlags::SIGNALED),
            solicited,
        };
        engine.post(request, state == QueuePairState::SendQueueDrained);
        Ok(length)
    }

    /// Checks a request and keeps what its payload names.
    pub(super) fn check(&self, request: &SendOf<'_>) -> Result<Bytes, PostErrorKind> {
        let transport = self.shared.transport;
        let not_carried = PostErrorKind::Verb(transport);
        let is_datagram = transport == Transport::UnreliableDatagram;
        if request.destination.is_some() != is_datagram {
            return Err(not_carried);
        }
        let is_reliable = transport == Transport::ReliableConnection;
        let (carried, access) = match request.operation {
            Operation::Send { .. } => (true, Access::empty()),
            Operation::Write { .. } => (!is_datagram, Access::empty()),
            Operation::Read { .. }
            | Operation::CompareAndSwap { .. }
            | Operation::FetchAndAdd { .. } => (is_reliable, Access::LOCAL_WRITE),
        };
        if !carried {
            return Err(not_carried);
        }
        let bytes = match request.payload {
            Payload::Inline(bytes) => {
                if bytes.len() > self.limits.inline_bytes {
                    return Err(PostErrorKind::Inline {
                        bytes: bytes.len(),
                        limit: self.limits.inline_bytes,
                    });
                }
                if !access.is_empty() {
                    return Err(not_carried);
                }
                Bytes::Inline(bytes.into())
            }
            Payload::Segments(segments) => {
                bytes_of(segments, self.limits.segments, self.shared.domain, access)?
            }
        };
        let (length, limit) = (bytes.len(), self.limits.message_bytes);
        if length > limit {
            return Err(PostErrorKind::Length {
                bytes: length,
                limit,
            });
        }
        let is_atomic = matches!(
            request.operation,
            Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. }
        );
        if is_atomic && !(length == 8 && matches!(bytes, Bytes::Piece(_))) {
            return Err(not_carried);
        }
        Ok(bytes)
    }
}
