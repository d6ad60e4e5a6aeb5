//! The messages of an open batch that have short headers, one after the other: nearly all that a ring carries.
//!
//! The reader's position is kept here, in registers, and returned to the [`super::inbox::Inbox`] on drop, also when the
//! receiver of a message panics.

use super::inbox::{ends_beyond, too_long};
use super::message::{padded, ShortHeader, ShortKind};
use super::ChannelError;

/// An iterator over these messages; see the module.
pub(crate) struct ShortMessages<'a> {
    /// The unread rest of the private copy of the batch, and its number of messages.
    pub(super) rest: &'a [u8],
    pub(super) left: u32,
    /// Number of bytes from the payload of the last taken message to the end of the batch.
    pub(super) behind_header: usize,
    /// Maximum length of a payload that an honest peer puts into the ring.
    pub(super) eager_bytes: usize,
    /// The end of the batch, and the state kept by the inbox.
    pub(super) end: usize,
    pub(super) at: &'a mut usize,
    pub(super) payload_at: &'a mut usize,
    pub(super) messages: &'a mut u32,
}

impl<'a> ShortMessages<'a> {
    /// Whether all messages are taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes the next message, which must exist, if it has a short header of this kind: returns the header and the
    /// payload.
    ///
    /// # Errors
    /// When it is not a message that this side accepts.
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
        // The last message may lack its padding.
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
