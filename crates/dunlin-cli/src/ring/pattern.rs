//! The content of messages that readers compare (`--verify`): after the stamp, words that follow from the message's
//! number and their position, so that bytes of another message, another position or an earlier lap are detected.

use dunlin_ring::Message;

use super::consume::STAMP_BYTES;

/// The word at a place, counted in words from the message's start.
#[inline(always)]
fn word(number: u64, place: usize) -> u64 {
    // Odd factors: no two numbers have the same word at one place, and no two places the same in one message.
    number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((place as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f))
}

/// Fills all of a message of [`STAMP_BYTES`] or more.
///
/// # Panics
/// When it is shorter.
pub fn fill(message: &mut [u8], number: u64, stamp: u64) {
    let (head, body) = message.split_at_mut(STAMP_BYTES);
    head[..8].copy_from_slice(&number.to_le_bytes());
    head[8..].copy_from_slice(&stamp.to_le_bytes());
    for (index, part) in body.chunks_mut(8).enumerate() {
        let bytes = word(number, STAMP_BYTES / 8 + index).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
}

/// Whether the message, of [`STAMP_BYTES`] or more, is as [`fill`] made it for its number: every byte but the stamp's
/// is looked at.
pub fn holds(message: &Message<'_>, size: usize) -> bool {
    if message.len() != size {
        return false;
    }
    let number = message.u64_at(0);
    let words = size / 8;
    let whole =
        (STAMP_BYTES / 8..words).all(|place| message.u64_at(place * 8) == word(number, place));
    let rest = &mut [0; 8][..size % 8];
    message.read(words * 8, rest);
    whole && *rest == word(number, words).to_le_bytes()[..rest.len()]
}
