//! The requests of a batch that has arrived, before the first of them is handled.

use super::message::{padded, ShortHeader, ShortKind};
use crate::HandlerId;

/// Short requests that have arrived together, in order, each with its handler and its payload, so that a server can
/// look ahead ([`crate::ServerBuilder::prefetch`]). It ends at a message of another kind.
#[derive(Clone, Debug)]
pub struct Upcoming<'a> {
    content: &'a [u8],
    messages: u32,
}

impl<'a> Upcoming<'a> {
    /// From the private copy of a batch, whose messages are not checked yet.
    pub(super) fn new(content: &'a [u8], messages: u32) -> Self {
        Self { content, messages }
    }
}

impl<'a> Iterator for Upcoming<'a> {
    type Item = (HandlerId, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.messages = self.messages.checked_sub(1)?;
        let (header, rest) = self.content.split_first_chunk()?;
        let header = ShortHeader::read(ShortKind::Request, *header)?;
        let payload = rest.get(..header.length())?;
        // The last message may lack its padding.
        self.content = rest.get(padded(payload.len())..).unwrap_or_default();
        Some((header.handler(), payload))
    }
}
