//! The wire format of a batch: messages that are sent together, in whole cache lines (FLOCK's coalesced message, §4.2).
//!
//! ```text
//! Form::Twice:    | commit 8 B | head 8 B | content                |      to the end of the last line
//! Form::Sealed:   | head 8 B | content                | commit 8 B |
//!
//!   content = header | payload, to 8 B | header | payload | ...
//!   head    = canary (low half) | lines (20 bits) | messages (12 bits)
//!   commit  = canary (high half) | lines of the other ring that the writer of this one has consumed (low 32 bits)
//! ```
//!
//! Once the commit word has arrived, the whole batch has. Its position depends on the batch's [`Form`]. In the word
//! that comes first, the reader polls for that word's half of the batch's *canary*, a number that both sides take from
//! the same sequence, one per connection ([`Canaries`]). Remains of an earlier lap in the ring cannot be mistaken for a
//! batch, because no payload can contain the numbers to come, so nothing needs to be cleared after reading. The half in
//! the commit word is at the position that a device writing byte by byte writes last. The consumed lines are the flow
//! control: a request-response exchange needs no WRITE for it (FLOCK §4.2's piggybacked head).

/// How a batch is written: the position of its commit word, and the number of WRITEs. The content has the same number
/// of bytes in both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The commit word is the first word of the first line, and is written by a WRITE of its own after all others
    /// (RB²'s write twice). Requires no order within a WRITE. The reader polls one line only, and does not take the
    /// other lines away from a writer that stores into shared memory.
    Twice,
    /// One WRITE, or two at the end of the ring; the commit word is the last word of the last line (FaRM, FLOCK §4.1's
    /// canary). Requires that all bytes of a WRITE are placed in address order. For devices where a WRITE costs a
    /// message.
    Sealed,
}

impl Form {
    /// The form for a writer whose WRITEs are messages or not, and a reader whose device places in order or not.
    pub(crate) fn between(writes_are_messages: bool, in_order: bool) -> Self {
        match writes_are_messages && in_order {
            true => Self::Sealed,
            false => Self::Twice,
        }
    }

    /// Number of bytes of a batch before its content.
    #[inline]
    pub(crate) const fn content_at(self) -> usize {
        match self {
            Self::Twice => FRAME_BYTES,
            Self::Sealed => WORD_BYTES,
        }
    }

    /// Number of bytes of a batch after its content.
    #[inline]
    pub(crate) const fn behind_content(self) -> usize {
        FRAME_BYTES - self.content_at()
    }

    /// The bits of a batch's first word that belong to its canary.
    #[inline]
    pub(crate) const fn canary_bits(self) -> u64 {
        match self {
            Self::Twice => HIGH_HALF,
            Self::Sealed => !HIGH_HALF,
        }
    }
}

/// Size of a line in bytes: a cache line. Batches begin at line boundaries, and room is counted in lines.
pub(crate) const LINE_BYTES: usize = 64;
/// Index of the last word of a line, the position of the commit word of a sealed batch.
pub(crate) const LAST_WORD: usize = LINE_BYTES / WORD_BYTES - 1;
/// Size in bytes of head and commit word together, and of each.
pub(crate) const FRAME_BYTES: usize = 2 * WORD_BYTES;
pub(crate) const WORD_BYTES: usize = 8;
/// Number of lines from which on a batch counts as long: another long one is likely to follow.
pub(crate) const LONG_LINES: usize = 8;
const HIGH_HALF: u64 = !0 << 32;
/// Bits of the head that hold the number of lines and of messages.
const LINE_BITS: u32 = 20;
const MESSAGE_BITS: u32 = 12;
/// Maximum number of messages in a batch.
pub(crate) const MOST_MESSAGES: u32 = (1 << MESSAGE_BITS) - 1;

/// Number of lines of a batch with `content` bytes of messages.
#[inline]
pub(crate) fn lines_of(content: usize) -> usize {
    (content + FRAME_BYTES).div_ceil(LINE_BYTES)
}

/// Number of bytes of content that fit into `lines` lines.
#[inline]
pub(crate) fn content_of(lines: usize) -> usize {
    (lines * LINE_BYTES).saturating_sub(FRAME_BYTES)
}

/// Number of lines of a batch with one message of `payload` bytes.
#[cfg(any(test, feature = "conformance"))]
pub(crate) fn lines_for(payload: usize) -> usize {
    lines_of(super::message::message_bytes(payload))
}

/// The numbers by which a reader recognises the batches of one ring: splitmix64 (Steele et al., OOPSLA '14) from a seed
/// that the reader chose at random and gave only to the writer.
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

    /// The canary of the current batch.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Advances to the next batch.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.current = z ^ (z >> 31);
    }
}

/// Encodes the head of a batch.
#[inline]
pub(crate) fn head(canary: u64, lines: usize, messages: u32) -> u64 {
    debug_assert!(lines < 1 << LINE_BITS && messages <= MOST_MESSAGES);
    (canary & !HIGH_HALF) | (lines as u64) << 32 | u64::from(messages) << (32 + LINE_BITS)
}

/// Number of lines and of messages of a batch, if `head` belongs to the batch with this canary. Memory that was never
/// written decodes to zero lines, which is not a batch.
#[inline]
pub(crate) fn read_head(head: u64, canary: u64) -> Option<(usize, u32)> {
    let lines = (head >> 32) as usize & ((1 << LINE_BITS) - 1);
    (head as u32 == canary as u32 && lines != 0)
        .then_some((lines, (head >> (32 + LINE_BITS)) as u32))
}

/// Encodes the commit word.
#[inline]
pub(crate) fn commit(canary: u64, consumed: u64) -> u64 {
    (canary & HIGH_HALF) | (consumed & !HIGH_HALF)
}

/// The lower half of the count of consumed lines, if `commit` belongs to the batch with this canary.
#[inline]
pub(crate) fn read_commit(commit: u64, canary: u64) -> Option<u32> {
    (commit >> 32 == canary >> 32).then_some(commit as u32)
}

/// The bytes of a batch with this content and their offsets, in the order in which to write them, as from a peer that
/// may claim any numbers of lines and messages. Where the claimed number decides at which position the reader looks for
/// the commit word, it is written there as well.
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
    let mut bytes = vec![0; form.content_at() - WORD_BYTES];
    bytes.extend_from_slice(&head(canary, claimed, messages).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.resize(lines * LINE_BYTES, 0);
    if form == Form::Sealed {
        bytes.splice(lines * LINE_BYTES - WORD_BYTES.., commit);
    }
    let place = |(i, line): (usize, &[u8])| (i * LINE_BYTES, line.to_vec());
    let mut placed: Vec<_> = bytes.chunks(LINE_BYTES).enumerate().map(place).collect();
    match form {
        Form::Twice => {
            placed[0] = (WORD_BYTES, bytes[WORD_BYTES..LINE_BYTES].to_vec());
            placed.push((0, commit.to_vec()));
        }
        Form::Sealed if claimed == lines || claimed == 0 => {}
        Form::Sealed => placed.push((claimed * LINE_BYTES - WORD_BYTES, commit.to_vec())),
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
