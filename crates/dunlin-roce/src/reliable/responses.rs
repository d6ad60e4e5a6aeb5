//! What a responder has to say: answers in the order of their sequence numbers, acknowledgements merged.

use std::collections::VecDeque;

use super::packets_of;
use crate::packet::{
    Acknowledgement, Header, Operation, Psn, RemoteRange, Service, Syndrome, DEFAULT_PARTITION_KEY,
};

/// Where the payload of a response comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsePayload {
    /// The range, checked for the right to READ when the request came, and to be checked again.
    pub range: RemoteRange,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Everything before the payload.
    pub header: Header,
    /// The payload of a READ's answer; none when the READ asks for no bytes.
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
    /// Room for `limit` answers with data and the acknowledgements between them.
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

    /// A plain acknowledgement replaces one that waits to be sent; a refusal stands for itself. Without room it is left
    /// out: the requester asks again.
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
            // A refusal is said once only: it takes the place of the last answer, which is asked for again.
            _ if !positive(&acknowledgement) => {
                self.pending.pop_back();
                self.pending.push_back(new);
            }
            _ => {}
        }
    }

    /// Whether the last thing to say is that packets have come.
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

    /// Drops the answer to a READ at the front, and all behind it if it is owed; says then which packet of it is
    /// missing.
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

    /// The packet to send next, which stays until [`Responses::sent`].
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
                // A READ of nothing has named no memory: its key was not looked at, and is not to be.
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

    /// Whether all there is to say is that packets have come.
    pub(super) fn is_acknowledgement_only(&self) -> bool {
        self.pending.len() == 1 && self.ends_with_acknowledgement()
    }

    /// The packet at the front was sent.
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
