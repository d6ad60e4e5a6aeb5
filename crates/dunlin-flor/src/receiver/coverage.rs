//! Tracks which parts of a message have arrived: it is complete when all its units are covered (Flor A.1.1).

/// A chunk that is not part of the message: beyond its end, or not in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "chunk out of range: {bytes} bytes at unit {offset_units} of a message of {message_bytes} bytes, with units of \
     {unit_bytes}"
)]
pub struct OutOfMessage {
    /// Its offset according to the sender.
    pub offset_units: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Length of the message in bytes.
    pub message_bytes: u64,
    /// Length of a unit in bytes.
    pub unit_bytes: u32,
}

/// The units of one message.
#[derive(Debug)]
pub struct Coverage {
    message_bytes: u64,
    unit_bytes: u32,
    missing: u32,
    /// Where the next chunk begins if none is missing.
    next: u32,
    bits: Vec<u64>,
}

impl Coverage {
    /// For a message of which nothing has arrived. A message without bytes has one unit.
    pub fn new(message_bytes: u64, unit_bytes: u32) -> Self {
        let unit_bytes = unit_bytes.max(1);
        let units = message_bytes.div_ceil(unit_bytes.into()).max(1);
        Self {
            message_bytes,
            unit_bytes,
            missing: u32::try_from(units).unwrap_or(u32::MAX),
            next: 0,
            bits: vec![0; units.div_ceil(64) as usize],
        }
    }

    /// Whether all units have arrived.
    pub fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Whether a chunk with this offset arrives in order.
    pub fn is_next(&self, offset_units: u32) -> bool {
        offset_units == self.next
    }

    /// Records a chunk and returns how many of its units are new.
    ///
    /// # Errors
    /// When it is not part of the message; nothing is then recorded.
    pub fn cover(&mut self, offset_units: u32, bytes: u64) -> Result<u32, OutOfMessage> {
        let unit = u64::from(self.unit_bytes);
        let end = (u64::from(offset_units) * unit).saturating_add(bytes);
        let whole = bytes % unit == 0 || end == self.message_bytes;
        let empty = bytes == 0 && self.message_bytes != 0;
        if end > self.message_bytes || !whole || empty {
            return Err(OutOfMessage {
                offset_units,
                bytes,
                message_bytes: self.message_bytes,
                unit_bytes: self.unit_bytes,
            });
        }
        let units = bytes.div_ceil(unit).max(1) as u32;
        let mut new = 0;
        for at in offset_units..offset_units + units {
            let word = &mut self.bits[at as usize / 64];
            let bit = 1 << (at % 64);
            new += u32::from(*word & bit == 0);
            *word |= bit;
        }
        self.missing -= new;
        self.next = self.next.max(offset_units + units);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_whole_when_all_offsets_are_covered() {
        let mut coverage = Coverage::new(41_000, 4096);
        assert_eq!(coverage.cover(2, 8 * 4096), Ok(8));
        assert!(!coverage.is_next(0) && coverage.is_next(10));
        assert_eq!(coverage.cover(0, 4096), Ok(1));
        assert_eq!(coverage.cover(0, 2 * 4096), Ok(1));
        assert!(!coverage.is_whole());
        assert_eq!(coverage.cover(10, 40), Ok(1));
        assert!(coverage.is_whole());
        assert_eq!(coverage.cover(10, 40), Ok(0));
    }

    #[test]
    fn a_message_without_bytes_has_one_chunk() {
        let mut coverage = Coverage::new(0, 4096);
        assert!(!coverage.is_whole());
        assert_eq!(coverage.cover(0, 0), Ok(1));
        assert!(coverage.is_whole());
    }

    #[test]
    fn what_is_no_part_of_the_message_is_refused() {
        let mut coverage = Coverage::new(10_000, 4096);
        for (offset, bytes) in [
            (3, 1),
            (2, 4096),
            (0, 100),
            (0, 0),
            (2, 0),
            (u32::MAX, 4096),
            (1, u64::from(u32::MAX)),
        ] {
            assert!(coverage.cover(offset, bytes).is_err(), "{offset} {bytes}");
        }
        assert_eq!(coverage.missing, 3);
    }

    proptest! {
        #[test]
        fn hostile_chunks_never_make_a_message_whole_too_soon(
            message in 0_u64..100_000,
            chunks in prop::collection::vec((any::<u8>(), 0_u64..100_000), 0..60),
        ) {
            let mut coverage = Coverage::new(message, 1024);
            let mut covered = vec![false; message.div_ceil(1024).max(1) as usize];
            for (offset, bytes) in chunks {
                if coverage.cover(offset.into(), bytes).is_ok() {
                    let units = bytes.div_ceil(1024).max(1) as usize;
                    covered[offset as usize..offset as usize + units].fill(true);
                }
                prop_assert_eq!(coverage.is_whole(), covered.iter().all(|unit| *unit));
            }
        }
    }
}
