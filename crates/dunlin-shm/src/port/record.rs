//! Records: what travels through a port. Two words of header and the bytes, padded to 16.

/// Bytes of a record's header, and the unit that records are padded to.
pub(crate) const RECORD_HEADER_BYTES: u64 = 16;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A SEND, or a piece of one.
    Send,
    /// A SEND with immediate data.
    SendImmediate,
    /// The arrival of a WRITE with immediate data, whose bytes are in place already.
    WriteImmediate,
    /// A SEND that was longer than its RECEIVE; nothing of it is here.
    TooLong,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    /// Wakes a receiver that asked for solicited messages only.
    pub(crate) solicited: bool,
    /// It begins a message; what has come of an earlier one that was not finished is dropped.
    pub(crate) first: bool,
    /// More pieces of the same message follow.
    pub(crate) more: bool,
    /// Bytes in this record.
    pub(crate) bytes: u32,
    /// Bytes of the whole message.
    pub(crate) total: u32,
    pub(crate) immediate: u32,
}

impl Record {
    /// The two words.
    #[inline]
    pub(crate) fn encode(self) -> [u64; 2] {
        let kind = match self.kind {
            RecordKind::Send => 1u64,
            RecordKind::SendImmediate => 2,
            RecordKind::WriteImmediate => 3,
            RecordKind::TooLong => 4,
        };
        [
            kind | u64::from(self.solicited) << 8
                | u64::from(self.more) << 9
                | u64::from(self.first) << 10
                | u64::from(self.bytes) << 32,
            u64::from(self.total) | u64::from(self.immediate) << 32,
        ]
    }

    /// Reads the two words; `None` when no sender of ours writes such words.
    #[inline]
    pub(crate) fn decode(words: [u64; 2]) -> Option<Self> {
        let kind = match words[0] & 0xff {
            1 => RecordKind::Send,
            2 => RecordKind::SendImmediate,
            3 => RecordKind::WriteImmediate,
            4 => RecordKind::TooLong,
            _ => return None,
        };
        Some(Self {
            kind,
            solicited: words[0] & 1 << 8 != 0,
            more: words[0] & 1 << 9 != 0,
            first: words[0] & 1 << 10 != 0,
            bytes: (words[0] >> 32) as u32,
            total: words[1] as u32,
            immediate: (words[1] >> 32) as u32,
        })
    }

    /// Bytes that the record takes in the ring.
    #[inline]
    pub(crate) fn ring_bytes(self) -> u64 {
        RECORD_HEADER_BYTES + u64::from(self.bytes).next_multiple_of(RECORD_HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for kind in [
            RecordKind::Send,
            RecordKind::SendImmediate,
            RecordKind::WriteImmediate,
            RecordKind::TooLong,
        ] {
            for flags in 0..8 {
                let record = Record {
                    kind,
                    solicited: flags & 1 != 0,
                    more: flags & 2 != 0,
                    first: flags & 4 != 0,
                    bytes: u32::MAX,
                    total: 0x1234_5678,
                    immediate: 0xfedc_ba98,
                };
                assert_eq!(Record::decode(record.encode()), Some(record));
                assert_eq!(record.ring_bytes(), 16 + (1 << 32));
            }
        }
        assert_eq!(Record::decode([0, 0]), None);
    }
}
