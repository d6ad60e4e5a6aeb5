//! A message in a block: right-aligned (ScaleRPC §3.1), so that its last word is the last of the block, whatever its
//! length.
//!
//! ```text
//! | free | payload, to 8 B | header 16 B | turn 8 B | seal 8 B |
//! ```
//!
//! The paper's Valid byte shows that all has arrived because a NIC writes in ascending order. The *seal* shows it
//! because it is computed from the whole rest of the message: a sum, or a MAC where others can write into the same
//! memory ([`Seals`]).

use std::hash::Hasher;
use std::sync::atomic::Ordering;

use dunlin_verbs::{prefetch_to_read, Memory};
use siphasher::sip::SipHasher13;

use super::bits;
use crate::channel::message::{Header, HEADER_BYTES};
use crate::channel::short_copy::copy;

/// Number of bytes after the payload.
pub(crate) const TAIL_BYTES: usize = SEALED_BYTES + 8;
/// Number of these that the seal covers: header and turn.
const SEALED_BYTES: usize = HEADER_BYTES + 8;

/// Size of a cache line in bytes; blocks end with one.
pub(crate) const LINE_BYTES: usize = 64;

/// Contiguous blocks in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Byte offset of the first block.
    pub(crate) start: usize,
    /// Size of each block in bytes.
    pub(crate) bytes: usize,
}

/// The result of polling a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// Nothing new.
    Known,
    /// Something new that is not a complete message yet.
    Part,
    /// A message with its turn.
    Whole(Header, u64),
}

impl Blocks {
    /// The end of a block.
    #[inline]
    pub(crate) fn end(&self, block: usize) -> usize {
        self.start + (block + 1) * self.bytes
    }

    /// The seal at the end of a block. Zero: nothing was ever written there.
    #[inline]
    fn seal(&self, memory: &Memory, block: usize) -> u64 {
        let word = memory.atomic_u64(self.end(block) - 8);
        u64::from_le(word.load(Ordering::Acquire))
    }

    /// Clears a block so that it contains nothing that could be taken for a message.
    #[inline]
    pub(crate) fn clear(&self, memory: &Memory, block: usize) {
        let word = memory.atomic_u64(self.end(block) - 8);
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the contents of a block differ from what was `seen` there.
    #[inline]
    pub(crate) fn is_new(&self, memory: &Memory, block: usize, seen: u64) -> bool {
        self.seal(memory, block) != seen
    }

    /// Whether there is a complete message that was not seen or, for a block with other new contents, what `counts`
    /// returns. Otherwise incomplete or invalid messages do not keep the reader awake: the peer that writes the rest
    /// wakes it.
    pub(crate) fn have_arrival(
        &self,
        memory: &Memory,
        seen: &[u64],
        seals: &Seals,
        counts: impl Fn(usize) -> bool,
    ) -> bool {
        (0..seen.len()).any(|block| {
            let is_whole = || {
                let mut target = vec![0; self.bytes];
                self.read(memory, block, seals, &mut target).is_some()
            };
            self.is_new(memory, block, seen[block]) && (counts(block) || is_whole())
        })
    }

    /// The blocks of a set whose contents differ from what was `seen` there. Where peers store by CPU, the blocks' last
    /// lines are in another core's cache: here all are requested at once, and for each new one also the line before it,
    /// which most messages extend to.
    #[inline]
    pub(crate) fn news(&self, memory: &Memory, set: u32, seen: &[u64]) -> u32 {
        let mut new = 0;
        for block in bits(set) {
            new |= u32::from(self.is_new(memory, block, seen[block])) << block;
        }
        for block in bits(new) {
            let line = self.end(block) - 2 * LINE_BYTES;
            prefetch_to_read(memory.start().as_ptr().wrapping_add(line));
        }
        new
    }

    /// Takes the message of a block, if its seal differs from the one `seen`: then its payload is at the beginning of
    /// `target`.
    #[inline]
    pub(crate) fn take(
        &self,
        memory: &Memory,
        block: usize,
        seen: &mut u64,
        seals: &Seals,
        target: &mut [u8],
    ) -> Look {
        if !self.is_new(memory, block, *seen) {
            return Look::Known;
        }
        match self.read(memory, block, seals, target) {
            Some((header, turn, seal)) => {
                // The seal that was checked. The first read may have seen half of it (a software NIC writes bytes), and
                // the message would be taken again.
                *seen = seal;
                Look::Whole(header, turn)
            }
            None => Look::Part,
        }
    }

    /// Copies the message of a block out and checks its seal: returns its header, turn and seal if it is complete and
    /// its payload fits into `target`.
    #[inline]
    fn read(
        &self,
        memory: &Memory,
        block: usize,
        seals: &Seals,
        target: &mut [u8],
    ) -> Option<(Header, u64, u64)> {
        let end = self.end(block);
        let mut tail = [0; TAIL_BYTES];
        memory.read(end - TAIL_BYTES, &mut tail);
        let (sealed, seal) = tail.split_first_chunk::<SEALED_BYTES>()?;
        let header = Header::read(sealed.first_chunk()?)?;
        let padded = padded(header.length as usize)?;
        if padded + TAIL_BYTES > target.len().min(self.bytes) {
            return None;
        }
        let payload = &mut target[..padded];
        memory.read(end - TAIL_BYTES - padded, payload);
        let seal = u64::from_le_bytes(*seal.first_chunk()?);
        let turn = u64::from_le_bytes(*sealed.last_chunk()?);
        (seals.seal(block, payload, sealed) == seal).then_some((header, turn, seal))
    }
}

/// A length rounded up to a multiple of eight; `None`: no message is so long.
#[inline]
fn padded(length: usize) -> Option<usize> {
    (length < 1 << 30).then(|| (length + 7) & !7)
}

/// The seals of one direction of a connection. The reader chooses the secret at random and gives it only to the writer.
#[derive(Clone, Debug)]
pub(crate) enum Seals {
    /// For memory that only the writer writes: a sum that a message has when it is complete.
    Sum(u64),
    /// For memory that others write as well: a MAC (SipHash-1-3), so that messages made by others are invalid, whatever
    /// they know except the key. One try in 2^64 passes. Only the reader sees a seal, so the shorter form of SipHash is
    /// sufficient.
    Mac(Box<SipHasher13>),
}

impl Seals {
    /// A seal that shows that a message is complete.
    pub(crate) fn sum(secret: u64) -> Self {
        Self::Sum(secret)
    }

    /// A seal that also shows that the message was made by a holder of the key.
    pub(crate) fn mac([low, high]: [u64; 2]) -> Self {
        Self::Mac(Box::new(SipHasher13::new_with_keys(low, high)))
    }

    /// The seal of a message in a block, computed from its payload and what follows it; never zero.
    ///
    /// # Panics
    /// When `payload` is not a multiple of eight.
    #[inline]
    fn seal(&self, block: usize, payload: &[u8], tail: &[u8; SEALED_BYTES]) -> u64 {
        assert_eq!(payload.len() % 8, 0, "messages are whole words");
        let seal = match self {
            Self::Sum(secret) => sum(*secret, block, payload, tail),
            Self::Mac(keyed) => {
                let mut hasher = **keyed;
                hasher.write_u64((block as u64).to_le());
                hasher.write(payload);
                hasher.write(tail);
                hasher.finish()
            }
        };
        seal.max(1)
    }
}

/// A keyed sum over whole words, by folded multiplication as in wyhash. It is not cryptographic: it detects what is
/// torn or from an earlier use of the block, where nobody forges messages.
#[inline]
fn sum(secret: u64, block: usize, payload: &[u8], tail: &[u8; SEALED_BYTES]) -> u64 {
    #[inline]
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    #[inline]
    fn word(bytes: &[u8]) -> u64 {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word))
    }
    const K: [u64; 3] = [
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
    ];
    let pair = |sum: u64, first: u64, second: u64| fold(first ^ sum, second ^ K[1]);
    let mut sum = fold(secret ^ K[0], K[1] ^ (block as u64 + 1));
    let (pairs, odd) = payload.as_chunks::<16>();
    for both in pairs {
        sum = pair(sum, word(both), word(&both[8..]));
    }
    let (low, high, turn) = (word(tail), word(&tail[8..]), word(&tail[16..]));
    sum = match odd.is_empty() {
        true => fold(turn ^ pair(sum, low, high), K[2]),
        false => pair(pair(sum, word(odd), low), high, turn),
    };
    fold(sum ^ (payload.len() + SEALED_BYTES) as u64, secret ^ K[2])
}

/// A message being made, in private memory.
#[derive(Debug)]
pub(crate) struct Draft {
    bytes: Box<[u8]>,
}

impl Draft {
    /// For blocks of this size.
    pub(crate) fn new(block_bytes: usize) -> Self {
        Self {
            bytes: vec![0; block_bytes].into(),
        }
    }

    /// The place of the payload, for up to `most` bytes.
    #[inline]
    pub(crate) fn space(&mut self, most: usize) -> &mut [u8] {
        &mut self.bytes[..most]
    }

    /// Copies a payload in.
    #[inline]
    pub(crate) fn fill(&mut self, payload: &[u8]) {
        copy(&mut self.bytes[..payload.len()], payload);
    }

    /// Copies an earlier message of this length back from where it was written, to be sealed again.
    pub(crate) fn take(&mut self, memory: &Memory, end: usize, bytes: usize) {
        memory.read(end - bytes, &mut self.bytes[..bytes]);
    }

    /// Completes the message whose payload is in [`Draft::space`].
    #[inline]
    pub(crate) fn finish(
        &mut self,
        header: Header,
        turn: u64,
        seals: &Seals,
        block: usize,
    ) -> &[u8] {
        let length = header.length as usize;
        let padded = (length + 7) & !7;
        if padded != length {
            // The last word of the payload, with zeros for missing bytes.
            let (last, mask) = (padded - 8, !(u64::MAX << (8 * (length % 8))));
            let word: [u8; 8] = std::array::from_fn(|at| self.bytes[last + at]);
            let word = u64::from_le_bytes(word) & mask;
            self.bytes[last..padded].copy_from_slice(&word.to_le_bytes());
        }
        self.bytes[padded..padded + HEADER_BYTES].copy_from_slice(&header.encode());
        self.seal(padded + TAIL_BYTES, turn, seals, block)
    }

    /// Seals the present message of `bytes` bytes for another turn.
    ///
    /// # Panics
    /// When it is shorter than a message, or longer than a block.
    #[inline]
    pub(crate) fn seal(&mut self, bytes: usize, turn: u64, seals: &Seals, block: usize) -> &[u8] {
        let (payload, tail) = self.bytes[..bytes].split_at_mut(bytes - TAIL_BYTES);
        let (sealed, seal) = tail.split_at_mut(SEALED_BYTES);
        sealed[HEADER_BYTES..].copy_from_slice(&turn.to_le_bytes());
        if let Some(sealed) = sealed.first_chunk() {
            seal.copy_from_slice(&seals.seal(block, payload, sealed).to_le_bytes());
        }
        &self.bytes[..bytes]
    }

    /// The last message made, of this length.
    #[inline]
    pub(crate) fn message(&self, bytes: usize) -> &[u8] {
        &self.bytes[..bytes]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::channel::call_id::call_id;
    use crate::channel::message::Kind;
    use dunlin_verbs::{Access, Device, Region};
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU64;

    const BYTES: usize = 320;

    fn region() -> <dunlin_shm::ShmDevice as Device>::Region {
        let device = crate::devices::shared_memory().unwrap();
        let domain = device.create_protection_domain().unwrap();
        device
            .allocate_region(&domain, 4096, Access::LOCAL_WRITE)
            .unwrap()
    }

    const BLOCKS: Blocks = Blocks {
        start: 64,
        bytes: BYTES,
    };

    fn put(memory: &Memory, block: usize, message: &[u8]) {
        memory.write(BLOCKS.end(block) - message.len(), message);
    }

    fn message(
        draft: &mut Draft,
        payload: &[u8],
        seals: &Seals,
        block: usize,
        turn: u64,
    ) -> Vec<u8> {
        draft.fill(payload);
        let header = Header::new(Kind::Request, 7, call_id(5, 3), payload.len());
        draft.finish(header, turn, seals, block).to_vec()
    }

    /// Both kinds of seals.
    fn seals() -> impl Strategy<Value = Seals> {
        prop_oneof![
            any::<u64>().prop_map(Seals::sum),
            any::<[u64; 2]>().prop_map(Seals::mac)
        ]
    }

    proptest! {
        #[test]
        fn messages_of_all_lengths_come_back_whole(length in 0usize..=BYTES - TAIL_BYTES, seals in seals(), other in seals(), turn: u64, block in 0usize..4) {
            let region = region();
            let memory = region.memory();
            let payload: Vec<u8> = (0..length).map(|i| i as u8 ^ turn as u8).collect();
            let mut draft = Draft::new(BYTES);
            put(memory, block, &message(&mut draft, &payload, &seals, block, turn));
            let mut target = vec![0; BYTES];
            let (header, read, _) = BLOCKS.read(memory, block, &seals, &mut target).unwrap();
            prop_assert_eq!((header.length as usize, header.handler, header.call), (length, 7, call_id(5, 3)));
            prop_assert_eq!(read, turn);
            prop_assert_eq!(&target[..length], &payload[..]);
            prop_assert!(BLOCKS.seal(memory, block) != 0);
            // From another connection, or in another block.
            prop_assert!(BLOCKS.read(memory, block, &other, &mut target).is_none());
            let elsewhere = (block + 1) % 4;
            let copied = message(&mut draft, &payload, &seals, block, turn);
            put(memory, elsewhere, &copied);
            prop_assert!(BLOCKS.read(memory, elsewhere, &seals, &mut target).is_none());
        }

        /// Any change of any bit is detected, whether by a late message of another client or by half of one.
        #[test]
        fn a_message_that_was_touched_is_no_message(length in 0usize..200, at in 0usize..400, flip in 1u8.., seals in seals()) {
            let region = region();
            let memory = region.memory();
            let payload = vec![9; length];
            let sealed = message(&mut Draft::new(BYTES), &payload, &seals, 0, 2);
            put(memory, 0, &sealed);
            let at = at % sealed.len();
            memory.write(BLOCKS.end(0) - sealed.len() + at, &[sealed[at] ^ flip]);
            let mut target = vec![0; BYTES];
            let read = BLOCKS.read(memory, 0, &seals, &mut target);
            // The seal also covers the unused bytes of a header.
            prop_assert!(read.is_none());
        }

        #[test]
        fn any_bytes_are_no_message(bytes in prop::collection::vec(any::<u8>(), BYTES), seals in seals()) {
            let region = region();
            put(region.memory(), 0, &bytes);
            let mut target = vec![0; BYTES];
            prop_assert!(BLOCKS.read(region.memory(), 0, &seals, &mut target).is_none());
        }
    }

    /// With a sum there are messages whose seal is known without the secret: here a factor is zero, then one, then
    /// zero. A pool that others write needs a MAC.
    #[test]
    fn nobody_seals_without_the_key() {
        let factor = 0xe703_7ed1_a0b4_28db_u64;
        // As payload and tail: the payload's only word, and the first of the header.
        let words = [0, factor, 32, factor ^ 1].map(u64::to_le_bytes);
        let (payload, tail) = words.as_flattened().split_at(8);
        let tail = tail.first_chunk().unwrap();
        let keys = || (0..100u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(keys().all(|secret| Seals::sum(secret).seal(3, payload, tail) == 1));
        let mut known = std::collections::HashSet::new();
        for key in keys() {
            for key in [[key, 1], [1, key]] {
                assert!(known.insert(Seals::mac(key).seal(3, payload, tail)) || key == [1, 1]);
            }
        }
        assert!(!known.contains(&1));
    }

    /// Software acting as a NIC writes bytes in any order; a poll may see any of them. Each message is taken exactly
    /// once all the same.
    #[test]
    fn a_message_that_comes_byte_by_byte_is_taken_once() {
        const MESSAGES: u64 = 20_000;
        let region = region();
        let seals = Seals::sum(5);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut draft = Draft::new(BYTES);
                for number in 1..=MESSAGES {
                    let message = message(&mut draft, &number.to_le_bytes(), &seals, 0, number);
                    let start = BLOCKS.end(0) - message.len();
                    for (at, byte) in message.iter().enumerate() {
                        region.memory().write(start + at, &[*byte]);
                        std::hint::black_box(at);
                    }
                    while taken.load(Ordering::Acquire) < number {
                        std::thread::yield_now();
                    }
                }
            });
            let (mut seen, mut target) = (0, vec![0; BYTES]);
            let mut expected = 1;
            while expected <= MESSAGES {
                let mut look = || BLOCKS.take(region.memory(), 0, &mut seen, &seals, &mut target);
                let Look::Whole(_, turn) = look() else {
                    std::thread::yield_now();
                    continue;
                };
                let again = matches!(look(), Look::Whole(..));
                // The writer is released before anything is asserted: it must not wait for ever.
                let wrong = turn != expected || again;
                taken.store(if wrong { MESSAGES } else { expected }, Ordering::Release);
                assert!(
                    !wrong,
                    "message {turn} instead of {expected}, again: {again}"
                );
                expected += 1;
            }
        });
    }

    #[test]
    fn memory_that_nobody_wrote_holds_no_message() {
        let region = region();
        assert_eq!(BLOCKS.seal(region.memory(), 0), 0);
        let read = BLOCKS.read(region.memory(), 0, &Seals::sum(0), &mut [0; BYTES]);
        assert!(read.is_none());
    }
}
