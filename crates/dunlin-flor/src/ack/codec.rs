//! The acknowledgement packet (Flor Fig. 15): a header of 24 bytes and up to 32 numbers of 4 bytes, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | number of the queue pair whose work requests are acknowledged |
//! | 4..8 | bitmap: which of the numbers belong to SENDs |
//! | 8..16 | least global number in the packet |
//! | 16..24 | nanoseconds from the arrival of the last of them to this packet, T3' - T2; top bit: congestion was marked |
//! | 24.. | the numbers |
//!
//! The paper's text and its example contradict each other about the bitmap: here a set bit is a SEND, and the first
//! number has the highest bit. Its formula for the 32 bits of a global number is missing: here they are the distance
//! from the least one. It has no field for a congestion mark, which congestion control by ECN needs: here it is the top
//! bit of the delay, which no delay reaches.

use crate::number::GlobalNumber;

/// Length of the header in bytes.
pub const ACK_HEADER_BYTES: usize = 24;
/// Maximum number of numbers in a packet: the bits of the bitmap.
pub const ACK_NUMBERS: usize = 32;
/// Maximum length of a packet in bytes.
pub const MAX_ACK_BYTES: usize = ACK_HEADER_BYTES + 4 * ACK_NUMBERS;

/// The top bit of the delay, which marks congestion.
const MARKED: u64 = 1 << 63;

/// One number of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckedNumber {
    /// A SEND, by its global number.
    Send(GlobalNumber),
    /// A WRITE, by its reliable number, which was its immediate data.
    Write(u32),
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The queue pair, as its owner numbers it.
    pub queue_pair: u32,
    /// T3' - T2 of the last number.
    pub delay_ns: u64,
    /// Whether arrivals had been marked by a congested switch.
    pub marked: bool,
    numbers: [AckedNumber; ACK_NUMBERS],
    count: usize,
}

/// Why bytes are not a valid acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// The packet is too short, too long, or ends within a number.
    #[error(
        "invalid length of an acknowledgement: {0} bytes; the header has {ACK_HEADER_BYTES}, and each of 1 to \
         {ACK_NUMBERS} numbers 4"
    )]
    Length(usize),
    /// The bitmap has bits for numbers that are not in the packet.
    #[error("bitmap {bitmap:#010x} does not fit {count} numbers")]
    Bitmap {
        /// The bitmap.
        bitmap: u32,
        /// Number of numbers in the packet.
        count: usize,
    },
    /// A global number beyond 64 bits.
    #[error("sequence numbers out of range: least number {least} and {distance} more")]
    Number {
        /// The least number.
        least: u64,
        /// The distance to be added.
        distance: u32,
    },
}

impl Ack {
    /// Creates an acknowledgement without numbers.
    pub const fn new(queue_pair: u32, delay_ns: u64, marked: bool) -> Self {
        Self {
            queue_pair,
            delay_ns,
            marked,
            numbers: [AckedNumber::Write(0); ACK_NUMBERS],
            count: 0,
        }
    }

    /// Adds a number, unless the packet is full or the number is too far from the others for 32 bits. Returns whether
    /// it was added.
    #[must_use]
    pub fn push(&mut self, number: AckedNumber) -> bool {
        if self.count == ACK_NUMBERS {
            return false;
        }
        if let AckedNumber::Send(added) = number {
            let (least, most) = self.range().unwrap_or((added.0, added.0));
            if most.max(added.0) - least.min(added.0) > u64::from(u32::MAX) {
                return false;
            }
        }
        self.numbers[self.count] = number;
        self.count += 1;
        true
    }

    /// The numbers, in order of arrival.
    pub fn numbers(&self) -> &[AckedNumber] {
        &self.numbers[..self.count]
    }

    /// The least and the greatest global number.
    fn range(&self) -> Option<(u64, u64)> {
        let globals = || {
            self.numbers().iter().filter_map(|number| match number {
                AckedNumber::Send(number) => Some(number.0),
                AckedNumber::Write(_) => None,
            })
        };
        Some((globals().min()?, globals().max()?))
    }

    /// Writes the packet to the start of `bytes` and returns its length.
    pub fn encode(&self, bytes: &mut [u8; MAX_ACK_BYTES]) -> usize {
        let least = self.range().map_or(0, |(least, _)| least);
        let mut bitmap = 0_u32;
        for (index, number) in self.numbers().iter().enumerate() {
            let word = match number {
                AckedNumber::Send(number) => {
                    bitmap |= bit(index);
                    // `push` has checked that it fits.
                    (number.0 - least) as u32
                }
                AckedNumber::Write(number) => *number,
            };
            let at = ACK_HEADER_BYTES + 4 * index;
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let delay = self.delay_ns.min(MARKED - 1) | if self.marked { MARKED } else { 0 };
        bytes[..4].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[4..8].copy_from_slice(&bitmap.to_le_bytes());
        bytes[8..16].copy_from_slice(&least.to_le_bytes());
        bytes[16..24].copy_from_slice(&delay.to_le_bytes());
        ACK_HEADER_BYTES + 4 * self.count
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// When it is not a valid packet.
    pub fn decode(bytes: &[u8]) -> Result<Self, AckError> {
        let length = AckError::Length(bytes.len());
        let (header, words) = bytes.split_at_checked(ACK_HEADER_BYTES).ok_or(length)?;
        let count = words.len() / 4;
        if words.len() % 4 != 0 || count == 0 || count > ACK_NUMBERS {
            return Err(length);
        }
        let bitmap = word(header, 4);
        if count < ACK_NUMBERS && bitmap << count != 0 {
            return Err(AckError::Bitmap { bitmap, count });
        }
        let least = long(header, 8);
        let delay = long(header, 16);
        let mut ack = Self::new(word(header, 0), delay & !MARKED, delay & MARKED != 0);
        for index in 0..count {
            let value = word(words, 4 * index);
            ack.numbers[index] = if bitmap & bit(index) == 0 {
                AckedNumber::Write(value)
            } else {
                let number = least.checked_add(value.into()).ok_or(AckError::Number {
                    least,
                    distance: value,
                })?;
                AckedNumber::Send(GlobalNumber(number))
            };
        }
        ack.count = count;
        Ok(ack)
    }
}

/// The bit of the number with this index.
const fn bit(index: usize) -> u32 {
    1 << (31 - index)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fig. 15's example: 40 bytes hold four numbers, and 0xC0000000 marks the first two.
    #[test]
    fn the_papers_example_has_four_numbers_of_which_the_first_two_have_their_bit_set() {
        let mut ack = Ack::new(7, 120_000, false);
        for number in [
            AckedNumber::Send(GlobalNumber(5_000_000_001)),
            AckedNumber::Send(GlobalNumber(5_000_000_000)),
            AckedNumber::Write(0x402),
            AckedNumber::Write(0x400),
        ] {
            assert!(ack.push(number));
        }
        let mut bytes = [0; MAX_ACK_BYTES];
        let length = ack.encode(&mut bytes);
        assert_eq!(length, 40);
        assert_eq!((length - ACK_HEADER_BYTES) / 4, 4);
        assert_eq!(word(&bytes, 4), 0xC000_0000);
        assert_eq!(long(&bytes, 8), 5_000_000_000);
        assert_eq!(long(&bytes, 16), 120_000);
        assert_eq!(
            [word(&bytes, 24), word(&bytes, 28), word(&bytes, 32)],
            [1, 0, 0x402]
        );
        assert_eq!(Ack::decode(&bytes[..length]), Ok(ack));
    }

    #[test]
    fn a_packet_takes_32_numbers_within_32_bits_of_each_other() {
        let mut ack = Ack::new(1, 0, true);
        assert!(ack.push(AckedNumber::Send(GlobalNumber(10))));
        let far = 10 + u64::from(u32::MAX);
        assert!(!ack.push(AckedNumber::Send(GlobalNumber(far + 1))));
        assert!(ack.push(AckedNumber::Send(GlobalNumber(far))));
        assert!(!ack.push(AckedNumber::Send(GlobalNumber(9))));
        for number in 2..32 {
            assert!(ack.push(AckedNumber::Write(number)));
        }
        assert!(!ack.push(AckedNumber::Write(32)));
        let mut bytes = [0; MAX_ACK_BYTES];
        assert_eq!(ack.encode(&mut bytes), MAX_ACK_BYTES);
        assert_eq!(Ack::decode(&bytes), Ok(ack));
    }

    #[test]
    fn what_is_no_acknowledgement_is_refused() {
        for length in [0, 23, 24, 26, MAX_ACK_BYTES + 4] {
            let bytes = vec![0; length];
            assert_eq!(Ack::decode(&bytes), Err(AckError::Length(length)));
        }
        let mut bytes = [0; 28];
        bytes[7] = 0x40;
        assert!(matches!(Ack::decode(&bytes), Err(AckError::Bitmap { .. })));
        bytes[7] = 0x80;
        bytes[8..16].fill(0xff);
        bytes[24] = 1;
        assert!(matches!(Ack::decode(&bytes), Err(AckError::Number { .. })));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_mean_what_is_sent_back(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            if let Ok(ack) = Ack::decode(&bytes) {
                let mut again = [0; MAX_ACK_BYTES];
                let length = ack.encode(&mut again);
                prop_assert_eq!(Ack::decode(&again[..length]), Ok(ack));
            }
        }
    }
}
