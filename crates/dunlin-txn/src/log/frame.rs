//! The format of the files: a sequence of frames.
//!
//! A frame consists of a mark, the length of what follows the header, the sequence number, a CRC-32 of length, number
//! and contents, and then the entries. Within a file, sequence numbers increase by one.

use std::io::{self, Read};

/// The first bytes of a frame, by which frames are found behind a damaged one.
const MARK: [u8; 4] = *b"DLog";
/// Mark, length, sequence number, checksum.
const HEAD: usize = 4 + 4 + 8 + 4;
/// Minimum length of a frame.
pub(super) const SHORTEST: u64 = HEAD as u64;

/// Begins a frame in an empty buffer; the entries follow, and then [`seal`].
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEAD, 0);
}

/// Completes the frame in the buffer.
pub(super) fn seal(frame: &mut [u8], sequence: u64) {
    let length = (frame.len() - HEAD) as u32;
    frame[..4].copy_from_slice(&MARK);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&sequence.to_le_bytes());
    let sum = checksum(frame);
    frame[16..20].copy_from_slice(&sum.to_le_bytes());
}

/// Covers everything except the mark and the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[4..16]);
    hasher.update(&frame[HEAD..]);
    hasher.finalize()
}

/// What follows the complete frames of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// Bytes that no complete frame follows: an unfinished write.
    Torn,
    /// Bytes that a complete frame follows: the disk does not contain what was written.
    Damaged,
}

/// Iterates over the complete frames of a file; only one of them is in memory at a time.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    /// Length of the file.
    length: u64,
    /// The end of the complete frames read so far.
    end: u64,
    /// The number of the next frame.
    next: u64,
    frame: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// Reads a file of this length, whose first frame has this number.
    pub(super) fn new(from: R, length: u64, first: u64) -> Self {
        Self {
            from,
            length,
            end: 0,
            next: first,
            frame: Vec::new(),
        }
    }

    /// Returns the entries of the next frame; `None` if no complete one follows. The bytes read in that case are left
    /// to [`Frames::rest`].
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.frame.clear();
        let head = self.fill(HEAD as u64)?;
        let length = Head::of(&self.frame)
            .filter(|_| head)
            .map(|head| head.length);
        let Some(length) = length.filter(|length| *length <= self.length - self.end) else {
            return Ok(None);
        };
        self.fill(length)?;
        let next = self.next;
        if frame_at(&self.frame, 0, |sequence| sequence == next) != Some(length as usize) {
            return Ok(None);
        }
        self.end += length;
        self.next += 1;
        Ok(Some(&self.frame[HEAD..]))
    }

    /// The end of the frames returned so far.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The number of the next frame.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Determines what follows them, after [`Frames::next`] has returned `None`: reads all of it, since a frame may
    /// begin anywhere in it.
    pub(super) fn rest(mut self) -> io::Result<Rest> {
        if self.end == self.length {
            return Ok(Rest::Nothing);
        }
        self.from.read_to_end(&mut self.frame)?;
        let (bytes, next) = (&self.frame, self.next);
        let mut marks = bytes.windows(MARK.len()).enumerate();
        let is_frame = |at: usize| frame_at(bytes, at, |sequence| sequence >= next).is_some();
        match marks.any(|(at, window)| *window == MARK && is_frame(at)) {
            true => Ok(Rest::Damaged),
            false => Ok(Rest::Torn),
        }
    }

    /// Reads until this much of the frame is available, or the file ends. Returns whether it is available.
    fn fill(&mut self, length: u64) -> io::Result<bool> {
        let missing = length.saturating_sub(self.frame.len() as u64);
        self.from
            .by_ref()
            .take(missing)
            .read_to_end(&mut self.frame)?;
        Ok(self.frame.len() as u64 >= length)
    }
}

/// The header of a frame.
struct Head {
    /// Length of the frame, including its header.
    length: u64,
    sequence: u64,
    sum: u32,
}

impl Head {
    /// Decodes the header at the start of the bytes, if there is one.
    fn of(bytes: &[u8]) -> Option<Head> {
        let (head, _) = bytes.split_first_chunk::<HEAD>()?;
        let word = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| head[from + n]));
        (head[..4] == MARK).then(|| Head {
            length: HEAD as u64 + u64::from(word(4)),
            sequence: u64::from(word(8)) | u64::from(word(12)) << 32,
            sum: word(16),
        })
    }
}

/// The length of a complete frame at this position whose number is accepted by `fits`.
fn frame_at(bytes: &[u8], at: usize, fits: impl Fn(u64) -> bool) -> Option<usize> {
    let bytes = bytes.get(at..)?;
    let head = Head::of(bytes)?;
    let frame = bytes.get(..usize::try_from(head.length).ok()?)?;
    (fits(head.sequence) && checksum(frame) == head.sum).then_some(frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::Range;

    /// The contents of a file: the entries of each complete frame, the end of the frames, and what follows.
    struct Found {
        groups: Vec<Range<usize>>,
        end: usize,
        rest: Rest,
    }

    fn find(bytes: &[u8], first: u64) -> Found {
        let mut frames = Frames::new(bytes, bytes.len() as u64, first);
        let mut groups = Vec::new();
        while let Some(length) = frames.next().unwrap().map(<[u8]>::len) {
            let end = frames.end() as usize;
            assert_eq!(frames.next_number(), first + groups.len() as u64 + 1);
            groups.push(end - length..end);
        }
        let end = frames.end() as usize;
        let rest = frames.rest().unwrap();
        Found { groups, end, rest }
    }

    /// A file of frames with these contents, and the end of each frame.
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
        // Includes marks in the contents.
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
            // Behind the last frame nothing distinguishes damage from an unfinished write.
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
