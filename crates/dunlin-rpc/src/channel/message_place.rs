//! The place of one message in a batch that is being filled: only its holder can add a message to the batch.

use super::message::{is_short, padded, Header, Kind, HEADER_BYTES, SHORT_BYTES};
use super::short_copy::copy;

/// The place for a message's header and payload; the message is in the batch once it was put or committed.
pub(crate) struct MessagePlace<'a> {
    rest: &'a mut [u8],
    /// The end of the batch's content, and its number of messages.
    end: &'a mut usize,
    messages: &'a mut u32,
}

impl<'a> MessagePlace<'a> {
    /// The place after the present content of the batch.
    #[inline(always)]
    pub(super) fn new(batch: &'a mut [u8], end: &'a mut usize, messages: &'a mut u32) -> Self {
        Self {
            rest: &mut batch[*end..],
            end,
            messages,
        }
    }

    /// Adds a message to the batch.
    ///
    /// # Panics
    /// When it is longer than the batch allows.
    #[inline(always)]
    pub(crate) fn put(self, header: Header, payload: &[u8]) {
        match header.short() {
            Some(short) => self.write(short, payload),
            None => self.put_long(header.kind, header.handler, header.call, payload),
        }
    }

    /// Takes the parts of the header separately: for a short one the caller keeps them in registers.
    #[cold]
    fn put_long(self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        let header = Header::new(kind, handler, call, payload.len());
        self.write(header.encode(), payload);
    }

    #[inline(always)]
    fn write<const N: usize>(self, header: [u8; N], payload: &[u8]) {
        let rest = self.rest.split_first_chunk_mut();
        let (place, rest) = rest.expect("room for a header");
        *place = header;
        copy(&mut rest[..payload.len()], payload);
        *self.end += N + padded(payload.len());
        *self.messages += 1;
    }

    /// The place where up to `most` bytes of payload may be written before the whole header is known.
    ///
    /// # Panics
    /// When that is more than the batch allows.
    #[inline(always)]
    pub(crate) fn payload(&mut self, most: usize) -> &mut [u8] {
        &mut self.rest[front(most)..][..most]
    }

    /// As [`MessagePlace::payload`], if the message is committed by another [`MessagePlace`], or not at all.
    #[inline(always)]
    pub(crate) fn into_payload(self, most: usize) -> &'a mut [u8] {
        &mut self.rest[front(most)..][..most]
    }

    /// Adds the message whose payload is in [`MessagePlace::payload`] of `most` bytes to the batch.
    ///
    /// # Panics
    /// When it is longer than the batch allows.
    #[inline(always)]
    pub(crate) fn commit(self, header: Header, most: usize) {
        match header.short() {
            Some(short) if front(most) == SHORT_BYTES => {
                let place = self.rest.first_chunk_mut();
                *place.expect("room for a header") = short;
                *self.end += SHORT_BYTES + padded(header.length as usize);
                *self.messages += 1;
            }
            _ => self.commit_long(
                header.kind,
                header.handler,
                header.call,
                header.length,
                most,
            ),
        }
    }

    #[cold]
    fn commit_long(self, kind: Kind, handler: u16, call: u64, length: u32, most: usize) {
        let (length, front) = (length as usize, front(most));
        if front != HEADER_BYTES {
            // The payload was placed for a short header, and the call's name does not fit into one.
            self.rest.copy_within(front..front + length, HEADER_BYTES);
        }
        let header = Header::new(kind, handler, call, length);
        self.rest[..HEADER_BYTES].copy_from_slice(&header.encode());
        *self.end += HEADER_BYTES + padded(length);
        *self.messages += 1;
    }
}

/// The offset of a payload of up to `most` bytes that is written before its header: after a short header, if it cannot
/// be too long for one.
#[inline(always)]
fn front(most: usize) -> usize {
    match is_short(0, most) {
        true => SHORT_BYTES,
        false => HEADER_BYTES,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_read_whatever_room_its_payload_was_given() {
        let (mut batch, mut end, mut messages) = ([0; 40_000], 8, 0);
        let cases = [
            // A short header, a long one with room for it before the payload, and one that moves the payload.
            (3, 5, 100, SHORT_BYTES),
            (3, 5, 10_000, HEADER_BYTES),
            (3, 9_000, 10_000, HEADER_BYTES),
            (1 << 40, 5, 100, HEADER_BYTES),
            (4, 0, 0, SHORT_BYTES),
        ];
        for (number, (call, length, most, header_bytes)) in cases.into_iter().enumerate() {
            let begin = end;
            let mut place = MessagePlace::new(&mut batch, &mut end, &mut messages);
            let payload = vec![number as u8 + 1; length];
            place.payload(most)[..length].copy_from_slice(&payload);
            let header = Header::new(Kind::Response, 0, call, length);
            place.commit(header, most);
            let message = &batch[begin..end];
            assert_eq!(Header::first(message), Some((header, header_bytes)));
            assert_eq!(message[header_bytes..][..length], payload[..]);
            assert_eq!(message.len(), header_bytes + padded(length));
        }
        assert_eq!(messages, cases.len() as u32);
    }
}
