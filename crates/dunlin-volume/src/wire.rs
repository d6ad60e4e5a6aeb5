//! The messages between clients and servers.
//!
//! A write is a *record*: the client encodes it once for all copies, and a server appends it to its log unchanged.
//! Infrequent messages are encoded by postcard. A server decodes untrusted bytes here.

use serde::{Deserialize, Serialize};

use crate::types::{Shape, Version, BLOCK_BYTES, MOST_BLOCKS_AT_ONCE};

/// The handlers of a block server.
pub mod call {
    /// Describe the server's copy of a volume: a name, answered by [`super::Described`].
    pub const DESCRIBE: u16 = 220;
    /// Create a volume: [`super::Create`].
    pub const CREATE: u16 = 221;
    /// Begin an epoch: [`super::Promise`].
    pub const PROMISE: u16 = 222;
    /// Write a record.
    pub const WRITE: u16 = 223;
    /// Read blocks: [`super::encode_read`].
    pub const READ: u16 = 224;
    /// Read blocks, waiting for the disk if necessary.
    pub const READ_SLOW: u16 = 225;
    /// Return digests of chunks: [`super::Chunks`], answered by a word for each.
    pub const DIGESTS: u16 = 226;
    /// Return versions and checksums of the blocks of one chunk: [`super::Chunks`].
    pub const VERSIONS: u16 = 227;
    /// The same, after the blocks were read and compared with their checksums.
    pub const SCRUB: u16 = 228;
    /// Record that the copy is up to date in this epoch: [`super::Named`].
    pub const JOIN: u16 = 229;
    /// Remove the volume, with its blocks: [`super::Named`].
    pub const REMOVE: u16 = 230;
}

/// Error codes of a server.
pub mod code {
    /// The request is malformed.
    pub const MALFORMED: u32 = 1;
    /// There is no such volume here.
    pub const UNKNOWN: u32 = 2;
    /// Another client has opened the volume since.
    pub const REPLACED: u32 = 3;
    /// The request would have to wait for the disk: repeat it as [`super::call::READ_SLOW`].
    pub const WOULD_WAIT: u32 = 4;
    /// The log can no longer be written.
    pub const LOG: u32 = 5;
    /// There is already a volume of this name.
    pub const EXISTS: u32 = 6;
    /// No space.
    pub const FULL: u32 = 7;
    /// A block could not be read, or is not what was written.
    pub const DAMAGED: u32 = 8;
}

/// A server's description of its copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The volume.
    pub shape: Shape,
    /// The index of this server among the volume's servers.
    pub place: u8,
    /// The latest epoch that it has promised.
    pub epoch: u64,
    /// The owner of that epoch.
    pub owner: u64,
    /// Whether it has never lost anything that it has acknowledged.
    pub whole: bool,
    /// The last epoch in which it was made equal to a majority. If two copies differ in it, additional data of the one
    /// with the older epoch was never acknowledged, and an owner since then has read the block without it.
    pub settled: u64,
}

/// Creates a volume, or a copy that is rebuilt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Create {
    /// What [`Described`] says afterwards.
    pub as_described: Described,
}

/// A volume and an epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Named {
    /// The volume.
    pub volume: u64,
    /// The epoch.
    pub epoch: u64,
}

/// The current value of [`Promise::protocol`]. Protocol 1 had no such field, and its clients do not settle copies.
pub const PROTOCOL: u16 = 2;

/// Requests that nobody of an older epoch writes from now on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// The volume.
    pub volume: u64,
    /// The epoch.
    pub epoch: u64,
    /// The owner of the epoch: a random number drawn by the client that opens.
    pub owner: u64,
    /// The protocol that the owner uses: [`PROTOCOL`]. Another is refused.
    pub protocol: u16,
}

/// Chunks of a volume.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Chunks {
    /// The volume.
    pub volume: u64,
    /// The epoch; zero for any, for clients that only read.
    pub epoch: u64,
    /// The first chunk.
    pub first: u64,
    /// Number of chunks.
    pub count: u32,
}

/// Encodes a value.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // These values have no maps or lengths that could not be encoded.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Decodes a value.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// The first bytes of a record.
const MARK: [u8; 4] = *b"DVol";
/// Mark, checksum, volume, version, first block, count, kind.
pub const RECORD_HEAD: usize = 4 + 4 + 8 + 8 + 8 + 4 + 4;
/// Length of the epoch that precedes a record on the wire.
pub const EPOCH_BYTES: usize = 8;
/// Maximum length of a record.
pub const LONGEST_RECORD: usize = RECORD_HEAD + MOST_BLOCKS_AT_ONCE as usize * (4 + BLOCK_BYTES);

const DATA: u32 = 1;
const ZEROS: u32 = 2;

/// The contents of a record's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The data that follows.
    Data,
    /// Zeros, which take no space.
    Zeros,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The volume.
    pub volume: u64,
    /// The version of all its blocks.
    pub version: Version,
    /// The first block.
    pub first: u64,
    /// Number of blocks.
    pub count: u32,
    /// The contents.
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
    /// Number of bytes before the data: the header, and a checksum for each block.
    fn before_data(&self) -> usize {
        match self.kind {
            Kind::Data => RECORD_HEAD + 4 * self.count as usize,
            Kind::Zeros => RECORD_HEAD,
        }
    }

    /// Length of the whole record in bytes.
    pub fn record_bytes(&self) -> usize {
        match self.kind {
            Kind::Data => self.before_data() + self.count as usize * BLOCK_BYTES,
            Kind::Zeros => RECORD_HEAD,
        }
    }

    /// Offset of the n-th block's data in the record.
    pub fn data_at(&self, nth: u32) -> usize {
        self.before_data() + nth as usize * BLOCK_BYTES
    }

    /// Decodes the header at the start of the bytes. Its checksum is not verified.
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

    /// Appends an encoded record. `data` is the blocks' data, and is empty for zeros.
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

/// Changes the version of a record; the data stays the same.
pub fn set_version(record: &mut [u8], version: Version) {
    let Some(head) = Head::of(record) else { return };
    record[16..24].copy_from_slice(&version.0.to_le_bytes());
    seal(&mut record[..head.before_data()]);
}

fn seal(before_data: &mut [u8]) {
    let sum = checksum(&before_data[8..]);
    before_data[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// A record whose header and checksums have been verified.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The header.
    pub head: Head,
    bytes: &'a [u8],
}

/// Why bytes are not a complete record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// They end before the record does.
    Short,
    /// They are not a valid record.
    Wrong,
}

impl<'a> Record<'a> {
    /// Decodes and verifies the record at the start of the bytes.
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

    /// Decodes a record that this process has already verified.
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

    /// The data of the n-th block; `None` if it is zeros.
    pub fn block(&self, nth: u32) -> Option<&'a [u8]> {
        let at = self.head.data_at(nth);
        match self.head.kind {
            Kind::Data => Some(&self.bytes[at..at + BLOCK_BYTES]),
            Kind::Zeros => None,
        }
    }

    /// The whole record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Length of a request to read.
pub const READ_BYTES: usize = 28;

/// A request to read blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The epoch.
    pub epoch: u64,
    /// The volume.
    pub volume: u64,
    /// The first block.
    pub first: u64,
    /// Number of blocks, at most [`MOST_BLOCKS_AT_ONCE`].
    pub count: u32,
}

/// Encodes a request.
pub fn encode_read(read: &Read, out: &mut Vec<u8>) {
    out.clear();
    for word in [read.epoch, read.volume, read.first] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&read.count.to_le_bytes());
}

/// Decodes a request.
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

/// Splits the epoch from the record that follows it.
pub fn split_epoch(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (_, record) = bytes.split_at_checked(EPOCH_BYTES)?;
    Some((word(bytes, 0), record))
}

/// Length of a block's encoded state.
pub const STATE_BYTES: usize = 16;

/// A server's state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// Its version.
    pub version: Version,
    /// The checksum of its data; `None` if it is zeros.
    pub sum: Option<u32>,
}

impl BlockState {
    /// Encodes it into its place in an answer.
    pub fn put(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.version.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.sum.unwrap_or(0).to_le_bytes());
        out[12..16].copy_from_slice(&u32::from(self.sum.is_some()).to_le_bytes());
    }

    /// Decodes it from its place.
    pub fn take(bytes: &[u8]) -> Self {
        Self {
            version: Version(word(bytes, 0)),
            sum: (half(bytes, 12) != 0).then(|| half(bytes, 8)),
        }
    }

    /// Whether the data has this checksum.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        match self.sum {
            Some(sum) => checksum(bytes) == sum,
            None => *bytes == [0; BLOCK_BYTES],
        }
    }
}

/// An answer to a READ: the states, followed by the data.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    states: &'a [u8],
    /// The data of all blocks.
    pub data: &'a [u8],
}

impl<'a> Blocks<'a> {
    /// Length of an answer with this many blocks.
    pub fn length(count: u32) -> usize {
        count as usize * (STATE_BYTES + BLOCK_BYTES)
    }

    /// Decodes an answer with this many blocks.
    pub fn parse(bytes: &'a [u8], count: u32) -> Option<Self> {
        let fits = bytes.len() == Self::length(count);
        let (states, data) = bytes.split_at_checked(count as usize * STATE_BYTES)?;
        fits.then_some(Self { states, data })
    }

    /// The state of the n-th block.
    pub fn state(&self, nth: u32) -> BlockState {
        BlockState::take(&self.states[nth as usize * STATE_BYTES..])
    }

    /// The data of the n-th block.
    pub fn block(&self, nth: u32) -> &'a [u8] {
        &self.data[nth as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// Whether all data is what was written.
    pub fn is_whole(&self, count: u32) -> bool {
        (0..count).all(|nth| self.state(nth).fits(self.block(nth)))
    }
}

#[cfg(test)]
mod tests;
