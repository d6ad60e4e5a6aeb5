//! The memory layout of a ring, computed once from its configuration.

use crate::config::RingConfig;
use crate::design::{Batching, HeadSync, Layout};
use crate::error::{ConfigError, LengthLimit};
use crate::framing::{prefix, suffix, Framing, HEADER_BYTES};
use crate::words::{Words, APART, PACKED};

/// Minimum and maximum number of slots.
const SLOTS: std::ops::RangeInclusive<usize> = 4..=1 << 20;
/// Maximum length of an array in bytes: positions in it stay far from overflow, and a mistake does not take all memory.
const ARRAY_BYTES_MAX: usize = 1 << 34;
/// Back-to-back messages begin on multiples of this, so that their headers are aligned words.
const BACK_TO_BACK_BYTES: usize = 8;
/// Distance in slots between neighbours in the list, since nodes from a pool are not adjacent. Odd, so that all slots
/// are visited.
const LINK_STRIDE: u64 = 5;

/// The dimensions of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a unit: a slot, or eight bytes where messages are back to back. Pointers count units.
    pub(crate) unit_bytes: usize,
    /// Number of units, a power of two.
    pub(crate) units: u64,
    /// A position times this, modulo the number of units, is the index in the array: 1, except for a list.
    stride: u64,
    /// Number of bytes in front of a payload.
    pub(crate) prefix: usize,
    /// Number of bytes behind a payload.
    pub(crate) suffix: usize,
    /// The only message length, if there is only one, and its units.
    fixed: Option<(usize, u64)>,
    /// Maximum payload length.
    pub(crate) longest: usize,
    /// α, β and γ in units.
    pub(crate) advance: u64,
    pub(crate) transmit: u64,
    pub(crate) push: u64,
    /// γ of a pull in units; unreachable where the head is pushed.
    pub(crate) pull: u64,
    /// Whether a message may take several units.
    pub(crate) spans: bool,
    /// Lengths of messages that take one unit: the minimum, and the maximum minus the minimum.
    singles: (usize, usize),
    pub(crate) words: Words,
}

impl RingConfig {
    /// Checks whether a ring can be created with it, without regard to any device.
    ///
    /// # Errors
    /// When it contradicts itself or a value is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        Geometry::new(self).map(drop)
    }
}

impl Geometry {
    /// Checks a configuration and computes its dimensions.
    pub(crate) fn new(config: &RingConfig) -> Result<Self, ConfigError> {
        let RingConfig {
            design,
            slots,
            slot_bytes,
            framing,
        } = config;
        design.check()?;
        let range = |what, value, range| Err(ConfigError::Range { what, value, range });
        if !slots.is_power_of_two() || !SLOTS.contains(slots) {
            return range(
                "the number of slots",
                *slots,
                "a power of two from 4 to 2^20",
            );
        }
        if *slot_bytes < 2 * HEADER_BYTES || slot_bytes % HEADER_BYTES != 0 {
            return range(
                "the size of a slot",
                *slot_bytes,
                "a multiple of 8, and at least 16",
            );
        }
        let array = slots.checked_mul(*slot_bytes);
        let Some(array) = array.filter(|&bytes| bytes <= ARRAY_BYTES_MAX) else {
            return range(
                "the size of a slot",
                *slot_bytes,
                "small enough for 16 GiB in all slots",
            );
        };
        let (unit_bytes, units) = match design.layout {
            Layout::BackToBack => {
                let units = (array / BACK_TO_BACK_BYTES).next_power_of_two();
                (BACK_TO_BACK_BYTES, units as u64)
            }
            Layout::SlotToSlot | Layout::LinkedSlots => (*slot_bytes, *slots as u64),
        };
        let in_units = |slots: u32| u64::from(slots) * (*slot_bytes / unit_bytes) as u64;
        // No threshold may wait for more than is possible: α for what fits beside unread messages; and γ is limited so
        // that at most a quarter of the ring is free without the producer knowing.
        let (advance, transmit) = match design.batching {
            // Without slot transmission, slots are sent together with the tail.
            Batching::Off | Batching::InFlight { .. } => (1, u64::MAX),
            Batching::Adaptive {
                advance_slots,
                transmit_slots,
                sync_ahead,
                ..
            } => {
                let advance = in_units(advance_slots).min(units / 2).max(1);
                let transmit = in_units(transmit_slots).min(advance).max(1);
                (advance, if sync_ahead { transmit } else { u64::MAX })
            }
        };
        let pull = match design.head_sync {
            HeadSync::LazyPull => in_units(design.push_slots).min(units).max(1),
            HeadSync::LazyPush | HeadSync::ActivePush => u64::MAX,
        };
        let push = match design.head_sync {
            HeadSync::LazyPush => in_units(design.push_slots).min(units / 4).max(1),
            HeadSync::LazyPull | HeadSync::ActivePush => 1,
        };
        let spans = design.layout != Layout::LinkedSlots;
        // A message that would extend over the end of the array begins at its start instead, and skips fewer units than
        // it takes. It must fit once the consumer has read everything, even if it has not pushed the last of it.
        let longest_units = if spans { (units - push).div_ceil(2) } else { 1 };
        let (prefix, suffix) = (prefix(design, *framing), suffix(design));
        let mut longest = (longest_units as usize * unit_bytes)
            .saturating_sub(prefix + suffix)
            .min(u32::MAX as usize - 1);
        let mut fixed = None;
        if let Framing::Fixed(bytes) = *framing {
            if bytes == 0 || bytes > longest {
                return range(
                    "the length of a message",
                    bytes,
                    "at least 1, and small enough to fit into a good third of the ring",
                );
            }
            let units = (prefix + bytes + suffix).div_ceil(unit_bytes) as u64;
            fixed = Some((bytes, units));
            longest = bytes;
        }
        let most = longest.min(unit_bytes.saturating_sub(prefix + suffix));
        let singles = match fixed {
            Some((bytes, 1)) => (bytes, 0),
            // No message is this long.
            Some(_) => (usize::MAX, 0),
            None if prefix + suffix > unit_bytes => (usize::MAX, 0),
            None => (0, most),
        };
        Ok(Self {
            singles,
            unit_bytes,
            units,
            stride: if spans { 1 } else { LINK_STRIDE },
            prefix,
            suffix,
            fixed,
            longest,
            advance,
            transmit,
            push,
            pull,
            spans,
            words: if design.cache_lines { APART } else { PACKED },
        })
    }

    /// Length of the array in bytes.
    #[inline(always)]
    pub(crate) fn array_bytes(&self) -> usize {
        self.units as usize * self.unit_bytes
    }

    /// The index in the array of a position.
    #[inline(always)]
    pub(crate) fn index(&self, position: u64) -> u64 {
        position.wrapping_mul(self.stride) & (self.units - 1)
    }

    /// Offset in bytes of a position from the start of the array.
    #[inline(always)]
    pub(crate) fn offset(&self, position: u64) -> usize {
        self.index(position) as usize * self.unit_bytes
    }

    /// Number of units of a message; the length has been checked.
    #[inline(always)]
    pub(crate) fn units_of(&self, length: usize) -> u64 {
        if let Some((_, units)) = self.fixed {
            return units;
        }
        let bytes = self.prefix + length + self.suffix;
        if bytes <= self.unit_bytes {
            1
        } else {
            bytes.div_ceil(self.unit_bytes) as u64
        }
    }

    /// Number of units from a position to the end of the array that a message of `units` must skip; zero if it fits
    /// before the end.
    #[inline(always)]
    pub(crate) fn skip(&self, position: u64, units: u64) -> u64 {
        if units == 1 {
            return 0;
        }
        let left = self.units - self.index(position);
        if units > left {
            left
        } else {
            0
        }
    }

    /// Whether a message of this length can be sent and takes one unit.
    #[inline(always)]
    pub(crate) fn is_single(&self, length: usize) -> bool {
        length.wrapping_sub(self.singles.0) <= self.singles.1
    }

    /// Length of the longest message that takes one unit.
    #[inline(always)]
    pub(crate) fn longest_single(&self) -> usize {
        self.singles.1
    }

    /// Whether messages may be adjacent, each in a slot of its own.
    pub(crate) fn makes_runs(&self) -> bool {
        let single = self.fixed.is_none_or(|(_, units)| units == 1);
        single && self.spans && self.unit_bytes > BACK_TO_BACK_BYTES
    }

    /// Whether each message is preceded by a header.
    #[inline(always)]
    pub(crate) fn has_header(&self) -> bool {
        self.prefix != 0
    }

    /// The only message length, if there is only one.
    #[inline(always)]
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        self.fixed.map(|(bytes, _)| bytes)
    }

    /// The message lengths that can be sent.
    pub(crate) fn limit(&self) -> LengthLimit {
        match self.fixed {
            Some((bytes, _)) => LengthLimit::Exactly(bytes),
            None => LengthLimit::AtMost(self.longest),
        }
    }

    /// Whether a message of `length` bytes can be sent at all.
    #[inline(always)]
    pub(crate) fn carries(&self, length: usize) -> bool {
        match self.fixed {
            Some((bytes, _)) => length == bytes,
            None => length <= self.longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LINE_BYTES;
    use crate::design::Design;

    #[test]
    fn the_papers_ring_of_records() {
        let geometry = Geometry::new(&RingConfig::for_records(Design::RB2, 64)).unwrap();
        assert_eq!((geometry.unit_bytes, geometry.units), (64, 128));
        assert_eq!(
            (geometry.advance, geometry.transmit, geometry.push),
            (32, 16, 32)
        );
        assert_eq!((geometry.prefix, geometry.suffix), (0, 0));
        assert_eq!(geometry.units_of(64), 1);
        assert_eq!(geometry.words.array % 64, 0);
    }

    #[test]
    fn a_message_and_its_header_take_no_more_than_they_need() {
        let config = RingConfig::for_messages(Design::RB2, 64);
        assert_eq!(config.slot_bytes, 72);
        let geometry = Geometry::new(&config).unwrap();
        assert_eq!((geometry.units_of(64), geometry.units_of(65)), (1, 2));
        // What is WRITTEN together begins and ends on a line boundary.
        let batch = geometry.transmit as usize * geometry.unit_bytes;
        assert_eq!(batch % LINE_BYTES, 0);
        let alone = RingConfig::for_messages(Design::RB2_LATENCY, 64);
        assert_eq!(alone.slot_bytes, 128);
    }

    #[test]
    fn messages_that_would_run_over_the_end_begin_at_the_start() {
        let geometry = Geometry::new(&RingConfig::default()).unwrap();
        assert_eq!(geometry.units_of(56), 1);
        assert_eq!(geometry.units_of(57), 2);
        assert_eq!(geometry.skip(126, 2), 0);
        assert_eq!(geometry.skip(127, 2), 1);
        assert_eq!(geometry.skip(127, 1), 0);
        assert_eq!(geometry.skip(128 + 120, 9), 8);
    }

    #[test]
    fn a_list_visits_every_slot() {
        let geometry = Geometry::new(&RingConfig::for_records(Design::MVAPICH, 64)).unwrap();
        let mut seen: Vec<u64> = (0..geometry.units).map(|p| geometry.index(p)).collect();
        assert_ne!(seen[1], 1);
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, &index)| i as u64 == index));
        assert!(!geometry.carries(128));
    }

    #[test]
    fn the_longest_message_finds_room_in_a_ring_that_was_read() {
        for design in Design::ALL {
            for slots in [4, 8, 128, 4096] {
                let config = RingConfig {
                    slots,
                    ..RingConfig::for_messages(design, 100)
                };
                let geometry = Geometry::new(&config).unwrap();
                let units = geometry.units_of(geometry.longest);
                for position in 0..geometry.units {
                    let needed = geometry.skip(position, units) + units;
                    // One unit is never used, and γ - 1 may not have been pushed.
                    assert!(needed < geometry.units - (geometry.push - 1), "{config:?}");
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for config in [
            RingConfig {
                slots: 100,
                ..RingConfig::default()
            },
            RingConfig {
                slots: 2,
                ..RingConfig::default()
            },
            RingConfig {
                slot_bytes: 8,
                ..RingConfig::default()
            },
            RingConfig {
                slot_bytes: 68,
                ..RingConfig::default()
            },
            RingConfig {
                slot_bytes: 1 << 40,
                ..RingConfig::default()
            },
            RingConfig {
                framing: Framing::Fixed(0),
                ..RingConfig::default()
            },
            RingConfig {
                framing: Framing::Fixed(1 << 20),
                ..RingConfig::default()
            },
        ] {
            assert!(Geometry::new(&config).is_err(), "{config:?}");
        }
    }
}
