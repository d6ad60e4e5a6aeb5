//! The messages of a session between devices: a fixed 64 bytes each, with descriptors attached.

/// Length of a message.
pub const MESSAGE_BYTES: usize = 64;
/// The version of this protocol.
pub(crate) const VERSION: u32 = 2;

/// A message. Numbers are little endian; fields that a kind does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// First on a session: identifies the device that opens it.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// The requesting device.
        uid: [u8; 16],
    },
    /// The sender's queue pair requests the port of the queue pair that it is connected to.
    AttachPort {
        /// Running number of the request; the answer repeats it.
        request: u32,
        /// The requesting queue pair.
        requester: u32,
        /// The token of the requesting queue pair's own address.
        token: u64,
        /// The target queue pair.
        target: u32,
    },
    /// A UD queue pair requests a port to another.
    AttachDatagram {
        /// Running number.
        request: u32,
        /// The requesting queue pair.
        requester: u32,
        /// The target queue pair.
        target: u32,
        /// The queue key of the target queue pair.
        queue_key: u32,
    },
    /// A connected queue pair requests the region of a key.
    MapRegion {
        /// Running number.
        request: u32,
        /// The requesting queue pair.
        requester: u32,
        /// The token of the requesting queue pair's own address.
        token: u64,
        /// The target queue pair.
        target: u32,
        /// The remote key.
        key: u32,
    },
    /// A port, with the descriptors of its memory, of the region table, and, if that is new, of the socket by which its
    /// owner is woken.
    Port {
        /// Running number of the request.
        request: u32,
        /// Entries of the ring of RECEIVE lengths.
        lengths: u32,
        /// Bytes of the ring of records.
        data_bytes: u32,
        /// Whether RECEIVEs come from a shared queue.
        shared_receive: bool,
        /// The number of that socket in this session; 0 if there is none.
        waker: u32,
    },
    /// A region, with the descriptor of its memory.
    Region {
        /// Running number of the request.
        request: u32,
        /// The access granted.
        access: u32,
        /// The remote address of its first byte.
        base: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The request is refused.
    Refused {
        /// Running number of the request.
        request: u32,
    },
    /// A queue pair that the receiver of this message attached to is gone.
    Closed {
        /// Number of the request by which it attached.
        request: u32,
        /// The queue pair that was attached to it.
        requester: u32,
    },
    /// Asks whether a queue pair belongs to the receiver.
    Confirm {
        /// Running number of the request; the answer repeats it.
        request: u32,
        /// The queue pair in question.
        target: u32,
        /// The token of its address, known to its device and to those who were given the address.
        token: u64,
    },
    /// Confirms that it does.
    Confirmed {
        /// Running number of the request.
        request: u32,
    },
}

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageError;

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut words = |values: &[u32]| {
            for (place, value) in bytes.chunks_exact_mut(4).zip(values) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        match *self {
            Self::Hello { version, uid } => {
                words(&[1, version]);
                bytes[8..24].copy_from_slice(&uid);
            }
            Self::AttachPort {
                request,
                requester,
                token,
                target,
            } => words(&[
                2,
                request,
                requester,
                target,
                token as u32,
                (token >> 32) as u32,
            ]),
            Self::AttachDatagram {
                request,
                requester,
                target,
                queue_key,
            } => words(&[3, request, requester, target, queue_key]),
            Self::MapRegion {
                request,
                requester,
                token,
                target,
                key,
            } => words(&[
                4,
                request,
                requester,
                target,
                token as u32,
                (token >> 32) as u32,
                key,
            ]),
            Self::Port {
                request,
                lengths,
                data_bytes,
                shared_receive,
                waker,
            } => words(&[
                5,
                request,
                lengths,
                data_bytes,
                shared_receive.into(),
                waker,
            ]),
            Self::Region {
                request,
                access,
                base,
                length,
            } => words(&[
                6,
                request,
                access,
                base as u32,
                (base >> 32) as u32,
                length as u32,
                (length >> 32) as u32,
            ]),
            Self::Refused { request } => words(&[7, request]),
            Self::Closed { request, requester } => words(&[8, request, requester]),
            Self::Confirm {
                request,
                target,
                token,
            } => words(&[9, request, target, token as u32, (token >> 32) as u32]),
            Self::Confirmed { request } => words(&[10, request]),
        }
        bytes
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When the bytes are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().map_err(|_| MessageError)?;
        let word = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |index: usize| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
        let request = word(1);
        let message = match word(0) {
            1 => {
                let mut uid = [0; 16];
                uid.copy_from_slice(&bytes[8..24]);
                Self::Hello {
                    version: word(1),
                    uid,
                }
            }
            2 => Self::AttachPort {
                request,
                requester: word(2),
                target: word(3),
                token: long(4),
            },
            3 => Self::AttachDatagram {
                request,
                requester: word(2),
                target: word(3),
                queue_key: word(4),
            },
            4 => Self::MapRegion {
                request,
                requester: word(2),
                target: word(3),
                token: long(4),
                key: word(6),
            },
            5 => Self::Port {
                request,
                lengths: word(2),
                data_bytes: word(3),
                shared_receive: match word(4) {
                    0 => false,
                    1 => true,
                    _ => return Err(MessageError),
                },
                waker: word(5),
            },
            6 => Self::Region {
                request,
                access: word(2),
                base: long(3),
                length: long(5),
            },
            7 => Self::Refused { request },
            8 => Self::Closed {
                request,
                requester: word(2),
            },
            9 => Self::Confirm {
                request,
                target: word(2),
                token: long(3),
            },
            10 => Self::Confirmed { request },
            _ => return Err(MessageError),
        };
        Ok(message)
    }
}
