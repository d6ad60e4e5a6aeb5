//! The messages that were taken out of the ring together, in private memory: the peer may change the ring at any time.

use dunlin_ring::Message;

use crate::channel::message::{Header, HEADER_BYTES};

/// Maximum number of messages taken together.
pub(super) const MOST: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Taken {
    /// Maximum length of a message.
    longest: usize,
    /// The messages, one behind the other, each from a multiple of 8, up to `end`.
    bytes: Box<[u8]>,
    end: usize,
    lengths: [u32; MOST],
    count: usize,
    /// Number of messages that were read, and where the next begins.
    read: usize,
    at: usize,
    /// Where the payload of the message that was read last begins.
    payload_at: usize,
}

impl Taken {
    /// For a message of at most `longest` bytes, and [`MOST`] behind it that take one slot each.
    pub(super) fn new(longest: usize, slot_bytes: usize) -> Self {
        Self {
            longest,
            bytes: vec![0; longest + MOST * slot_bytes].into(),
            end: 0,
            lengths: [0; MOST],
            count: 0,
            read: 0,
            at: 0,
            payload_at: 0,
        }
    }

    /// Whether all messages were read.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.read == self.count
    }

    /// Number of bytes of all messages.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        self.end
    }

    /// Makes place for other messages.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.end, self.count, self.read, self.at) = (0, 0, 0, 0);
    }

    /// Copies a message, one of at most [`MOST`] since the last [`Taken::clear`]. `false`: it is too long.
    #[inline(always)]
    pub(super) fn copy(&mut self, message: Message<'_>) -> bool {
        let length = message.len();
        if length > self.longest {
            return false;
        }
        let copy = &mut self.bytes[self.end..][..length];
        message.read(0, copy);
        self.lengths[self.count] = length as u32;
        self.count += 1;
        self.end += length.next_multiple_of(8);
        true
    }

    /// Reads the next message, which must exist.
    ///
    /// # Errors
    /// When it is not one that this channel accepts.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Header, &'static str> {
        let length = self.lengths[self.read] as usize;
        let message = &self.bytes[self.at..][..length];
        self.read += 1;
        self.payload_at = self.at + HEADER_BYTES;
        self.at += length.next_multiple_of(8);
        parse(message)
    }

    /// The payload of the message that was read last.
    ///
    /// # Panics
    /// When `header` belongs to another message.
    #[inline(always)]
    pub(super) fn payload(&self, header: Header) -> &[u8] {
        &self.bytes[self.payload_at..][..header.length as usize]
    }
}

/// Decodes the header of a message.
#[inline(always)]
fn parse(message: &[u8]) -> Result<Header, &'static str> {
    let (header, payload) = message
        .split_first_chunk()
        .ok_or("a message without a header")?;
    let header = Header::read(header).ok_or("a message of an unknown kind")?;
    match header.length as usize == payload.len() {
        true => Ok(header),
        false => Err("a message whose length is not that of its payload"),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_whole(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(header) = parse(&bytes) {
                prop_assert_eq!(HEADER_BYTES + header.length as usize, bytes.len());
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }
}
