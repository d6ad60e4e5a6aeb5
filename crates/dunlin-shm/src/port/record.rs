//! Records, which carry messages through a port: two words of header and the bytes, padded to 16.

/// Length of a record's header, and the unit to which records are padded.
pub(crate) const RECORD_HEADER_BYTES: u64 = 16;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A SEND, or a piece of one.
    Send,
    /// A SEND with immediate data.
    SendImmediate,
    /// The notification of a WRITE with immediate data, whose bytes are already in place.
    WriteImmediate,
    /// A SEND that was longer than its RECEIVE; it has no bytes here.
    TooLong,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    /// Whether it wakes a receiver that asked for solicited messages only.
    pub(crate) solicited: bool,
    /// Whether it begins a message; what has arrived of an earlier unfinished one is dropped.
    pub(crate) first: bool,
    /// Whether more pieces of the same message follow.
    pub(crate) more: bool,
    /// Length of this record's payload in bytes.
    pub(crate) bytes: u32,
    /// Length of the whole message in bytes.
    pub(crate) total: u32,
    pub(crate) immediate: u32,
}

impl Record {
    /// Encodes the two words.
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

    /// Decodes the two words; `None` if an honest sender would not write them.
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

    /// Number of bytes that the record takes in the ring.
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
