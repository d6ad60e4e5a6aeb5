//! What crosses between clients and servers.
//!
//! A write is a *record*: the client makes it once for all copies, and a server puts it into its log as it is. What is
//! rare crosses in postcard's encoding. A server reads bytes here that a stranger may have written.

use serde::{Deserialize, Serialize};

use crate::types::{Shape, Version, BLOCK_BYTES, MOST_BLOCKS_AT_ONCE};

/// The handlers of a block server.
pub mod call {
    /// What the server has of a volume: a name, answered by [`super::Described`].
    pub const DESCRIBE: u16 = 220;
    /// A volume is made: [`super::Create`].
    pub const CREATE: u16 = 221;
    /// An epoch begins: [`super::Promise`].
    pub const PROMISE: u16 = 222;
    /// A record.
    pub const WRITE: u16 = 223;
    /// Blocks: [`super::encode_read`].
    pub const READ: u16 = 224;
    /// The same, where the disk must be waited for.
    pub const READ_SLOW: u16 = 225;
    /// Digests of chunks: [`super::Chunks`], answered by a word for each.
    pub const DIGESTS: u16 = 226;
    /// Versions and checksums of the blocks of one chunk: [`super::Chunks`].
    pub const VERSIONS: u16 = 227;
    /// The same, after the blocks were read and compared with their checksums.
    pub const SCRUB: u16 = 228;
    /// The copy has all that it must have in this epoch, and remembers so: [`super::Named`].
    pub const JOIN: u16 = 229;
    /// The volume goes, with its blocks: [`super::Named`].
    pub const REMOVE: u16 = 230;
}

/// Codes of a server's errors.
pub mod code {
    /// A request that is none.
    pub const MALFORMED: u32 = 1;
    /// No such volume here.
    pub const UNKNOWN: u32 = 2;
    /// Another has opened the volume since.
    pub const REPLACED: u32 = 3;
    /// The disk would have to be waited for: ask again by [`super::call::READ_SLOW`].
    pub const WOULD_WAIT: u32 = 4;
    /// The log cannot be written any more.
    pub const LOG: u32 = 5;
    /// There is a volume of this name.
    pub const EXISTS: u32 = 6;
    /// No room.
    pub const FULL: u32 = 7;
    /// A block could not be read, or is not what was written.
    pub const DAMAGED: u32 = 8;
}

/// What a server has of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The volume.
    pub shape: Shape,
    /// Which of its servers this one is.
    pub place: u8,
    /// The newest epoch that it has promised.
    pub epoch: u64,
    /// Whose epoch that is.
    pub owner: u64,
    /// Whether it has never lost anything that it has acknowledged.
    pub whole: bool,
    /// The last epoch in which it was made equal to a majority. Where two copies differ in it, what the one of the
    /// older epoch has more of was never acknowledged, and an owner since then has read the block without it.
    pub settled: u64,
}

/// A volume, or a copy that is built anew, is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Create {
    /// As [`Described`] says afterwards.
    pub as_described: Described,
}

/// A volume, in an epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Named {
    /// The volume.
    pub volume: u64,
    /// The epoch.
    pub epoch: u64,
}

/// What [`Promise::protocol`] says now. Protocol 1 had no such word, and its clients do not settle copies.
pub const PROTOCOL: u16 = 2;

/// From now on nobody of an older epoch writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// The volume.
    pub volume: u64,
    /// The epoch.
    pub epoch: u64,
    /// Whose it is: drawn by who opens.
    pub owner: u64,
    /// What its owner speaks: [`PROTOCOL`]. Another is refused.
    pub protocol: u16,
}

/// Chunks of a volume.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Chunks {
    /// The volume.
    pub volume: u64,
    /// The epoch; zero: whichever there is, for who only looks.
    pub epoch: u64,
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u32,
}

/// As bytes.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // These values have no maps or lengths that could not be encoded.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Of bytes.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// What a record begins with.
const MARK: [u8; 4] = *b"DVol";
/// Mark, checksum, volume, version, first block, count, kind.
pub const RECORD_HEAD: usize = 4 + 4 + 8 + 8 + 8 + 4 + 4;
/// The epoch that stands before a record on the wire.
pub const EPOCH_BYTES: usize = 8;
/// Longest record.
pub const LONGEST_RECORD: usize = RECORD_HEAD + MOST_BLOCKS_AT_ONCE as usize * (4 + BLOCK_BYTES);

const DATA: u32 = 1;
const ZEROS: u32 = 2;

/// What a record says of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are these bytes.
    Data,
    /// They are zeros, and take no room.
    Zeros,
}

/// What stands at the beginning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The volume.
    pub volume: u64,
    /// The version of all its blocks.
    pub version: Version,
    /// The first block.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// What they are.
    pub kind: Kind,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

/// The checksum of a block.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

impl Head {
    /// Bytes before the data: the head, and a checksum for each block.
    fn before_data(&self) -> usize {
        match self.kind {
            Kind::Data => RECORD_HEAD + 4 * self.count as usize,
            Kind::Zeros => RECORD_HEAD,
        }
    }

    /// Bytes of the whole record.
    pub fn record_bytes(&self) -> usize {
        match self.kind {
            Kind::Data => self.before_data() + self.count as usize * BLOCK_BYTES,
            Kind::Zeros => RECORD_HEAD,
        }
    }

    /// Where the data of the n-th block is in the record.
    pub fn data_at(&self, nth: u32) -> usize {
        self.before_data() + nth as usize * BLOCK_BYTES
    }

    /// The head that bytes begin with. Its checksum is not looked at.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..RECORD_HEAD)?;
        let kind = match half(head, 36) {
            DATA => Kind::Data,
            ZEROS => Kind::Zeros,
            _ => return None,
        };
        let count = half(head, 32);
        let most = match kind {
            Kind::Data => MOST_BLOCKS_AT_ONCE,
            Kind::Zeros => u32::MAX,
        };
        let is_one = head[..4] == MARK && (1..=most).contains(&count);
        is_one.then(|| Self {
            volume: word(head, 8),
            version: Version(word(head, 16)),
            first: word(head, 24),
            count,
            kind,
        })
    }

    /// Appends a record. `data` gives the blocks, and is empty for zeros.
    pub fn encode(&self, data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MARK);
        out.extend_from_slice(&[0; 4]);
        for word in [self.volume, self.version.0, self.first] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let kind = match self.kind {
            Kind::Data => DATA,
            Kind::Zeros => ZEROS,
        };
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        if self.kind == Kind::Data {
            for block in data.chunks_exact(BLOCK_BYTES) {
                out.extend_from_slice(&checksum(block).to_le_bytes());
            }
        }
        seal(&mut out[start..]);
        if self.kind == Kind::Data {
            out.extend_from_slice(data);
        }
    }
}

/// Gives a record another version; the data is as it was.
pub fn set_version(record: &mut [u8], version: Version) {
    let Some(head) = Head::of(record) else { return };
    record[16..24].copy_from_slice(&version.0.to_le_bytes());
    seal(&mut record[..head.before_data()]);
}

fn seal(before_data: &mut [u8]) {
    let sum = checksum(&before_data[8..]);
    before_data[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// A record whose head and checksums were compared.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its head.
    pub head: Head,
    bytes: &'a [u8],
}

/// Bytes are no whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// They end before it does.
    Short,
    /// They are something else.
    Wrong,
}

impl<'a> Record<'a> {
    /// The record that bytes begin with.
    ///
    /// # Errors
    /// See [`RecordFault`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordFault> {
        if bytes.len() < RECORD_HEAD {
            return Err(RecordFault::Short);
        }
        let head = Head::of(bytes).ok_or(RecordFault::Wrong)?;
        let bytes = bytes.get(..head.record_bytes()).ok_or(RecordFault::Short)?;
        let before_data = &bytes[8..head.before_data()];
        if checksum(before_data) != half(bytes, 4) {
            return Err(RecordFault::Wrong);
        }
        let record = Self { head, bytes };
        let is_whole = (0..head.count).all(|nth| record.is_whole(nth));
        is_whole.then_some(record).ok_or(RecordFault::Wrong)
    }

    /// A record that this process has parsed before.
    pub fn known(bytes: &'a [u8]) -> Option<Self> {
        let head = Head::of(bytes)?;
        let bytes = bytes.get(..head.record_bytes())?;
        Some(Self { head, bytes })
    }

    fn is_whole(&self, nth: u32) -> bool {
        self.block(nth)
            .is_none_or(|block| checksum(block) == self.sum(nth))
    }

    /// The checksum of the n-th block.
    pub fn sum(&self, nth: u32) -> u32 {
        match self.head.kind {
            Kind::Data => half(self.bytes, RECORD_HEAD + 4 * nth as usize),
            Kind::Zeros => 0,
        }
    }

    /// The n-th block; none where it is zeros.
    pub fn block(&self, nth: u32) -> Option<&'a [u8]> {
        let at = self.head.data_at(nth);
        match self.head.kind {
            Kind::Data => Some(&self.bytes[at..at + BLOCK_BYTES]),
            Kind::Zeros => None,
        }
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Bytes of a request to read.
pub const READ_BYTES: usize = 28;

/// A request to read blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// In which epoch.
    pub epoch: u64,
    /// The volume.
    pub volume: u64,
    /// The first block.
    pub first: u64,
    /// How many, [`MOST_BLOCKS_AT_ONCE`] at most.
    pub count: u32,
}

/// As bytes.
pub fn encode_read(read: &Read, out: &mut Vec<u8>) {
    out.clear();
    for word in [read.epoch, read.volume, read.first] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&read.count.to_le_bytes());
}

/// Of bytes.
pub fn decode_read(bytes: &[u8]) -> Option<Read> {
    let read = (bytes.len() == READ_BYTES).then(|| Read {
        epoch: word(bytes, 0),
        volume: word(bytes, 8),
        first: word(bytes, 16),
        count: half(bytes, 24),
    })?;
    (1..=MOST_BLOCKS_AT_ONCE)
        .contains(&read.count)
        .then_some(read)
}

/// Splits the epoch from the record behind it.
pub fn split_epoch(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (_, record) = bytes.split_at_checked(EPOCH_BYTES)?;
    Some((word(bytes, 0), record))
}

/// Bytes that say of one block what it is.
pub const STATE_BYTES: usize = 16;

/// What a server has of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// Its version.
    pub version: Version,
    /// The checksum of its bytes; none where it is zeros.
    pub sum: Option<u32>,
}

impl BlockState {
    /// Into its place of an answer.
    pub fn put(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.version.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.sum.unwrap_or(0).to_le_bytes());
        out[12..16].copy_from_slice(&u32::from(self.sum.is_some()).to_le_bytes());
    }

    /// Out of its place.
    pub fn take(bytes: &[u8]) -> Self {
        Self {
            version: Version(word(bytes, 0)),
            sum: (half(bytes, 12) != 0).then(|| half(bytes, 8)),
        }
    }

    /// Whether these are the bytes.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        match self.sum {
            Some(sum) => checksum(bytes) == sum,
            None => *bytes == [0; BLOCK_BYTES],
        }
    }
}

/// An answer to a READ: the states, and the bytes behind them.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    states: &'a [u8],
    /// The bytes of all blocks.
    pub data: &'a [u8],
}

impl<'a> Blocks<'a> {
    /// Bytes of an answer with so many blocks.
    pub fn length(count: u32) -> usize {
        count as usize * (STATE_BYTES + BLOCK_BYTES)
    }

    /// An answer with so many blocks.
    pub fn parse(bytes: &'a [u8], count: u32) -> Option<Self> {
        let fits = bytes.len() == Self::length(count);
        let (states, data) = bytes.split_at_checked(count as usize * STATE_BYTES)?;
        fits.then_some(Self { states, data })
    }

    /// The state of the n-th block.
    pub fn state(&self, nth: u32) -> BlockState {
        BlockState::take(&self.states[nth as usize * STATE_BYTES..])
    }

    /// The bytes of the n-th block.
    pub fn block(&self, nth: u32) -> &'a [u8] {
        &self.data[nth as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// Whether all bytes are what was written.
    pub fn is_whole(&self, count: u32) -> bool {
        (0..count).all(|nth| self.state(nth).fits(self.block(nth)))
    }
}

#[cfg(test)]
mod tests;
