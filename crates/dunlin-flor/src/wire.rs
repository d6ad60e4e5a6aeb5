//! The header in front of the payload of a SEND (Flor §5): 32 bytes, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | what it carries |
//! | 1 | 1: the hint bit |
//! | 2..4 | how often the connection has changed its queue pair: the *epoch* |
//! | 4..8 | reliable number of the SEND |
//! | 8..16 | global number |
//! | 16..20 | number of the message; of a repeated WRITE, its reliable number |
//! | 20..24 | where the fragment begins, in bytes; the tag of an announced message; the queue pair that is spoken of |
//! | 24..28 | bytes of the message |
//! | 28..32 | bytes of the payload |
//!
//! The paper says which numbers are sent, but not where. The epoch, grants and the renewal of queue pairs are ours.

use dunlin_verbs::{EndpointAddress, RemoteAddress, RemoteKey, ENDPOINT_ADDRESS_BYTES};

use crate::number::{GlobalNumber, SendNumber, WriteLayout, WriteNumber};

/// Length of the header in front of the payload.
pub const SEND_HEADER_BYTES: usize = 32;
/// Maximum length of a payload that concerns the connection itself.
pub const MAX_BODY_BYTES: usize = ENDPOINT_ADDRESS_BYTES;
/// Maximum length of a message that is sent by SEND (Flor §3.2). Longer ones are written.
pub const MAX_SEND_BYTES: u32 = 32 << 10;

/// Length of a grant: an address, a key, and four bytes of zero.
const GRANT_BYTES: usize = 16;
const HINT: u8 = 1;

/// The contents of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A message, or a part of one.
    Fragment {
        /// The message, counted by the sender among those that are sent.
        message: u32,
        /// Offset of the fragment in bytes.
        offset: u32,
        /// Length of the message in bytes.
        total: u32,
    },
    /// Requests memory for a message that is to be written.
    Announce {
        /// The message, counted among those that are written.
        message: u32,
        /// Length in bytes.
        total: u32,
        /// The tag that the sender's user gave it.
        tag: u32,
    },
    /// Grants memory for an announced message.
    Grant {
        /// The message.
        message: u32,
        /// Its destination.
        place: RemoteAddress,
    },
    /// Refuses an announced message.
    Refuse {
        /// The message.
        message: u32,
    },
    /// Part of a written message that was lost.
    Chunk(WriteNumber),
    /// Nothing: the connection has changed its queue pair, the peer is being probed, or the contents with this number
    /// are not needed any more.
    Empty,
    /// A queue pair was renewed and has this address.
    Renewed {
        /// Index of the connection's queue pair.
        path: u32,
        /// Its address.
        address: EndpointAddress,
    },
    /// A renewed queue pair is connected.
    Ready {
        /// Index of the connection's queue pair.
        path: u32,
    },
    /// The sender's queue pair for acknowledgements has this address.
    Acknowledgements {
        /// Its address.
        address: EndpointAddress,
    },
}

/// The header of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// See [`WriteNumber::hint`].
    pub hint: bool,
    /// The sender's epoch.
    pub epoch: u16,
    /// Reliable number.
    pub number: SendNumber,
    /// Global number.
    pub global: GlobalNumber,
    /// What follows.
    pub content: Content,
    /// Length of the payload in bytes.
    pub payload_bytes: u32,
}

/// The header and, for the connection's own messages, the body: what precedes a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    bytes: [u8; SEND_HEADER_BYTES + MAX_BODY_BYTES],
    length: usize,
}

impl Front {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Why bytes are not a SEND of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is shorter than a header, or the length of its payload is not what the header says.
    #[error(
        "wrong length of a SEND: {received} bytes, for a payload of {payload} after {SEND_HEADER_BYTES} bytes of \
         header"
    )]
    Length {
        /// The received length.
        received: usize,
        /// The length in the header.
        payload: u32,
    },
    /// An unknown kind or flag.
    #[error("unknown SEND: kind {kind}, flags {flags:#x}")]
    Kind {
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// A fragment beyond its message, or a message too long to be sent.
    #[error(
        "invalid fragment: {bytes} bytes at offset {offset} of a message of {total}; messages of more than \
         {MAX_SEND_BYTES} are sent by WRITE"
    )]
    Fragment {
        /// Its offset.
        offset: u32,
        /// Its length in bytes.
        bytes: u32,
        /// Length of the message in bytes.
        total: u32,
    },
}

impl Content {
    fn kind(&self) -> u8 {
        match self {
            Self::Fragment { .. } => 1,
            Self::Announce { .. } => 2,
            Self::Grant { .. } => 3,
            Self::Refuse { .. } => 4,
            Self::Chunk(_) => 5,
            Self::Empty => 6,
            Self::Renewed { .. } => 7,
            Self::Ready { .. } => 8,
            Self::Acknowledgements { .. } => 9,
        }
    }

    /// Number of bytes that the connection itself puts after the header.
    fn body_bytes(&self) -> usize {
        match self {
            Self::Grant { .. } => GRANT_BYTES,
            Self::Renewed { .. } | Self::Acknowledgements { .. } => ENDPOINT_ADDRESS_BYTES,
            _ => 0,
        }
    }

    /// Whether the payload belongs to a message.
    pub fn carries_message(&self) -> bool {
        matches!(self, Self::Fragment { .. } | Self::Chunk(_))
    }
}

impl Header {
    /// Encodes what precedes the message's bytes. [`Header::payload_bytes`] is used if the payload belongs to a
    /// message.
    pub fn encode(&self, layout: WriteLayout) -> Front {
        let mut bytes = [0; SEND_HEADER_BYTES + MAX_BODY_BYTES];
        let body = self.content.body_bytes();
        let (message, place, total) = match self.content {
            Content::Fragment {
                message,
                offset,
                total,
            } => (message, offset, total),
            Content::Announce {
                message,
                total,
                tag,
            } => (message, tag, total),
            Content::Grant { message, .. } | Content::Refuse { message } => (message, 0, 0),
            Content::Chunk(number) => (layout.encode(number), 0, 0),
            Content::Empty | Content::Acknowledgements { .. } => (0, 0, 0),
            Content::Renewed { path, .. } | Content::Ready { path } => (0, path, 0),
        };
        let payload = if self.content.carries_message() {
            self.payload_bytes
        } else {
            body as u32
        };
        bytes[0] = self.content.kind();
        bytes[1] = if self.hint { HINT } else { 0 };
        bytes[2..4].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.global.0.to_le_bytes());
        for (at, word) in [(16, message), (20, place), (24, total), (28, payload)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let rest = &mut bytes[SEND_HEADER_BYTES..];
        match self.content {
            Content::Grant { place, .. } => {
                rest[..8].copy_from_slice(&place.address.to_le_bytes());
                rest[8..12].copy_from_slice(&place.key.0.to_le_bytes());
            }
            Content::Renewed { address, .. } | Content::Acknowledgements { address } => {
                rest.copy_from_slice(&address.encode());
            }
            _ => {}
        }
        Front {
            bytes,
            length: SEND_HEADER_BYTES + body,
        }
    }

    /// Decodes a received header. `front` is the beginning of a SEND of `received` bytes: all of it, or at least
    /// [`SEND_HEADER_BYTES`] + [`MAX_BODY_BYTES`].
    ///
    /// # Errors
    /// When it does not belong to this protocol.
    pub fn decode(front: &[u8], received: usize, layout: WriteLayout) -> Result<Self, HeaderError> {
        let (header, body) =
            front
                .split_at_checked(SEND_HEADER_BYTES)
                .ok_or(HeaderError::Length {
                    received,
                    payload: 0,
                })?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (kind, flags) = (header[0], header[1]);
        let (message, place, total, payload) = (word(16), word(20), word(24), word(28));
        let length = HeaderError::Length { received, payload };
        if SEND_HEADER_BYTES as u64 + u64::from(payload) != received as u64 || flags & !HINT != 0 {
            return Err(if flags & !HINT != 0 {
                HeaderError::Kind { kind, flags }
            } else {
                length
            });
        }
        let content = match kind {
            1 if total > MAX_SEND_BYTES || u64::from(place) + u64::from(payload) > total.into() => {
                return Err(HeaderError::Fragment {
                    offset: place,
                    bytes: payload,
                    total,
                });
            }
            1 => Content::Fragment {
                message,
                offset: place,
                total,
            },
            2 => Content::Announce {
                message,
                total,
                tag: place,
            },
            3 if body.len() >= GRANT_BYTES => Content::Grant {
                message,
                place: grant(body),
            },
            4 => Content::Refuse { message },
            5 if payload <= MAX_SEND_BYTES => Content::Chunk(layout.decode(message)),
            6 => Content::Empty,
            7 | 9 => {
                let address = body.first_chunk().ok_or(length)?;
                let address = EndpointAddress::decode(address);
                match kind {
                    7 => Content::Renewed {
                        path: place,
                        address,
                    },
                    _ => Content::Acknowledgements { address },
                }
            }
            8 => Content::Ready { path: place },
            3 | 5 => return Err(length),
            _ => return Err(HeaderError::Kind { kind, flags }),
        };
        if !content.carries_message() && content.body_bytes() != payload as usize {
            return Err(length);
        }
        let global = u64::from(word(8)) | u64::from(word(12)) << 32;
        Ok(Self {
            hint: flags & HINT != 0,
            epoch: u16::from_le_bytes([header[2], header[3]]),
            number: SendNumber(word(4)),
            global: GlobalNumber(global),
            content,
            payload_bytes: payload,
        })
    }
}

fn grant(body: &[u8]) -> RemoteAddress {
    let mut address = [0; 8];
    address.copy_from_slice(&body[..8]);
    RemoteAddress {
        address: u64::from_le_bytes(address),
        key: RemoteKey(u32::from_le_bytes([body[8], body[9], body[10], body[11]])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contents() -> impl Strategy<Value = Content> {
        let number = any::<u32>().prop_map(|bits| WriteLayout::PAPER.decode(bits));
        prop_oneof![
            (any::<u32>(), 0..=MAX_SEND_BYTES).prop_map(|(message, total)| Content::Fragment {
                message,
                offset: total / 2,
                total,
            }),
            any::<(u32, u32, u32)>().prop_map(|(message, total, tag)| Content::Announce {
                message,
                total,
                tag,
            }),
            any::<(u32, u64, u32)>().prop_map(|(message, address, key)| Content::Grant {
                message,
                place: RemoteAddress {
                    address,
                    key: RemoteKey(key),
                },
            }),
            any::<u32>().prop_map(|message| Content::Refuse { message }),
            number.prop_map(Content::Chunk),
            Just(Content::Empty),
            (any::<u32>(), any::<[u8; 16]>()).prop_map(|(path, gid)| {
                let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
                bytes[..16].copy_from_slice(&gid);
                Content::Renewed {
                    path,
                    address: EndpointAddress::decode(&bytes),
                }
            }),
            any::<u32>().prop_map(|path| Content::Ready { path }),
            any::<[u8; 16]>().prop_map(|gid| {
                let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
                bytes[..16].copy_from_slice(&gid);
                Content::Acknowledgements {
                    address: EndpointAddress::decode(&bytes),
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn headers_come_back(content in contents(), hint in any::<bool>(), epoch in any::<u16>(), number in any::<u32>(), global in any::<u64>()) {
            let payload_bytes = match content {
                Content::Fragment { total, offset, .. } => total - offset,
                Content::Chunk(_) => 4096,
                other => other.body_bytes() as u32,
            };
            let header = Header {
                hint,
                epoch,
                number: SendNumber(number),
                global: GlobalNumber(global),
                content,
                payload_bytes,
            };
            let front = header.encode(WriteLayout::PAPER);
            let received = SEND_HEADER_BYTES + payload_bytes as usize;
            prop_assert_eq!(Header::decode(front.bytes(), received, WriteLayout::PAPER), Ok(header));
        }

        #[test]
        fn hostile_bytes_are_refused_or_within_bounds(
            kind in 0_u8..11,
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            small in any::<[u8; 3]>(),
        ) {
            // Random lengths would hardly ever fit, so use the one that does most of the time.
            if bytes.len() >= SEND_HEADER_BYTES {
                bytes[0] = kind;
                bytes[1] = small[0] % 3;
                if small[1] > 20 {
                    let payload = (bytes.len() - SEND_HEADER_BYTES) as u32;
                    bytes[28..32].copy_from_slice(&payload.to_le_bytes());
                    bytes[20..28].fill(0);
                    bytes[24] = small[2];
                }
            }
            if let Ok(header) = Header::decode(&bytes, bytes.len(), WriteLayout::PAPER) {
                prop_assert_eq!(header.payload_bytes as usize + SEND_HEADER_BYTES, bytes.len());
                if let Content::Fragment { offset, total, .. } = header.content {
                    prop_assert!(offset + header.payload_bytes <= total && total <= MAX_SEND_BYTES);
                }
            }
        }
    }
}
