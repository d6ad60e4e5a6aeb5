//! The reliable number of a WRITE: 1 bit of hint, message and offset, in the 32 bits of immediate data (Flor A.1.1).

/// Flor's RN of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteNumber {
    /// Set on the last work request that the congestion window allows: the peer acknowledges it immediately.
    pub hint: bool,
    /// Flor's MID: the message, counted by the sender; wraps.
    pub message: u32,
    /// Flor's OFF: the offset of the chunk in the message, in units.
    pub offset_units: u32,
}

/// How the 31 bits besides the hint are divided between message and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLayout {
    offset_bits: u32,
}

/// A layout that leaves too few bits for one of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid number of chunk offset bits {0}: it must be from 1 to {max}, so that {min} bits remain to tell messages \
     apart",
    max = WriteLayout::MAX_OFFSET_BITS,
    min = 31 - WriteLayout::MAX_OFFSET_BITS
)]
pub struct LayoutError(pub u32);

impl WriteLayout {
    /// The paper's layout: 21 bits for the message, 10 bits for the offset.
    pub const PAPER: Self = Self { offset_bits: 10 };
    /// With more bits for the offset there would be fewer than 4096 messages, and message numbers would soon be reused.
    pub const MAX_OFFSET_BITS: u32 = 19;

    /// A layout for longer messages: "users can allocate more bits for chunk offset".
    ///
    /// # Errors
    /// When one of the numbers would have too few bits.
    pub const fn new(offset_bits: u32) -> Result<Self, LayoutError> {
        if offset_bits == 0 || offset_bits > Self::MAX_OFFSET_BITS {
            return Err(LayoutError(offset_bits));
        }
        Ok(Self { offset_bits })
    }

    /// Number of message numbers.
    pub const fn messages(self) -> u32 {
        1 << (31 - self.offset_bits)
    }

    /// Maximum length of a message in units.
    pub const fn max_units(self) -> u32 {
        1 << self.offset_bits
    }

    /// Encodes a number as immediate data. Numbers beyond the layout lose their upper bits.
    pub const fn encode(self, number: WriteNumber) -> u32 {
        let message = number.message % self.messages();
        let offset_units = number.offset_units % self.max_units();
        ((number.hint as u32) << 31) | (message << self.offset_bits) | offset_units
    }

    /// Decodes immediate data. Any 32 bits decode; the receiver checks whether there is such a message.
    pub const fn decode(self, immediate: u32) -> WriteNumber {
        WriteNumber {
            hint: immediate >> 31 != 0,
            message: (immediate >> self.offset_bits) % self.messages(),
            offset_units: immediate % self.max_units(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_layout_reaches_4_mib_with_units_of_4_kib() {
        assert_eq!(WriteLayout::PAPER.max_units() * 4096, 4 << 20);
        assert_eq!(WriteLayout::PAPER.messages(), 1 << 21);
        let number = WriteNumber {
            hint: true,
            message: 1,
            offset_units: 2,
        };
        assert_eq!(WriteLayout::PAPER.encode(number), 0x8000_0402);
    }

    #[test]
    fn a_layout_without_room_is_refused() {
        assert_eq!(WriteLayout::new(0), Err(LayoutError(0)));
        assert_eq!(WriteLayout::new(20), Err(LayoutError(20)));
        assert!(WriteLayout::new(19).is_ok());
    }

    proptest! {
        #[test]
        fn any_immediate_is_a_number_and_comes_back(immediate in any::<u32>(), bits in 1..=WriteLayout::MAX_OFFSET_BITS) {
            let layout = WriteLayout::new(bits).unwrap();
            let number = layout.decode(immediate);
            prop_assert!(number.message < layout.messages() && number.offset_units < layout.max_units());
            prop_assert_eq!(layout.encode(number), immediate);
        }
    }
}
