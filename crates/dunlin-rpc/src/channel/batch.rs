//! The wire format of a batch: messages that cross together, in whole cache lines (FLOCK's coalesced message, §4.2).
//!
//! ```text
//! line 0:  | head 8 B | content 48 B | commit 8 B |          content = header 16 B | payload, to 8 B | header | payload | ...
//! line i:  | content 64 B                         |
//!
//! or, in one WRITE ([`Form::Sealed`]):
//!
//! | head 8 B | content | commit 8 B |                       the commit word is the last of the batch's lines
//!
//!   head   = canary (low half) | lines (20 bits) | messages (12 bits)
//!   commit = canary (high half) | lines of the other ring that the writer of this one has consumed (low 32 bits)
//! ```
//!
//! When the commit word is there, all is there. Where it stands is the batch's [`Form`]. Head and commit carry the two
//! halves of the batch's *canary*, a number that both sides draw from a sequence of their own for each connection
//! ([`Canaries`]). What an earlier lap left in the ring cannot pass for a batch, because no payload knows the numbers
//! to come, and nothing needs to be cleared after reading. The consumed lines are the flow control: a request-response
//! exchange needs no WRITE for it (FLOCK §4.2's piggybacked head).

/// How a batch crosses: where its commit word stands, and in how many WRITEs it goes. The content has as many bytes in
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Line 0 goes by a WRITE of its own, after the others. The reader polls one line only, and does not take the
    /// others away from a writer that stores into shared memory (RB²'s write twice, with the first line for the tail).
    /// Asks of the reader's device that the 64 bytes of line 0 are placed in address order.
    FirstLineLast,
    /// The same lines; the commit word by a WRITE of its own behind the rest of line 0. Asks for no order within a
    /// WRITE.
    Twice,
    /// One WRITE, two where the ring ends; the commit word is the last of the last line (FaRM, FLOCK §4.1's canary).
    /// Asks that all bytes of a WRITE are placed in address order. For devices where a WRITE costs a message.
    Sealed,
}

impl Form {
    /// What suits a writer whose WRITEs are messages, or are not, and a reader whose device places in order, or does
    /// not.
    pub(crate) fn between(writes_are_messages: bool, in_order: bool) -> Self {
        match (in_order, writes_are_messages) {
            (false, _) => Self::Twice,
            (true, false) => Self::FirstLineLast,
            (true, true) => Self::Sealed,
        }
    }

    /// The line of a batch of `lines` that ends with the commit word.
    #[inline]
    pub(crate) fn commit_line(self, lines: usize) -> usize {
        match self {
            Self::Sealed => lines - 1,
            Self::FirstLineLast | Self::Twice => 0,
        }
    }
}

/// Bytes of a line: a cache line. Batches begin on lines, and room is counted in them.
pub(crate) const LINE_BYTES: usize = 64;
/// Where the content begins in line 0, and how much of it stands there.
pub(crate) const HEAD_BYTES: usize = 8;
pub(crate) const FIRST_BYTES: usize = LINE_BYTES - HEAD_BYTES - 8;
/// The last word of a line, where a commit stands.
pub(crate) const COMMIT_WORD: usize = LINE_BYTES / 8 - 1;
/// From this many lines on a batch is long: another like it is likely to follow.
pub(crate) const LONG_LINES: usize = 8;
/// Bits of the head that count lines, and those that count messages.
const LINE_BITS: u32 = 20;
const MESSAGE_BITS: u32 = 12;
/// Most messages in a batch.
pub(crate) const MOST_MESSAGES: u32 = (1 << MESSAGE_BITS) - 1;

/// Lines of a batch with `content` bytes of messages.
#[inline]
pub(crate) fn lines_of(content: usize) -> usize {
    (content + LINE_BYTES - FIRST_BYTES).div_ceil(LINE_BYTES)
}

/// Bytes of content that fit into `lines` lines.
#[inline]
pub(crate) fn content_of(lines: usize) -> usize {
    (lines * LINE_BYTES).saturating_sub(LINE_BYTES - FIRST_BYTES)
}

/// Lines of a batch with one message of `payload` bytes.
#[cfg(any(test, feature = "conformance"))]
pub(crate) fn lines_for(payload: usize) -> usize {
    lines_of(super::message::message_bytes(payload))
}

/// The numbers by which a reader knows the batches of one ring: splitmix64 (Steele et al., OOPSLA '14) from a seed that
/// the reader chose at random and told the writer alone.
#[derive(Clone, Debug)]
pub(crate) struct Canaries {
    state: u64,
    current: u64,
}

impl Canaries {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut canaries = Self {
            state: seed,
            current: 0,
        };
        canaries.advance();
        canaries
    }

    /// The canary of the batch at hand.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Goes on to the next batch.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.current = z ^ (z >> 31);
    }
}

/// The first word of a batch.
#[inline]
pub(crate) fn head(canary: u64, lines: usize, messages: u32) -> u64 {
    debug_assert!(lines < 1 << LINE_BITS && messages <= MOST_MESSAGES);
    (canary & 0xffff_ffff) | (lines as u64) << 32 | u64::from(messages) << (32 + LINE_BITS)
}

/// Whether `head` may begin the batch with this canary.
#[inline]
pub(crate) fn is_head(head: u64, canary: u64) -> bool {
    head as u32 == canary as u32
}

/// Lines and messages of a batch, when `head` begins the one with this canary. Memory that nobody wrote says no lines,
/// which is no batch.
#[inline]
pub(crate) fn read_head(head: u64, canary: u64) -> Option<(usize, u32)> {
    let lines = (head >> 32) as usize & ((1 << LINE_BITS) - 1);
    (is_head(head, canary) && lines != 0).then_some((lines, (head >> (32 + LINE_BITS)) as u32))
}

/// The word that is written last.
#[inline]
pub(crate) fn commit(canary: u64, consumed: u64) -> u64 {
    (canary & !0xffff_ffff) | (consumed & 0xffff_ffff)
}

/// The lower half of the count of consumed lines, when `commit` is of the batch with this canary.
#[inline]
pub(crate) fn read_commit(commit: u64, canary: u64) -> Option<u32> {
    (commit >> 32 == canary >> 32).then_some(commit as u32)
}

/// A batch with this content as lines, and offsets of lines, in the order to write them, of a peer that claims anything
/// about it: lines and messages. Where what it claims decides where the reader looks for the commit word, that stands
/// there as well.
#[cfg(any(test, feature = "conformance", feature = "fuzzing"))]
pub(crate) fn lay_out(
    form: Form,
    canary: u64,
    (claimed, messages): (usize, u32),
    content: &[u8],
    consumed: u64,
) -> Vec<(usize, Vec<u8>)> {
    let lines = lines_of(content.len());
    let commit = commit(canary, consumed).to_le_bytes();
    let commit_at = form.commit_line(lines) * LINE_BYTES + 8 * COMMIT_WORD;
    let mut bytes = head(canary, claimed, messages).to_le_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(lines * LINE_BYTES - commit.len(), 0);
    bytes.splice(commit_at..commit_at, commit);
    let place = |(i, line): (usize, &[u8])| (i * LINE_BYTES, line.to_vec());
    let mut placed: Vec<_> = bytes.chunks(LINE_BYTES).enumerate().map(place).collect();
    match form {
        Form::FirstLineLast | Form::Twice => placed.rotate_left(1),
        Form::Sealed if claimed == lines || claimed == 0 => {}
        Form::Sealed => placed.push((claimed * LINE_BYTES - commit.len(), commit.to_vec())),
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn head_and_commit_round_trip(seed: u64, lines in 1..1usize << LINE_BITS, messages in 0..=MOST_MESSAGES, consumed: u64) {
            let mut canaries = Canaries::new(seed);
            let canary = canaries.current();
            let (head, commit) = (head(canary, lines, messages), commit(canary, consumed));
            prop_assert_eq!(read_head(head, canary), Some((lines, messages)));
            prop_assert_eq!(read_commit(commit, canary), Some(consumed as u32));
            canaries.advance();
            let next = canaries.current();
            prop_assert!(read_head(head, next).is_none() || read_commit(commit, next).is_none());
        }
    }

    #[test]
    fn fresh_memory_is_no_batch() {
        assert_eq!(read_head(0, 0), None);
    }

    #[test]
    fn lines_count_head_header_payload_and_commit() {
        assert_eq!([0, 1, 2, 3].map(content_of), [0, 48, 112, 176]);
        assert_eq!([48, 49, 112, 113].map(lines_of), [1, 2, 2, 3]);
        assert_eq!([0, 32, 33, 64, 96, 97].map(lines_for), [1, 1, 2, 2, 2, 3]);
    }
}
