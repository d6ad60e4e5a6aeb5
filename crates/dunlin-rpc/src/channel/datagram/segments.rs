//! Messages longer than one datagram: split by [`Transfer`], reassembled by [`Reassembly`]. The paper has none (§4.1:
//! "MTU 4096"); these are Dunlin's own.
//!
//! A session has one transfer in each direction at a time, with [`WINDOW`] segments in flight. The receiver reports how
//! many it has; it accepts them in any order and each once. A lost segment leaves the transfer incomplete, which its
//! caller's timer detects (`lanes/datagram_lane/watch.rs`).

use std::ops::Range;

use dunlin_verbs::{Device, Work};

use super::growing::Growing;
use super::packet::Packet;
use super::spare::{LongBytes, Spare};
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::memory::NoMemory;

/// Maximum number of segments of a transfer in flight.
pub(crate) const WINDOW: usize = 16;
/// Number of new segments after which the receiver reports how many it has.
pub(crate) const TOLD_EVERY: usize = WINDOW / 4;
/// Size of the header in a segment's payload: length of the whole message, position of the segment in it, number of the
/// transfer.
pub(crate) const SEGMENT_HEAD_BYTES: usize = 12;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    /// Length of the whole message in bytes.
    pub(crate) total: u32,
    /// Offset of the first byte of this piece.
    pub(crate) offset: u32,
    /// The number of the transfer in the session, counted by the sender.
    pub(crate) transfer: u32,
}

impl SegmentHead {
    /// Encodes the header.
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEAD_BYTES] {
        let mut bytes = [0; SEGMENT_HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.total.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.transfer.to_le_bytes());
        bytes
    }

    /// Decodes what a peer wrote, and returns what follows it.
    pub(crate) fn read(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, piece) = payload.split_first_chunk::<SEGMENT_HEAD_BYTES>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let head = Self {
            total: word(0),
            offset: word(4),
            transfer: word(8),
        };
        Some((head, piece))
    }
}

/// A long message being sent.
#[derive(Debug)]
pub(crate) struct Transfer<B> {
    pub(crate) call: u64,
    pub(crate) handler: u16,
    pub(crate) kind: Kind,
    pub(crate) bytes: B,
    /// Number of segments sent, and of these the number that the receiver has.
    sent: usize,
    taken: usize,
    /// These numbers when the receiver asked last.
    asked: Option<(usize, usize)>,
}

impl<B: AsRef<[u8]>> Transfer<B> {
    pub(crate) fn new(kind: Kind, handler: u16, call: u64, bytes: B) -> Self {
        Self {
            call,
            handler,
            kind,
            bytes,
            sent: 0,
            taken: 0,
            asked: None,
        }
    }

    fn segments(&self, piece: usize) -> usize {
        self.bytes.as_ref().len().div_ceil(piece)
    }

    /// The receiver asks for the state of the message. Returns whether there was no progress since it asked before, so
    /// that a segment must be lost. A single question only shows that it waits, and may have crossed the segments of a
    /// sender that had paused.
    pub(crate) fn is_stuck(&mut self) -> bool {
        let now = (self.sent, self.taken);
        self.asked.replace(now) == Some(now)
    }

    /// Whether a segment was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.sent > 0
    }

    /// The position in the message of the next segment of `piece` bytes, if one may be sent now.
    pub(crate) fn next(&mut self, piece: usize) -> Option<Range<usize>> {
        if self.sent >= self.segments(piece) || self.sent - self.taken >= WINDOW {
            return None;
        }
        let start = self.sent * piece;
        self.sent += 1;
        Some(start..self.bytes.as_ref().len().min(start + piece))
    }

    /// The receiver has `count` segments; implausible counts are ignored. Returns whether it has all.
    pub(crate) fn has(&mut self, count: usize, piece: usize) -> bool {
        if count <= self.sent {
            self.taken = self.taken.max(count);
        }
        self.taken == self.segments(piece)
    }
}

/// Adds a piece of a transfer to an empty packet.
pub(crate) fn put_segment<D: Device>(
    packet: &mut Packet,
    transfer: &Transfer<impl AsRef<[u8]>>,
    head: SegmentHead,
    range: Range<usize>,
) {
    let piece = &transfer.bytes.as_ref()[range];
    let length = SEGMENT_HEAD_BYTES + piece.len();
    let space = packet.space();
    space[..SEGMENT_HEAD_BYTES].copy_from_slice(&head.encode());
    space[SEGMENT_HEAD_BYTES..length].copy_from_slice(piece);
    D::charge(Work::Copy(length));
    let Transfer {
        kind,
        handler,
        call,
        ..
    } = *transfer;
    packet.commit(Header::new(kind, handler, call, length));
}

/// The count in a report about segments.
pub(crate) fn count_in(payload: &[u8]) -> Result<u32, ChannelError> {
    let count: [u8; 4] = payload
        .try_into()
        .map_err(|_| ChannelError::violation("a malformed count of segments"))?;
    Ok(u32::from_le_bytes(count))
}

/// A long message being received.
#[derive(Debug)]
struct Reassembly {
    call: u64,
    handler: u16,
    transfer: u32,
    piece: usize,
    bytes: Growing,
    /// One bit for each segment that has arrived.
    here: Vec<u64>,
    count: usize,
    told: usize,
}

/// The effect of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It was not new, or no report is due.
    Nothing,
    /// The sender is due to receive the number of segments here.
    Tell(usize),
    /// The message is complete.
    Whole(usize),
}

impl Reassembly {
    /// For the message that `head` belongs to, in pieces of `piece` bytes. `None`: an honest peer does not send this.
    fn new(
        head: SegmentHead,
        (handler, call): (u16, u64),
        piece: usize,
        spare: &Spare,
    ) -> Option<Self> {
        let total = head.total as usize;
        (total > 0 && piece > 0).then(|| Self {
            call,
            handler,
            transfer: head.transfer,
            piece,
            bytes: Growing::new(total, spare),
            here: vec![0; total.div_ceil(piece).div_ceil(64)],
            count: 0,
            told: 0,
        })
    }

    /// The order of a segment's transfer relative to this one: the same, later or earlier.
    fn compare(&self, head: SegmentHead) -> std::cmp::Ordering {
        (head.transfer.wrapping_sub(self.transfer) as i32).cmp(&0)
    }

    /// Takes a segment of this transfer. `None`: an honest peer sends no such piece.
    fn take(&mut self, head: SegmentHead, call: u64, piece: &[u8]) -> Option<Taken> {
        let offset = head.offset as usize;
        let total = self.bytes.total();
        let sound = call == self.call
            && head.total as usize == total
            && offset < total
            && offset % self.piece == 0
            && piece.len() == self.piece.min(total - offset);
        if !sound {
            return None;
        }
        let index = offset / self.piece;
        if index >= self.count + WINDOW {
            return None;
        }
        let bit = 1 << (index % 64);
        if self.here[index / 64] & bit != 0 {
            return Some(Taken::Nothing);
        }
        self.here[index / 64] |= bit;
        self.bytes.put(offset, piece);
        self.count += 1;
        if self.count == total.div_ceil(self.piece) {
            return Some(Taken::Whole(self.count));
        }
        // The first one is reported at once, for a sender that was not heard of before.
        if self.count - self.told >= TOLD_EVERY || self.count == 1 {
            self.told = self.count;
            return Some(Taken::Tell(self.count));
        }
        Some(Taken::Nothing)
    }
}

/// The long messages of one direction being received, one at a time.
#[derive(Debug)]
pub(crate) struct Incoming {
    current: Option<Reassembly>,
    piece: usize,
    longest: usize,
    spare: Spare,
}

/// The effect of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Nothing,
    /// The sender is due to be told that this many segments are here.
    Tell(u32),
    /// The message is complete, and its sender is due to be told; the handler is that of its first segment. There may
    /// have been no memory for it.
    Whole(u32, u16, Result<LongBytes, NoMemory>),
}

impl Incoming {
    /// For messages of up to `longest` bytes in segments whose payloads have `piece` bytes each.
    pub(crate) fn new(piece: usize, longest: usize, spare: &Spare) -> Self {
        Self {
            current: None,
            piece,
            longest,
            spare: spare.clone(),
        }
    }

    /// Takes a segment, unless it is late: of an earlier message, or of a call that is not `wanted`.
    ///
    /// # Errors
    /// When an honest peer would not send it, or `wanted` fails.
    pub(crate) fn take(
        &mut self,
        header: Header,
        payload: &[u8],
        wanted: impl FnOnce() -> Result<bool, ChannelError>,
    ) -> Result<Arrived, ChannelError> {
        let (head, piece) = SegmentHead::read(payload)
            .ok_or_else(|| ChannelError::violation("a segment without a header"))?;
        if head.total as usize > self.longest {
            let words = "a message longer than its receiver accepts";
            return Err(ChannelError::violation(words));
        }
        let order = self.current.as_ref().map(|here| here.compare(head));
        if order == Some(std::cmp::Ordering::Less) || !wanted()? {
            return Ok(Arrived::Nothing);
        }
        let known = self
            .current
            .take_if(|_| order == Some(std::cmp::Ordering::Equal));
        let names = (header.handler, header.call);
        let begun = || Reassembly::new(head, names, self.piece, &self.spare);
        let mut reassembly = known
            .or_else(begun)
            .ok_or_else(|| ChannelError::violation("an empty segment"))?;
        let taken = reassembly
            .take(head, header.call, piece)
            .ok_or_else(|| ChannelError::violation("a segment that does not fit its message"))?;
        let arrived = match taken {
            Taken::Nothing => Arrived::Nothing,
            Taken::Tell(count) => Arrived::Tell(count as u32),
            Taken::Whole(count) => {
                let handler = reassembly.handler;
                return Ok(Arrived::Whole(
                    count as u32,
                    handler,
                    reassembly.bytes.into_bytes(),
                ));
            }
        };
        self.current = Some(reassembly);
        Ok(arrived)
    }

    /// The message of this call is no longer wanted.
    pub(crate) fn forget(&mut self, call: u64) {
        self.current.take_if(|begun| begun.call == call);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_comes_together_whatever_the_order(
            length in 1usize..5000, piece in 1usize..600, seed: u64, twice: bool
        ) {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let mut transfer = Transfer::new(Kind::RequestSegment, 1, 9, bytes.clone());
            let mut reassembly: Option<Reassembly> = None;
            let mut on_the_way: Vec<Range<usize>> = Vec::new();
            let mut state = seed | 1;
            let mut whole = false;
            while !whole {
                while let Some(range) = transfer.next(piece) {
                    on_the_way.push(range.clone());
                    if twice {
                        on_the_way.push(range);
                    }
                }
                prop_assert!(transfer.sent - transfer.taken <= WINDOW);
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let range = on_the_way.swap_remove((state >> 33) as usize % on_the_way.len());
                let head = SegmentHead { total: length as u32, offset: range.start as u32, transfer: 3 };
                let mut payload = head.encode().to_vec();
                payload.extend_from_slice(&bytes[range]);
                let (head, body) = SegmentHead::read(&payload).unwrap();
                let place = reassembly.get_or_insert_with(|| Reassembly::new(head, (1, 9), piece, &Spare::default()).unwrap());
                match place.take(head, 9, body).unwrap() {
                    Taken::Nothing => {}
                    Taken::Tell(count) => { transfer.has(count, piece); }
                    Taken::Whole(count) => {
                        prop_assert!(transfer.has(count, piece));
                        whole = true;
                    }
                }
            }
            let whole = reassembly.unwrap().bytes.into_bytes();
            prop_assert_eq!(&whole.unwrap()[..], &bytes[..]);
        }

        /// Whatever length it claims for the message, and wherever it begins.
        #[test]
        fn a_message_takes_memory_as_its_bytes_come(total in 1u32..1 << 30, piece in 512usize..4096, at: u32) {
            let pieces = total.div_ceil(piece as u32);
            let offset = (at % pieces) * piece as u32;
            let head = SegmentHead { total, offset, transfer: 0 };
            let mut reassembly = Reassembly::new(head, (1, 1), piece, &Spare::default()).unwrap();
            let body = vec![1; piece.min((total - offset) as usize)];
            let taken = reassembly.take(head, 1, &body);
            prop_assert_eq!(taken.is_some(), (at % pieces) < WINDOW as u32);
            prop_assert!(reassembly.bytes.into_bytes().unwrap().capacity() <= 2 * WINDOW * piece);
        }

        #[test]
        fn any_segment_is_taken_or_refused(
            payload in prop::collection::vec(any::<u8>(), 0..64), total in 1u32..300, offset in 0u32..300
        ) {
            let head = SegmentHead { total: 200, offset: 0, transfer: 0 };
            let mut reassembly = Reassembly::new(head, (1, 1), 16, &Spare::default()).unwrap();
            if let Some((head, piece)) = SegmentHead::read(&payload) {
                let _ = reassembly.take(head, 1, piece);
            }
            let _ = reassembly.take(SegmentHead { total, offset, transfer: 0 }, 1, &payload);
            prop_assert!(reassembly.bytes.bytes().unwrap().len() <= 200);
        }
    }
}
