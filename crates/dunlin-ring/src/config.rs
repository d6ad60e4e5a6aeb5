//! The configuration of a ring, which must be the same on both sides.

use crate::design::{Batching, Design, Layout};
use crate::framing::{prefix, suffix, Framing, HEADER_BYTES};

/// Length of a cache line in bytes.
pub const LINE_BYTES: usize = 64;

/// The configuration of a ring, which must be the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The point in the design space; by default [`Design::RB2`].
    pub design: Design,
    /// N: number of slots, a power of two from 4 to 2^20; by default 128, as in the paper's evaluation.
    pub slots: usize,
    /// Bytes of a slot, a multiple of 8; by default 64. Slots that are multiples of 64 do not share a cache line.
    /// Designs without slots have an array of the same total length.
    pub slot_bytes: usize,
    /// How the length of a message is encoded; by default in a header.
    pub framing: Framing,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            design: Design::RB2,
            slots: 128,
            slot_bytes: LINE_BYTES,
            framing: Framing::Header,
        }
    }
}

impl RingConfig {
    /// Number of slots that [`RingConfig::for_messages`] and [`RingConfig::for_records`] choose: the paper's 128, or
    /// fewer, down to 16, where the array would be longer than 32 MiB. A longer array is no longer in any cache when
    /// the ring wraps around, so its length gains nothing.
    pub fn usual_slots(slot_bytes: usize) -> usize {
        const MOST: usize = 32 << 20;
        let fit = (MOST / slot_bytes.max(1)).max(16);
        128.min(1 << fit.ilog2())
    }

    /// For messages of up to `bytes`, one per slot. Where slots are WRITTEN in multiples of eight they need not be
    /// whole cache lines, because eight of them together are: 64 bytes and their header take 72, not 128.
    pub fn for_messages(design: Design, bytes: usize) -> Self {
        let by_eights = match design.batching {
            Batching::Adaptive {
                advance_slots,
                transmit_slots,
                ..
            } => advance_slots % 8 == 0 && transmit_slots % 8 == 0,
            Batching::Off | Batching::InFlight { .. } => false,
        };
        let multiple = if by_eights { 8 } else { LINE_BYTES };
        let slot_bytes = (HEADER_BYTES + bytes).next_multiple_of(multiple).max(16);
        Self {
            design,
            slots: Self::usual_slots(slot_bytes),
            slot_bytes,
            ..Self::default()
        }
    }

    /// For messages of exactly `bytes`, one per slot, without headers where the design does not need them: the slot
    /// size is the message size, as in the paper's evaluation.
    pub fn for_records(design: Design, bytes: usize) -> Self {
        let framing = Framing::Fixed(bytes);
        let extra = prefix(&design, framing) + suffix(&design);
        // Only the list does not allow a message to span slots.
        let extra = if design.layout == Layout::LinkedSlots {
            extra
        } else {
            0
        };
        let slot_bytes = (bytes + extra).max(1).next_multiple_of(LINE_BYTES);
        Self {
            design,
            slots: Self::usual_slots(slot_bytes),
            slot_bytes,
            framing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_large_messages_has_fewer_slots() {
        let slots = |bytes| RingConfig::for_records(Design::RB2, bytes).slots;
        assert_eq!(
            [64, 1 << 18, 1 << 20, 1 << 26].map(slots),
            [128, 128, 32, 16]
        );
    }
}
