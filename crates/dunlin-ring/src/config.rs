//! What a ring is made with: both sides say the same.

use crate::design::{Batching, Design, Layout};
use crate::framing::{prefix, suffix, Framing, HEADER_BYTES};

/// A cache line, in bytes.
pub const LINE_BYTES: usize = 64;

/// How a ring is made. Both sides say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The point in the design space; [`Design::RB2`].
    pub design: Design,
    /// N: slots of the ring, a power of two from 4 to 2^20; 128, as in the paper's evaluation.
    pub slots: usize,
    /// Bytes of a slot, a multiple of 8; 64. Slots that are multiples of 64 share no cache line. Designs without slots
    /// have an array of as many bytes.
    pub slot_bytes: usize,
    /// How messages tell their length; a header.
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
    /// How many slots [`RingConfig::for_messages`] and [`RingConfig::for_records`] choose: the paper's 128, and fewer
    /// where they would be more than 32 MiB, down to 16. A larger array is not in any cache when the ring comes round,
    /// and gains nothing by its length.
    pub fn usual_slots(slot_bytes: usize) -> usize {
        const MOST: usize = 32 << 20;
        let fit = (MOST / slot_bytes.max(1)).max(16);
        128.min(1 << fit.ilog2())
    }

    /// For messages of up to `bytes`, one to a slot. Where slots are WRITTEN by multiples of eight they need not be
    /// whole cache lines, because eight of them are: 64 bytes and their header take 72, not 128.
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

    /// For messages of exactly `bytes`, one to a slot, without headers where the design needs none: slot size is
    /// message size, as in the paper's evaluation.
    pub fn for_records(design: Design, bytes: usize) -> Self {
        let framing = Framing::Fixed(bytes);
        let extra = prefix(&design, framing) + suffix(&design);
        // Only a list cannot let a message span slots.
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
