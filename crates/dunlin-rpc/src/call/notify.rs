//! The notification that a writer of a region sends to its owner: the request to the handler [`NOTIFY`].
//!
//! ```text
//! value u32 | offset u64 | length u64 | name of the region
//! ```

use crate::HandlerId;

/// The handler of region owners that receives notifications.
pub(crate) const NOTIFY: HandlerId = HandlerId::MAX - 6;
const NUMBERS: usize = 20;

/// A notification; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice<'a> {
    pub(crate) region: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) value: u32,
}

impl<'a> Notice<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NUMBERS + self.region.len());
        bytes.extend_from_slice(&self.value.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(self.region);
        bytes
    }

    /// Decodes what a peer wrote.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (value, rest) = bytes.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (length, region) = rest.split_first_chunk()?;
        Some(Self {
            region,
            offset: u64::from_le_bytes(*offset),
            length: u64::from_le_bytes(*length),
            value: u32::from_le_bytes(*value),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_notice_arrives_as_it_was_said_and_shorter_ones_are_none() {
        let said = Notice {
            region: b"table",
            offset: 1 << 40,
            length: 3,
            value: u32::MAX,
        };
        let bytes = said.encode();
        assert_eq!(Notice::decode(&bytes), Some(said));
        for length in 0..NUMBERS {
            assert_eq!(Notice::decode(&bytes[..length]), None);
        }
    }
}
