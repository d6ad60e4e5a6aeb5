//! The wire format of a datagram: a head that identifies its session, then messages as in a batch of the ring.
//!
//! ```text
//! head: cookie of the receiver's session u64 | number of that session u16 | messages u8 | version u4, flags u4
//! then: header 16 B | payload, to 8 B | header | payload | ...
//! ```
//!
//! So a call of 32 bytes is a datagram of 60, and its work queue element, including the address, takes two lines of 64,
//! the units in which a NIC fetches it.
//!
//! A queue pair receives datagrams from anybody. The cookie is random and known to one peer only, from the handshake: a
//! datagram without it is discarded. What follows is still checked like everything that a peer writes.

use std::ops::Range;

use crate::channel::message::{message_bytes, Header, HEADER_BYTES};
use crate::channel::short_copy::copy;
use crate::config::MESSAGES;

/// Bytes before the first message.
pub(crate) const HEAD_BYTES: usize = 12;
/// Version of the format, in the lower half of its byte.
const VERSION: u8 = 2;
const VERSION_MASK: u8 = 0x0f;
/// The flag in the upper half: [`Head::wants_datagrams`].
const WANTS_DATAGRAMS: u8 = 0x10;

/// The session of a datagram, and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The secret that only the session's peer knows.
    pub(crate) cookie: u64,
    /// The receiver's number of the session.
    pub(crate) session: u16,
    /// Number of messages that follow: even the longest datagram has no more.
    pub(crate) messages: u8,
    /// The server requests datagrams of clients that have the choice
    /// ([`Standing::DATAGRAMS`](crate::admission::Standing::DATAGRAMS)).
    pub(crate) wants_datagrams: bool,
}

impl Head {
    /// Encodes the head.
    #[inline]
    pub(crate) fn encode(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.session.to_le_bytes());
        let flags = if self.wants_datagrams {
            WANTS_DATAGRAMS
        } else {
            0
        };
        bytes[10..].copy_from_slice(&[self.messages, VERSION | flags]);
        bytes
    }

    /// Decodes what any host may have written; `None` if it has another version, or is not a head.
    #[inline]
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (cookie, rest) = bytes.split_first_chunk()?;
        let &[low, high, messages, version] = rest else {
            return None;
        };
        (version & VERSION_MASK == VERSION).then_some(Self {
            cookie: u64::from_le_bytes(*cookie),
            session: u16::from_le_bytes([low, high]),
            messages,
            wants_datagrams: version & WANTS_DATAGRAMS != 0,
        })
    }
}

/// Maximum length of a payload in one datagram of `packet_bytes`.
pub(crate) fn capacity(packet_bytes: usize) -> usize {
    ((packet_bytes - HEAD_BYTES) & !7) - HEADER_BYTES
}

/// Limits on the contents of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Number of bytes that its receiver accepts.
    pub(crate) bytes: usize,
    /// Number of messages that its sender combines, at least one.
    pub(crate) messages: u8,
}

/// A datagram that is being written.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: Box<[u8]>,
    room: Room,
    length: usize,
    messages: u8,
}

impl Packet {
    /// Creates an empty packet of at most `packet_bytes`, with as many messages as fit.
    pub(crate) fn new(packet_bytes: usize) -> Self {
        let bytes = packet_bytes & !7;
        Self {
            bytes: vec![0; bytes].into(),
            room: Room {
                bytes,
                messages: MESSAGES,
            },
            length: HEAD_BYTES,
            messages: 0,
        }
    }

    /// Whether it has no message.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Whether another message with `payload` bytes fits.
    #[inline]
    pub(crate) fn fits(&self, payload: usize) -> bool {
        message_bytes(payload) <= self.room.bytes - self.length
            && self.messages < self.room.messages
    }

    /// Adds a message, for which there is room.
    #[inline]
    pub(crate) fn push(&mut self, header: Header, payload: &[u8]) {
        copy(&mut self.space()[..payload.len()], payload);
        self.commit(header);
    }

    /// The place for the payload of the next message: all the remaining room, in whole words, because messages are
    /// padded to words.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let start = (self.length + HEADER_BYTES).min(self.room.bytes);
        let room = (self.room.bytes - start) & !7;
        &mut self.bytes[start..start + room]
    }

    /// Adds the message whose payload was written into [`Packet::space`].
    #[inline]
    pub(crate) fn commit(&mut self, header: Header) {
        self.bytes[self.length..self.length + HEADER_BYTES].copy_from_slice(&header.encode());
        self.length += message_bytes(header.length as usize);
        self.messages += 1;
    }

    /// Writes the head: `to` identifies the session; the number of messages is added.
    #[inline]
    pub(crate) fn seal(&mut self, to: Head) {
        let head = Head {
            messages: self.messages,
            ..to
        };
        self.bytes[..HEAD_BYTES].copy_from_slice(&head.encode());
    }

    /// The bytes to send.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Empties it and sets its limits.
    #[inline]
    pub(crate) fn clear_for(&mut self, room: Room) {
        self.room = Room {
            bytes: self.bytes.len().min(room.bytes & !7),
            ..room
        };
        self.clear();
    }

    /// Empties it.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.length = HEAD_BYTES;
        self.messages = 0;
    }
}

/// The position in a datagram that is being read. The bytes are a private copy: their sender cannot change them any
/// more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    at: usize,
    left: u8,
}

impl Cursor {
    /// The position before the first message of a datagram with this head.
    pub(crate) fn new(head: Head) -> Self {
        Self {
            at: HEAD_BYTES,
            left: head.messages,
        }
    }

    /// The next message of `bytes` and the position of its payload; `Ok(None)` after the last.
    ///
    /// # Errors
    /// What is wrong, when the bytes do not contain as many messages as the head states.
    #[inline]
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<(Header, Range<usize>)>, &'static str> {
        if self.left == 0 {
            return Ok(None);
        }
        let rest = bytes.get(self.at..).unwrap_or_default();
        let (header, rest) = rest
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or("a datagram with fewer messages than its header states")?;
        let header = Header::read(header).ok_or("a message of an unknown kind")?;
        let length = header.length as usize;
        if length > rest.len() {
            return Err("a message longer than its datagram");
        }
        let payload = self.at + HEADER_BYTES..self.at + HEADER_BYTES + length;
        self.at += message_bytes(length);
        self.left -= 1;
        Ok(Some((header, payload)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::channel::message::Kind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            lengths in prop::collection::vec(0usize..700, 0..40), cookie: u64, session: u16
        ) {
            let mut packet = Packet::new(2000);
            let mut inside = Vec::new();
            for (call, length) in lengths.into_iter().enumerate() {
                if packet.fits(length) {
                    let header = Header { length: length as u32, handler: 7, kind: Kind::Request, call: call as u64 };
                    packet.push(header, &vec![call as u8; length]);
                    inside.push(header);
                }
            }
            packet.seal(Head { cookie, session, ..Head::default() });
            let bytes = packet.bytes();
            prop_assert!(bytes.len() <= 2000);
            let head = Head::read(bytes.first_chunk().unwrap()).unwrap();
            prop_assert_eq!((head.cookie, head.session, usize::from(head.messages)), (cookie, session, inside.len()));
            let mut cursor = Cursor::new(head);
            for header in inside {
                let (read, payload) = cursor.take(bytes).unwrap().unwrap();
                prop_assert_eq!(read, header);
                prop_assert!(bytes[payload].iter().all(|&byte| byte == header.call as u8));
            }
            prop_assert!(cursor.take(bytes).unwrap().is_none());
        }

        #[test]
        fn any_bytes_are_messages_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), messages: u8) {
            let mut cursor = Cursor::new(Head { messages, ..Head::default() });
            let mut taken = 0;
            while let Ok(Some((_, payload))) = cursor.take(&bytes) {
                prop_assert!(payload.end <= bytes.len());
                taken += 1;
            }
            prop_assert!(taken <= messages);
        }
    }

    #[test]
    fn the_longest_payload_fits_and_one_byte_more_does_not() {
        for packet_bytes in [256, 1000, 1024, 4096] {
            let packet = Packet::new(packet_bytes);
            assert!(packet.fits(capacity(packet_bytes)), "{packet_bytes}");
            assert!(!packet.fits(capacity(packet_bytes) + 1), "{packet_bytes}");
        }
    }

    #[test]
    fn no_more_messages_fit_than_its_room_has() {
        let mut packet = Packet::new(1024);
        for messages in [1, 3] {
            packet.clear_for(Room {
                bytes: 1024,
                messages,
            });
            for call in 0..u64::from(messages) {
                assert!(packet.fits(8), "{call} of {messages}");
                let header = Header::new(Kind::Request, 7, call, 8);
                packet.push(header, &[1; 8]);
            }
            assert!(!packet.fits(0), "{messages}");
        }
    }

    #[test]
    fn what_fills_all_the_room_fits() {
        for packet_bytes in [256, 1000, 1024, 4096] {
            let mut packet = Packet::new(packet_bytes);
            let header = |length: usize| Header {
                length: length as u32,
                handler: 7,
                kind: Kind::Response,
                call: 1,
            };
            packet.push(header(5), &[1; 5]);
            let room = packet.space().len();
            packet.commit(header(room));
            assert!(packet.bytes().len() <= packet_bytes, "{packet_bytes}");
            assert!(packet.space().is_empty(), "{packet_bytes}");
        }
    }

    #[test]
    fn another_version_is_no_head() {
        let head = Head {
            cookie: 1,
            session: 2,
            messages: 3,
            wants_datagrams: false,
        };
        for wants_datagrams in [false, true] {
            let head = Head {
                wants_datagrams,
                ..head
            };
            assert_eq!(Head::read(&head.encode()), Some(head));
        }
        let mut bytes = head.encode();
        bytes[11] = 9;
        assert_eq!(Head::read(&bytes), None);
    }
}
