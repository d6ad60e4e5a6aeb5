//! The format of the files: frames one after another.
//!
//! A frame is a mark, the length of what follows the head, the sequence number, a CRC-32 of both and of what follows,
//! and then the entries. In a file sequence numbers rise by one.

use std::io::{self, Read};

/// What a frame begins with: by it frames are found behind one that is damaged.
const MARK: [u8; 4] = *b"DLog";
/// Mark, length, sequence number, checksum.
const HEAD: usize = 4 + 4 + 8 + 4;
/// The least that a frame is long.
pub(super) const SHORTEST: u64 = HEAD as u64;

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

/// What is behind the whole frames of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// Bytes that no whole frame follows: a write that was under way.
    Torn,
    /// Bytes that a whole frame follows: what was on the disk is not what was written.
    Damaged,
}

/// The whole frames of a file, one after another; only one of them is in memory.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    /// Of the file.
    length: u64,
    /// Where the whole frames so far end.
    end: u64,
    /// The number of the next one.
    next: u64,
    frame: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// The frames of a file of this length, the first of which has this number.
    pub(super) fn new(from: R, length: u64, first: u64) -> Self {
        Self {
            from,
            length,
            end: 0,
            next: first,
            frame: Vec::new(),
        }
    }

    /// The entries of the next frame; `None` where no whole one follows. What was read then is left to
    /// [`Frames::rest`].
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

    /// Where the whole frames end that were given.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The number of the next frame.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// What is behind them, after [`Frames::next`] gave none: read whole, since a frame may be anywhere in it.
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

    /// Reads until so much of the frame is there, or the file ends. Whether it is there.
    fn fill(&mut self, length: u64) -> io::Result<bool> {
        let missing = length.saturating_sub(self.frame.len() as u64);
        self.from
            .by_ref()
            .take(missing)
            .read_to_end(&mut self.frame)?;
        Ok(self.frame.len() as u64 >= length)
    }
}

/// What stands at the beginning of a frame.
struct Head {
    /// Of the frame, its head with it.
    length: u64,
    sequence: u64,
    sum: u32,
}

impl Head {
    /// The head that bytes begin with, if they do.
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

/// The length of a whole frame that begins there and has such a number.
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

    /// What a file has: where the entries of each whole frame are, where those end, and what is behind them.
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
