//! The messages between the two ends of a logical queue pair: one *frame* is one message of the logical connection. It
//! has 48 bytes, little endian, followed by the payload if that is short.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind |
//! | 1 | 1: solicited, 2: there is immediate data, 4: say when it is done, 8: the payload is a message of its own |
//! | 2 | of an answer or a failure: how it ended |
//! | 3 | of a request: offers to a receiver that is not ready, 7 for no end |
//! | 4..8 | sequence number of the request, or of the one that is answered |
//! | 8..12 | requests of the receiver of this frame that are done: the number of the first that is not |
//! | 12..16 | bytes of the payload |
//! | 16..20 | immediate data |
//! | 20..24 | key of the remote memory |
//! | 24..32 | its address |
//! | 32..40, 40..48 | of an atomic: what is compared or added, what is swapped in |

use dunlin_verbs::{CompletionStatus, Operation, RemoteAddress, RemoteKey};

/// Length of the header in front of a payload.
pub(crate) const FRAME_BYTES: usize = 48;
/// Maximum length of a payload that is in the frame itself: a message up to this length is sent, a longer one written.
pub(crate) const MAX_SHORT_BYTES: usize = crate::wire::MAX_SEND_BYTES as usize - FRAME_BYTES;

const SOLICITED: u8 = 1;
const IMMEDIATE: u8 = 2;
const WANTS_DONE: u8 = 4;
const LONG: u8 = 8;

/// Tag of a message that is the payload of a request.
const TAG_REQUEST: u32 = 1 << 30;
/// Tag of a message that is the payload of an answer.
const TAG_ANSWER: u32 = 1 << 31;
const TAG_SEQUENCE: u32 = TAG_REQUEST - 1;

/// The request or answer to which a long message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The request with this sequence number, in its lower 30 bits.
    Request(u32),
    /// The answer to it.
    Answer(u32),
}

impl Tag {
    pub(crate) fn encode(self) -> u32 {
        match self {
            Self::Request(sequence) => TAG_REQUEST | sequence & TAG_SEQUENCE,
            Self::Answer(sequence) => TAG_ANSWER | sequence & TAG_SEQUENCE,
        }
    }

    /// Decodes a tag, with the sequence number closest to `near`.
    pub(crate) fn decode(tag: u32, near: u32) -> Option<Self> {
        // The difference to `near`, sign-extended from 30 bits.
        let ahead = (tag.wrapping_sub(near) << 2) as i32 >> 2;
        let sequence = near.wrapping_add(ahead as u32);
        match tag & !TAG_SEQUENCE {
            TAG_REQUEST => Some(Self::Request(sequence)),
            TAG_ANSWER => Some(Self::Answer(sequence)),
            _ => None,
        }
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A work request of the sender.
    Request {
        operation: Operation,
        solicited: bool,
        /// Whether the sender waits to learn that it is done.
        wants_done: bool,
        /// Whether the payload is a separate message.
        long: bool,
        /// As [`dunlin_verbs::ConnectAttributes::receiver_not_ready_retries`].
        not_ready_retries: u8,
    },
    /// The result of a READ or an atomic.
    Answer { long: bool },
    /// A request was refused; those behind it are not executed.
    Failed { status: CompletionStatus },
    /// Only reports which requests are done.
    Done,
    /// The sender's queue pair is in error or gone: it executes nothing more.
    Closed,
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) sequence: u32,
    pub(crate) done: u32,
    /// Length of the payload, wherever it is.
    pub(crate) bytes: u32,
}

/// The bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Statuses that can be sent.
const STATUSES: [CompletionStatus; 4] = [
    CompletionStatus::RemoteInvalidRequest,
    CompletionStatus::RemoteAccess,
    CompletionStatus::RemoteOperation,
    CompletionStatus::ReceiverNotReadyRetryExceeded,
];

impl Frame {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        let (mut flags, mut immediate, mut words) = (0, 0, [0; 3]);
        let mut key = 0;
        let mut at = |remote: RemoteAddress| {
            key = remote.key.0;
            words[0] = remote.address;
        };
        match self.kind {
            Kind::Request {
                operation,
                solicited,
                wants_done,
                long,
                not_ready_retries,
            } => {
                bytes[0] = match operation {
                    Operation::Send { immediate: with } => {
                        immediate = with.unwrap_or(0);
                        flags |= if with.is_some() { IMMEDIATE } else { 0 };
                        1
                    }
                    Operation::Write {
                        remote,
                        immediate: with,
                    } => {
                        at(remote);
                        immediate = with.unwrap_or(0);
                        flags |= if with.is_some() { IMMEDIATE } else { 0 };
                        2
                    }
                    Operation::Read { remote } => {
                        at(remote);
                        3
                    }
                    Operation::CompareAndSwap {
                        remote,
                        compare,
                        swap,
                    } => {
                        at(remote);
                        (words[1], words[2]) = (compare, swap);
                        4
                    }
                    Operation::FetchAndAdd { remote, add } => {
                        at(remote);
                        words[1] = add;
                        5
                    }
                };
                flags |= if solicited { SOLICITED } else { 0 };
                flags |= if wants_done { WANTS_DONE } else { 0 };
                flags |= if long { LONG } else { 0 };
                bytes[3] = not_ready_retries;
            }
            Kind::Answer { long } => {
                bytes[0] = 6;
                flags |= if long { LONG } else { 0 };
            }
            Kind::Failed { status } => {
                bytes[0] = 7;
                let index = STATUSES.iter().position(|known| *known == status);
                bytes[2] = index.map_or(u8::MAX, |index| index as u8);
            }
            Kind::Done => bytes[0] = 8,
            Kind::Closed => bytes[0] = 9,
        }
        bytes[1] = flags;
        let halves = [
            (4, self.sequence),
            (8, self.done),
            (12, self.bytes),
            (16, immediate),
            (20, key),
        ];
        for (at, half) in halves {
            bytes[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        for (at, word) in [24, 32, 40].into_iter().zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a message: the frame, and its payload if it is short.
    pub(crate) fn decode(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bytes, payload) = message.split_at_checked(FRAME_BYTES).ok_or(Malformed)?;
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let flags = bytes[1];
        let length = half(12);
        let remote = RemoteAddress {
            address: word(24),
            key: RemoteKey(half(20)),
        };
        let immediate = (flags & IMMEDIATE != 0).then_some(half(16));
        let long = flags & LONG != 0;
        let operation = match bytes[0] {
            1 => Some(Operation::Send { immediate }),
            2 => Some(Operation::Write { remote, immediate }),
            3 => Some(Operation::Read { remote }),
            4 => Some(Operation::CompareAndSwap {
                remote,
                compare: word(32),
                swap: word(40),
            }),
            5 => Some(Operation::FetchAndAdd {
                remote,
                add: word(32),
            }),
            _ => None,
        };
        let kind = match (operation, bytes[0]) {
            (Some(operation), _) => Kind::Request {
                operation,
                solicited: flags & SOLICITED != 0,
                wants_done: flags & WANTS_DONE != 0,
                long,
                not_ready_retries: bytes[3],
            },
            (None, 6) => Kind::Answer { long },
            (None, 7) => Kind::Failed {
                status: *STATUSES
                    .get(usize::from(bytes[2]))
                    .unwrap_or(&CompletionStatus::General),
            },
            (None, 8) => Kind::Done,
            (None, 9) => Kind::Closed,
            _ => return Err(Malformed),
        };
        let carried = match kind {
            Kind::Request {
                operation: Operation::Send { .. } | Operation::Write { .. },
                ..
            }
            | Kind::Answer { .. } => !long,
            // An atomic has eight bytes of operand and returns as many.
            Kind::Request {
                operation: Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. },
                ..
            } if length != 8 => return Err(Malformed),
            _ => false,
        };
        let expected = if carried { length as usize } else { 0 };
        if payload.len() != expected {
            return Err(Malformed);
        }
        let frame = Self {
            kind,
            sequence: half(4),
            done: half(8),
            bytes: length,
        };
        Ok((frame, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        let remote = any::<(u64, u32)>().prop_map(|(address, key)| RemoteAddress {
            address,
            key: RemoteKey(key),
        });
        let operation = prop_oneof![
            any::<Option<u32>>().prop_map(|immediate| Operation::Send { immediate }),
            (remote.clone(), any::<Option<u32>>())
                .prop_map(|(remote, immediate)| Operation::Write { remote, immediate }),
            remote.clone().prop_map(|remote| Operation::Read { remote }),
            (remote.clone(), any::<(u64, u64)>()).prop_map(|(remote, (compare, swap))| {
                Operation::CompareAndSwap {
                    remote,
                    compare,
                    swap,
                }
            }),
            (remote, any::<u64>()).prop_map(|(remote, add)| Operation::FetchAndAdd { remote, add }),
        ];
        prop_oneof![
            (operation, any::<[bool; 3]>(), any::<u8>()).prop_map(|(operation, flags, retries)| {
                Kind::Request {
                    operation,
                    solicited: flags[0],
                    wants_done: flags[1],
                    long: flags[2],
                    not_ready_retries: retries,
                }
            }),
            any::<bool>().prop_map(|long| Kind::Answer { long }),
            (0..STATUSES.len()).prop_map(|at| Kind::Failed {
                status: STATUSES[at]
            }),
            Just(Kind::Done),
            Just(Kind::Closed),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_back(kind in kinds(), sequence in any::<u32>(), done in any::<u32>(), length in 0_u32..100) {
            let atomic = matches!(
                kind,
                Kind::Request { operation: Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. }, .. }
            );
            let bytes = if atomic { 8 } else { length };
            let frame = Frame { kind, sequence, done, bytes };
            let mut message = frame.encode().to_vec();
            if let Kind::Answer { long: false }
            | Kind::Request { operation: Operation::Send { .. } | Operation::Write { .. }, long: false, .. } = kind
            {
                message.resize(FRAME_BYTES + length as usize, 7);
            }
            let (read, payload) = Frame::decode(&message).expect("a frame");
            prop_assert_eq!(read, frame);
            prop_assert_eq!(payload.len(), message.len() - FRAME_BYTES);
            message.push(0);
            prop_assert_eq!(Frame::decode(&message), Err(Malformed));
        }

        #[test]
        fn hostile_bytes_are_refused_or_have_the_length_that_they_say(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok((frame, payload)) = Frame::decode(&bytes) {
                prop_assert!(payload.is_empty() || payload.len() == frame.bytes as usize);
            }
        }

        #[test]
        fn tags_name_the_nearest_request(near in any::<u32>(), ahead in -1000_i32..1000, answer in any::<bool>()) {
            let sequence = near.wrapping_add(ahead as u32);
            let tag = if answer { Tag::Answer(sequence) } else { Tag::Request(sequence) };
            prop_assert_eq!(Tag::decode(tag.encode(), near), Some(tag));
            prop_assert!(tag.encode() != 0);
        }
    }

    #[test]
    fn other_tags_are_nobodys() {
        assert_eq!(Tag::decode(0, 5), None);
        assert_eq!(Tag::decode(u32::MAX, 5), None);
    }
}
