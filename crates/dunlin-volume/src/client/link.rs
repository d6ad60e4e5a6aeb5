//! A connection to a block server for individual calls: everything that is not on the path of reads and writes.

use std::sync::Arc;
use std::time::Duration;

use dunlin::{CallError, ChannelConfig, Client, ClientBuilder, ConnectError, Pipeline, Preset};

use super::calls::{Calls, Entry};
use super::VolumeError;
use crate::types::{Shape, Version, BLOCK_BYTES};
use crate::wire::{
    self, call, code, decode, encode, BlockState, Blocks, Chunks, Create, Described, Head, Kind,
    Named, Promise, Read, EPOCH_BYTES, STATE_BYTES,
};

/// Number of outstanding calls while many blocks are copied.
pub(super) const AT_ONCE: usize = 32;
/// A block with its headers fits into a message of the ring.
const EAGER_BYTES: usize = 8 << 10;
/// Many such messages fit into a ring.
const RING_BYTES: usize = 256 << 10;
/// Maximum number of outstanding calls of an open volume to one server.
pub(super) const WINDOW: usize = 512;

/// The channel limits of block servers and their clients: a block fits into one message.
pub fn channel() -> ChannelConfig {
    ChannelConfig {
        ring_bytes: RING_BYTES,
        eager_bytes: EAGER_BYTES,
        ..ChannelConfig::default()
    }
}

/// The connection settings and time limits of a client.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// How servers are reached: preset, device, secret, certificates. The limits of its channels and its deadline are
    /// overridden by what volumes need.
    pub client: ClientBuilder,
    /// Time that a copy may leave a request unanswered before the others go on without it.
    pub replace_after: Duration,
    /// Time for which an operation is retried while too few copies answer.
    pub patience: Duration,
}

impl Default for VolumeOptions {
    /// 2 s, which is longer than a disk takes even under load, and 30 s.
    fn default() -> Self {
        Self {
            client: Client::builder().preset(Preset::Plain),
            replace_after: Duration::from_secs(2),
            patience: Duration::from_secs(30),
        }
    }
}

impl VolumeOptions {
    fn builder(&self) -> ClientBuilder {
        let builder = self.client.clone().channel(channel());
        let builder = builder.connect_timeout(self.replace_after.min(Duration::from_secs(5)));
        builder.deadline(self.replace_after.max(Duration::from_secs(5)))
    }
}

/// A connection to one server.
#[derive(Clone, Debug)]
pub(super) struct Link {
    client: Client,
    address: String,
    /// Lets another thread end its calls.
    _entry: Arc<Entry>,
}

/// A block to be written to another copy.
pub(super) struct Copied {
    pub(super) block: u64,
    pub(super) state: BlockState,
    pub(super) bytes: Vec<u8>,
}

impl Link {
    pub(super) fn connect(
        address: &str,
        options: &VolumeOptions,
        calls: &Calls,
    ) -> Result<Self, VolumeError> {
        let client = options
            .builder()
            .connect(address)
            .map_err(|error| VolumeError::Server {
                address: address.to_owned(),
                source: CallError::Connect(error.into()),
            })?;
        Ok(Self {
            _entry: Arc::new(calls.add(&client)),
            client,
            address: address.to_owned(),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn failed(&self, error: CallError) -> VolumeError {
        VolumeError::of_call(&self.address, error)
    }

    fn strange(&self) -> VolumeError {
        VolumeError::Strange(self.address.clone())
    }

    fn call(&self, handler: u16, payload: &[u8]) -> Result<dunlin::Reply, VolumeError> {
        self.client
            .call(handler, payload)
            .map_err(|error| self.failed(error))
    }

    /// Opens a lane for many reads and writes.
    pub(super) fn pipeline(&self) -> Result<Pipeline, VolumeError> {
        let made = self.client.pipeline_of(WINDOW);
        made.map_err(|error: ConnectError| self.failed(CallError::Connect(error.into())))
    }

    pub(super) fn describe(&self, name: &str) -> Result<Described, VolumeError> {
        let reply = self.call(call::DESCRIBE, name.as_bytes())?;
        let described: Described = decode(&reply).ok_or_else(|| self.strange())?;
        let shape = &described.shape;
        match shape.validate().is_ok() && described.place < shape.servers {
            true => Ok(described),
            false => Err(self.strange()),
        }
    }

    /// Creates a copy. A server of an earlier version accepts a request that it understands in part, so what it has
    /// made is asked for, and removed if it is not the same.
    pub(super) fn create(&self, as_described: &Described) -> Result<(), VolumeError> {
        let create = Create {
            as_described: as_described.clone(),
        };
        let name = &as_described.shape.name;
        match self.client.call(call::CREATE, &encode(&create)) {
            Ok(_) => match self.describe(name) {
                Ok(made) if made == *as_described => Ok(()),
                made => {
                    let named = Named {
                        volume: as_described.shape.id,
                        epoch: as_described.epoch,
                    };
                    // The error that is returned is the first one.
                    let _ = self.remove(&named);
                    Err(made.err().unwrap_or_else(|| self.strange()))
                }
            },
            Err(CallError::Handler {
                code: code::EXISTS, ..
            }) => Err(VolumeError::Exists {
                name: name.clone(),
                address: self.address.clone(),
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(super) fn promise(&self, promise: &Promise) -> Result<Described, VolumeError> {
        let reply = self.call(call::PROMISE, &encode(promise))?;
        decode(&reply).ok_or_else(|| self.strange())
    }

    pub(super) fn join(&self, named: &Named) -> Result<(), VolumeError> {
        self.call(call::JOIN, &encode(named)).map(drop)
    }

    pub(super) fn remove(&self, named: &Named) -> Result<(), VolumeError> {
        self.call(call::REMOVE, &encode(named)).map(drop)
    }

    pub(super) fn digests(&self, chunks: &Chunks) -> Result<Vec<u64>, VolumeError> {
        let reply = self.call(call::DIGESTS, &encode(chunks))?;
        if reply.len() != chunks.count as usize * 8 {
            return Err(self.strange());
        }
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rfold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        Ok(reply.chunks_exact(8).map(word).collect())
    }

    /// Returns the server's state of the blocks of a chunk, optionally after it has compared them with their checksums.
    pub(super) fn states(
        &self,
        shape: &Shape,
        epoch: u64,
        chunk: u64,
        compared: bool,
    ) -> Result<Vec<BlockState>, VolumeError> {
        let chunks = Chunks {
            volume: shape.id,
            epoch,
            first: chunk,
            count: 1,
        };
        let handler = if compared {
            call::SCRUB
        } else {
            call::VERSIONS
        };
        let reply = self.call(handler, &encode(&chunks))?;
        let first = chunk * u64::from(shape.chunk_blocks);
        let blocks = (shape.blocks - first).min(u64::from(shape.chunk_blocks)) as usize;
        match reply.len() == blocks * STATE_BYTES {
            true => Ok(reply
                .chunks_exact(STATE_BYTES)
                .map(BlockState::take)
                .collect()),
            false => Err(self.strange()),
        }
    }

    /// Reads blocks, in the given order; `None` for one that the server cannot return as it was written.
    pub(super) fn read(
        &self,
        volume: u64,
        epoch: u64,
        blocks: &[u64],
    ) -> Result<Vec<Option<Copied>>, VolumeError> {
        let mut copied = Vec::with_capacity(blocks.len());
        for some in blocks.chunks(AT_ONCE) {
            let requests: Vec<Vec<u8>> = some
                .iter()
                .map(|first| {
                    let mut request = Vec::new();
                    let read = Read {
                        epoch,
                        volume,
                        first: *first,
                        count: 1,
                    };
                    wire::encode_read(&read, &mut request);
                    request
                })
                .collect();
            // Those that must wait for the disk do so concurrently.
            let replies = self.send(call::READ_SLOW, &requests)?;
            for (block, reply) in some.iter().zip(replies) {
                let reply = match reply {
                    Err(CallError::Handler {
                        code: code::DAMAGED,
                        ..
                    }) => {
                        copied.push(None);
                        continue;
                    }
                    reply => reply.map_err(|error| self.failed(error))?,
                };
                let found = Blocks::parse(&reply, 1).ok_or_else(|| self.strange())?;
                let state = found.state(0);
                let bytes = || state.sum.map_or_else(Vec::new, |_| found.data.to_vec());
                copied.push(found.is_whole(1).then(|| Copied {
                    block: *block,
                    state,
                    bytes: bytes(),
                }));
            }
        }
        Ok(copied)
    }

    /// Writes blocks with their existing versions.
    pub(super) fn write(
        &self,
        volume: u64,
        epoch: u64,
        blocks: &[&Copied],
    ) -> Result<(), VolumeError> {
        for some in blocks.chunks(AT_ONCE) {
            let requests: Vec<Vec<u8>> = some
                .iter()
                .map(|copied| {
                    let mut request = Vec::with_capacity(EPOCH_BYTES + 64 + BLOCK_BYTES);
                    request.extend_from_slice(&epoch.to_le_bytes());
                    let head = Head {
                        volume,
                        version: copied.state.version,
                        first: copied.block,
                        count: 1,
                        kind: copied.state.sum.map_or(Kind::Zeros, |_| Kind::Data),
                    };
                    head.encode(&copied.bytes, &mut request);
                    request
                })
                .collect();
            for reply in self.send(call::WRITE, &requests)? {
                reply.map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }

    fn send(
        &self,
        handler: u16,
        requests: &[Vec<u8>],
    ) -> Result<Vec<Result<dunlin::Reply, CallError>>, VolumeError> {
        let batch = self.client.batch();
        let batch = requests
            .iter()
            .fold(batch, |batch, request| batch.call(handler, request));
        batch.send().map_err(|error| self.failed(error))
    }
}

/// Gives a block a version reserved for repairs, which is before everything that the owner of the epoch writes, and
/// after everything before the epoch.
pub(super) fn repaired(mut copied: Copied, epoch: u64) -> Copied {
    if copied.state.version.epoch() < epoch {
        copied.state.version = Version::new(epoch, 0);
    }
    copied
}
