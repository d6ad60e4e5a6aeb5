//! A GET by READs: what a client reads from a store's memory to find a key, without involving the server's processor.
//!
//! It reads the key's bucket, the item to which a place with the key's tag refers, and the main bucket again: if both
//! reads of the main bucket are equal and even, nothing in the chain has changed in between, and the item is
//! consistent. It is a state machine over bytes; issuing the READs is up to the caller.

use super::bucket::{Control, Place, CONTROL, PLACES};
use super::classes::{class_bytes, CLASSES, RUN};
use super::item::Lengths;
use super::layout::{Key, KvLayout, BUCKET_BYTES};

/// Maximum number of buckets of a chain that are read: chains of correct stores are far shorter.
const MAX_BUCKETS_READ: usize = 64;
/// Bytes READ first of an item whose length is not given by its place.
const FIRST_BYTES: usize = 4096;

/// What a lookup needs next, or its result.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// READ `length` bytes at `offset` of the store's memory and pass them to [`Lookup::next`].
    Read {
        /// From the start of the store's memory.
        offset: usize,
        /// Number of bytes.
        length: usize,
    },
    /// The key's value.
    Found(Vec<u8>),
    /// The key does not exist.
    Absent,
    /// The store changed meanwhile, or its bytes are invalid: start again, or ask the server.
    Disturbed,
}

#[derive(Debug)]
enum State {
    Bucket,
    /// The item of this slot.
    Item(usize),
    /// The whole of a run of blocks.
    Long,
    /// The main bucket again, with the result that is then returned.
    Again(Option<Vec<u8>>),
}

/// The lookup of one key.
#[derive(Debug)]
pub struct Lookup<'a> {
    layout: KvLayout,
    key: Key<'a>,
    state: State,
    /// The main bucket as first read.
    first: [u64; BUCKET_BYTES / 8],
    /// The current bucket.
    line: [u64; BUCKET_BYTES / 8],
    buckets_read: usize,
}

impl<'a> Lookup<'a> {
    /// Starts with the READ of the key's bucket.
    pub fn new(layout: KvLayout, key: Key<'a>) -> (Self, Step) {
        let lookup = Self {
            layout,
            key,
            state: State::Bucket,
            first: [0; 8],
            line: [0; 8],
            buckets_read: 0,
        };
        let step = lookup.read_main();
        (lookup, step)
    }

    /// Continues with the bytes that the last step requested. After the end it returns [`Step::Disturbed`].
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        self.advance(bytes).unwrap_or(Step::Disturbed)
    }

    /// `None`: the bytes read are invalid.
    fn advance(&mut self, bytes: &[u8]) -> Option<Step> {
        match std::mem::replace(&mut self.state, State::Bucket) {
            State::Bucket => {
                self.line = words(bytes)?;
                if self.buckets_read == 0 {
                    self.first = self.line;
                    if Control(self.first[PLACES]).is_changing() {
                        return None;
                    }
                }
                self.buckets_read += 1;
                self.look_from(0)
            }
            State::Item(slot) => self.look_at(slot, bytes),
            State::Long => {
                let value = self.value(bytes)?;
                Some(self.look_again(Some(value)))
            }
            State::Again(outcome) => {
                let unchanged = words(bytes)? == self.first;
                unchanged.then(|| outcome.map_or(Step::Absent, Step::Found))
            }
        }
    }

    fn read_main(&self) -> Step {
        self.read_bucket(self.layout.main_bucket(&self.key))
    }

    fn read_bucket(&self, bucket: u32) -> Step {
        Step::Read {
            offset: self.layout.bucket_offset(bucket),
            length: BUCKET_BYTES,
        }
    }

    fn look_again(&mut self, outcome: Option<Vec<u8>>) -> Step {
        self.state = State::Again(outcome);
        self.read_main()
    }

    /// Goes on to the next place with the key's tag, the next bucket, or the end.
    fn look_from(&mut self, slot: usize) -> Option<Step> {
        let tag = self.key.tag();
        if let Some(slot) = (slot..PLACES).find(|slot| Place(self.line[*slot]).has_tag(tag)) {
            let chunk = Place(self.line[slot]).chunk();
            let length = match chunk.code {
                RUN => FIRST_BYTES,
                code if usize::from(code) < CLASSES => class_bytes(code),
                _ => return None,
            };
            self.state = State::Item(slot);
            return self.read_item(chunk.offset, length);
        }
        let Some(number) = Control(self.line[PLACES]).next().checked_sub(1) else {
            return Some(self.look_again(None));
        };
        if self.buckets_read == MAX_BUCKETS_READ || number >= self.layout.overflow_buckets() {
            return None;
        }
        self.state = State::Bucket;
        Some(self.read_bucket(self.layout.main_buckets() + number))
    }

    fn look_at(&mut self, slot: usize, bytes: &[u8]) -> Option<Step> {
        let lengths = item_lengths(bytes)?;
        if !self.has_key(lengths, bytes)? {
            return self.look_from(slot + 1);
        }
        if lengths.item_bytes() <= bytes.len() {
            let value = self.value(bytes)?;
            return Some(self.look_again(Some(value)));
        }
        let chunk = Place(self.line[slot]).chunk();
        if chunk.code != RUN || lengths.value > self.layout.longest_value() {
            return None;
        }
        self.state = State::Long;
        self.read_item(chunk.offset, lengths.item_bytes())
    }

    fn read_item(&self, offset: usize, length: usize) -> Option<Step> {
        let inside = offset >= self.layout.heap_offset()
            && offset.checked_add(length)? <= self.layout.bytes();
        inside.then_some(Step::Read { offset, length })
    }

    /// The value of an item that has been read completely, if it belongs to the key.
    fn value(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let lengths = item_lengths(bytes)?;
        let is_its = self.has_key(lengths, bytes)?;
        let value = bytes.get(lengths.value_offset()..lengths.item_bytes())?;
        is_its.then(|| value.to_vec())
    }

    fn has_key(&self, lengths: Lengths, bytes: &[u8]) -> Option<bool> {
        let key = self.key.bytes;
        Some(lengths.key == key.len() && bytes.get(8..8 + key.len())? == key)
    }
}

fn item_lengths(bytes: &[u8]) -> Option<Lengths> {
    let word = bytes.first_chunk::<8>()?;
    Some(Lengths::from_word(u64::from_ne_bytes(*word)))
}

/// The words of a bucket; the control word comes after the places.
fn words(bytes: &[u8]) -> Option<[u64; BUCKET_BYTES / 8]> {
    const _: () = assert!(CONTROL == BUCKET_BYTES - 8);
    let bytes: &[u8; BUCKET_BYTES] = bytes.try_into().ok()?;
    let mut words = [0; BUCKET_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut one = [0; 8];
        one.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(one);
    }
    Some(words)
}
