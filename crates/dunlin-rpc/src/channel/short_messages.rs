//! The messages of an open batch that have short headers, one after the other: nearly all that a ring carries.
//!
//! Where the reader has come is kept here, in registers, and goes back to the [`super::inbox::Inbox`] when this is
//! dropped, which it is as well when whoever is given a message panics.

use super::inbox::{ends_beyond, too_long};
use super::message::{padded, ShortHeader, ShortKind};
use super::ChannelError;

/// See the module.
pub(crate) struct ShortMessages<'a> {
    /// What is not read yet of the private copy of the batch, and the messages in it.
    pub(super) rest: &'a [u8],
    pub(super) left: u32,
    /// Bytes from the payload of the last message that was taken to the end of the batch.
    pub(super) behind_header: usize,
    /// Longest payload that an honest peer puts into the ring.
    pub(super) eager_bytes: usize,
    /// Where the batch ends, and what the inbox keeps of all this.
    pub(super) end: usize,
    pub(super) at: &'a mut usize,
    pub(super) payload_at: &'a mut usize,
    pub(super) messages: &'a mut u32,
}

impl<'a> ShortMessages<'a> {
    /// Whether all are taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes the next message, which there is, if it has a short header of this kind: that, and its payload.
    ///
    /// # Errors
    /// When what is there is no message that this side would accept.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        kind: ShortKind,
    ) -> Result<Option<(ShortHeader, &'a [u8])>, ChannelError> {
        let Some((header, behind)) = self.rest.split_first_chunk() else {
            return Ok(None);
        };
        let Some(header) = ShortHeader::read(kind, *header) else {
            return Ok(None);
        };
        let length = header.length();
        if length > self.eager_bytes {
            return Err(too_long());
        }
        let Some(payload) = behind.get(..length) else {
            return Err(ends_beyond());
        };
        self.behind_header = behind.len();
        // The last message may lack the bytes that fill it up.
        self.rest = behind.get(padded(length)..).unwrap_or_default();
        self.left -= 1;
        Ok(Some((header, payload)))
    }
}

impl Drop for ShortMessages<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.at = self.end - self.rest.len();
        *self.payload_at = self.end - self.behind_header;
        *self.messages = self.left;
    }
}
