//! The format of the files: frames one after another, as functions of bytes.
//!
//! A frame is a mark, the length of what follows the head, the sequence number, a CRC-32 of both and of what follows,
//! and then the entries. In a file sequence numbers rise by one.

use std::ops::Range;

/// What a frame begins with: by it frames are found behind one that is damaged.
const MARK: [u8; 4] = *b"DLog";
/// Mark, length, sequence number, checksum.
const HEAD: usize = 4 + 4 + 8 + 4;

/// Begins a frame in an empty buffer; the entries follow, and then [`seal`].
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEAD, 0);
}

/// Ends the frame that the buffer is.
pub(super) fn seal(frame: &mut [u8], sequence: u64) {
    let length = (frame.len() - HEAD) as u32;
    frame[..4].copy_from_slice(&MARK);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&sequence.to_le_bytes());
    let sum = checksum(frame);
    frame[16..20].copy_from_slice(&sum.to_le_bytes());
}

/// Of all but the mark and the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[4..16]);
    hasher.update(&frame[HEAD..]);
    hasher.finalize()
}

/// What a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Where the entries of each whole frame are.
    pub(super) groups: Vec<Range<usize>>,
    /// Where the whole frames end.
    pub(super) end: usize,
    /// What is behind them.
    pub(super) rest: Rest,
}

/// What is behind the whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// Bytes that no whole frame follows: a write that was under way.
    Torn,
    /// Bytes that a whole frame follows: what was on the disk is not what was written.
    Damaged,
}

/// The frames of a file whose first one has this number.
pub(super) fn find(bytes: &[u8], first: u64) -> Found {
    let (mut groups, mut end, mut next) = (Vec::new(), 0, first);
    while let Some(length) = frame_at(bytes, end, |sequence| sequence == next) {
        groups.push(end + HEAD..end + length);
        end += length;
        next += 1;
    }
    let later = || {
        let marks = bytes[end..].windows(MARK.len()).enumerate();
        marks
            .filter(|(_, window)| **window == MARK)
            .any(|(at, _)| frame_at(bytes, end + at, |sequence| sequence >= next).is_some())
    };
    let rest = match () {
        () if end == bytes.len() => Rest::Nothing,
        () if later() => Rest::Damaged,
        () => Rest::Torn,
    };
    Found { groups, end, rest }
}

/// The length of a whole frame that begins there and has such a number.
fn frame_at(bytes: &[u8], at: usize, fits: impl Fn(u64) -> bool) -> Option<usize> {
    let (head, _) = bytes.get(at..)?.split_first_chunk::<HEAD>()?;
    let word = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| head[from + n]));
    let sequence = u64::from(word(8)) | u64::from(word(12)) << 32;
    let length = HEAD.checked_add(word(4) as usize)?;
    let frame = bytes.get(at..at.checked_add(length)?)?;
    (head[..4] == MARK && fits(sequence) && checksum(frame) == word(16)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file of frames with these contents, and where each ends.
    fn file(contents: &[Vec<u8>], first: u64) -> (Vec<u8>, Vec<usize>) {
        let (mut all, mut ends, mut frame) = (Vec::new(), vec![0], Vec::new());
        for (content, sequence) in contents.iter().zip(first..) {
            begin(&mut frame);
            frame.extend(content);
            seal(&mut frame, sequence);
            all.extend(&frame);
            ends.push(all.len());
        }
        (all, ends)
    }

    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Marks among the contents, too.
        let content = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            Just(b"DLogDLog\0\0\0\0".to_vec())
        ];
        prop::collection::vec(content, 1..6)
    }

    proptest! {
        #[test]
        fn what_is_cut_anywhere_is_a_torn_tail(contents in contents(), first in 1..u64::MAX / 2) {
            let (bytes, ends) = file(&contents, first);
            for length in 0..=bytes.len() {
                let found = find(&bytes[..length], first);
                let whole = ends.iter().filter(|end| **end <= length).count() - 1;
                prop_assert_eq!(found.groups.len(), whole);
                prop_assert_eq!(found.end, ends[whole]);
                let rest = if length == ends[whole] { Rest::Nothing } else { Rest::Torn };
                prop_assert_eq!(found.rest, rest);
                for (group, content) in found.groups.iter().zip(&contents) {
                    prop_assert_eq!(&bytes[group.clone()], &content[..]);
                }
            }
        }

        #[test]
        fn a_flipped_bit_is_found_in_its_frame(
            contents in contents(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (mut bytes, ends) = file(&contents, 1);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            let found = find(&bytes, 1);
            let damaged = ends.iter().filter(|end| **end <= at).count() - 1;
            prop_assert_eq!(found.groups.len(), damaged);
            prop_assert_eq!(found.end, ends[damaged]);
            // Behind the last one there is nothing by which it could be told from a write that was under way.
            let rest = if damaged + 1 == contents.len() { Rest::Torn } else { Rest::Damaged };
            prop_assert_eq!(found.rest, rest);
        }

        #[test]
        fn a_tail_of_zeros_is_torn(contents in contents(), zeros in 1..100_usize) {
            let (mut bytes, _) = file(&contents, 1);
            bytes.resize(bytes.len() + zeros, 0);
            let found = find(&bytes, 1);
            prop_assert_eq!((found.groups.len(), found.rest), (contents.len(), Rest::Torn));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(find(&bytes, 1).end <= bytes.len());
        }
    }

    #[test]
    fn a_frame_that_is_missing_is_damage() {
        let (bytes, ends) = file(&[b"1".to_vec(), b"2".to_vec(), b"3".to_vec()], 1);
        let without = [&bytes[..ends[1]], &bytes[ends[2]..]].concat();
        assert_eq!(find(&without, 1).rest, Rest::Damaged);
        assert_eq!(find(&bytes, 2).rest, Rest::Damaged);
    }
}
