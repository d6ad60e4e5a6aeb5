//! A responder's queue: answers in the order of their sequence numbers, with acknowledgements merged.

use std::collections::VecDeque;

use super::packets_of;
use crate::packet::{
    Acknowledgement, Header, Operation, Psn, RemoteRange, Service, Syndrome, DEFAULT_PARTITION_KEY,
};

/// The source of a response's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsePayload {
    /// The range, checked for READ access when the request arrived, and to be checked again.
    pub range: RemoteRange,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Everything in front of the payload.
    pub header: Header,
    /// The payload of a READ's answer; `None` if the READ is for no bytes.
    pub payload: Option<ResponsePayload>,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Acknowledge {
        psn: Psn,
        acknowledgement: Acknowledgement,
    },
    Atomic {
        psn: Psn,
        acknowledgement: Acknowledgement,
        original: u64,
    },
    Read {
        psn: Psn,
        acknowledgement: Acknowledgement,
        source: RemoteRange,
        sent_packets: u32,
        /// Whether it was answered before.
        again: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Responses {
    pending: VecDeque<Pending>,
    limit: usize,
    peer_queue_pair: u32,
    mtu_bytes: u32,
}

impl Responses {
    /// Space for `limit` answers with data and the acknowledgements between them.
    pub(super) fn new(limit: usize, peer_queue_pair: u32, mtu_bytes: u32) -> Self {
        let limit = 2 * limit + 1;
        Self {
            pending: VecDeque::with_capacity(limit + 1),
            limit,
            peer_queue_pair,
            mtu_bytes,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < self.limit
    }

    /// Adds an acknowledgement. A positive one replaces another that waits to be sent; a refusal is not replaced.
    /// Without space it is dropped: the requester asks again.
    pub(super) fn acknowledge(&mut self, psn: Psn, acknowledgement: Acknowledgement) {
        let new = Pending::Acknowledge {
            psn,
            acknowledgement,
        };
        let positive = |of: &Acknowledgement| matches!(of.syndrome, Syndrome::Acknowledged(_));
        let has_room = self.has_room();
        match self.pending.back_mut() {
            Some(Pending::Acknowledge {
                psn: waiting,
                acknowledgement: says,
            }) if positive(says) => (*waiting, *says) = (psn, acknowledgement),
            _ if has_room => self.pending.push_back(new),
            // A refusal is sent only once, so it replaces the last answer, which will be requested again.
            _ if !positive(&acknowledgement) => {
                self.pending.pop_back();
                self.pending.push_back(new);
            }
            _ => {}
        }
    }

    /// Whether the last entry is a positive acknowledgement.
    pub(super) fn ends_with_acknowledgement(&self) -> bool {
        matches!(
            self.pending.back(),
            Some(Pending::Acknowledge { acknowledgement, .. })
                if matches!(acknowledgement.syndrome, Syndrome::Acknowledged(_))
        )
    }

    pub(super) fn answer_atomic(
        &mut self,
        psn: Psn,
        acknowledgement: Acknowledgement,
        original: u64,
    ) {
        if self.has_room() {
            self.pending.push_back(Pending::Atomic {
                psn,
                acknowledgement,
                original,
            });
        }
    }

    pub(super) fn answer_read(
        &mut self,
        psn: Psn,
        acknowledgement: Acknowledgement,
        source: RemoteRange,
        again: bool,
    ) {
        if self.has_room() {
            let sent_packets = 0;
            self.pending.push_back(Pending::Read {
                psn,
                acknowledgement,
                source,
                sent_packets,
                again,
            });
        }
    }

    /// Drops the answer to a READ at the front and, if that was owed, everything behind it; then returns the first
    /// missing packet of it.
    pub(super) fn drop_read(&mut self) -> Option<Psn> {
        let Some(Pending::Read {
            psn,
            sent_packets,
            again,
            ..
        }) = self.pending.front()
        else {
            return None;
        };
        if *again {
            self.pending.pop_front();
            return None;
        }
        let psn = psn.plus(*sent_packets);
        self.pending.clear();
        Some(psn)
    }

    /// The next packet to send, which stays until [`Responses::sent`].
    pub(super) fn front(&self) -> Option<Response> {
        let (psn, operation, payload) = match self.pending.front()? {
            Pending::Acknowledge {
                psn,
                acknowledgement,
            } => (
                *psn,
                Operation::Acknowledge {
                    acknowledgement: *acknowledgement,
                },
                None,
            ),
            Pending::Atomic {
                psn,
                acknowledgement,
                original,
            } => {
                let operation = Operation::AtomicAcknowledge {
                    acknowledgement: *acknowledgement,
                    original: *original,
                };
                (*psn, operation, None)
            }
            Pending::Read {
                psn,
                acknowledgement,
                source,
                sent_packets,
                ..
            } => {
                let acknowledgement = *acknowledgement;
                let packets = packets_of(source.bytes, self.mtu_bytes);
                let offset = sent_packets * self.mtu_bytes;
                let operation = match (*sent_packets, sent_packets + 1 == packets) {
                    (0, true) => Operation::ReadResponseOnly { acknowledgement },
                    (0, false) => Operation::ReadResponseFirst { acknowledgement },
                    (_, true) => Operation::ReadResponseLast { acknowledgement },
                    (_, false) => Operation::ReadResponseMiddle,
                };
                let range = RemoteRange {
                    address: source.address.wrapping_add(offset.into()),
                    key: source.key,
                    bytes: (source.bytes - offset).min(self.mtu_bytes),
                };
                // A READ of no bytes names no memory: its key has not been checked, and must not be.
                let payload = (range.bytes > 0).then_some(ResponsePayload { range });
                (psn.plus(*sent_packets), operation, payload)
            }
        };
        let header = Header {
            service: Service::Reliable,
            operation,
            solicited: false,
            acknowledge: false,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: self.peer_queue_pair,
            psn,
        };
        Some(Response { header, payload })
    }

    /// Whether a positive acknowledgement is all there is to send.
    pub(super) fn is_acknowledgement_only(&self) -> bool {
        self.pending.len() == 1 && self.ends_with_acknowledgement()
    }

    /// Records that the packet at the front was sent.
    pub(super) fn sent(&mut self) {
        if let Some(Pending::Read {
            source,
            sent_packets,
            ..
        }) = self.pending.front_mut()
        {
            *sent_packets += 1;
            if *sent_packets < packets_of(source.bytes, self.mtu_bytes) {
                return;
            }
        }
        self.pending.pop_front();
    }
}
