//! Transfers of any length into and out of a region: in pieces, several of which are in flight at a time, on one or
//! more connections.
//!
//! Where the region's memory is mapped here, the caller copies the pieces after the first to and from it, without an
//! operation for each: an operation would do the same, with an additional copy. Elsewhere a piece of a plain slice
//! passes through a registered buffer of its connection; a piece of a [`TransferBuffer`] does not.
//!
//! A transfer is independent of the client's calls: it has pipelines of its own for as long as it lives. Grants belong
//! to a connection, and on `shm` are mapped for it, so it pays to keep one transfer for several uses.

mod buffer;
mod lane;
mod moving;
mod pieces;
mod way;

use std::ops::Range;

use super::RemoteRegion;
use crate::error::CallError;
pub use buffer::TransferBuffer;
use lane::TransferLane;
use moving::Moving;
use pieces::Pieces;
use way::{Get, Put, Way};

/// Length of a piece in bytes: pieces in flight fit into a core's cache, and each is long enough to be worth its work
/// request.
const PIECE_BYTES: usize = 128 << 10;
/// Number of bytes copied at once where the region's memory is mapped: from this length on copies bypass the caches;
/// shorter copies read each line of the target before it is written.
const AT_ONCE_BYTES: usize = 1 << 20;
/// Number of pieces in flight per connection.
const PIECES_OUT: usize = 4;
/// Maximum number of connections of one transfer.
const LANES_MAX: usize = 64;

/// Called with the number of bytes that have arrived.
type Progress<'t> = Box<dyn FnMut(u64) + Send + 't>;

/// A transfer of any length between the caller's memory and a region of the server. Made by [`RemoteRegion::transfer`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = dunlin_rpc::Client::connect("dunlin://127.0.0.1:7400")?;
/// let checkpoint = client.attach("checkpoint")?;
/// let weights = vec![7; 1 << 30];
/// checkpoint.transfer().lanes(2).progress(|arrived| eprintln!("{arrived} bytes")).put(0, &weights)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is transferred until `put` or `get` is called"]
pub struct Transfer<'t> {
    /// The region, as attached by each of the clients.
    regions: Vec<&'t RemoteRegion>,
    lanes: usize,
    piece_bytes: usize,
    progress: Option<Progress<'t>>,
    /// The connections opened so far, alternating between the clients.
    opened: Vec<TransferLane<'t>>,
}

impl std::fmt::Debug for Transfer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer")
            .field("region", &self.regions[0].name())
            .field("clients", &self.regions.len())
            .field("lanes", &self.lanes)
            .field("piece_bytes", &self.piece_bytes)
            .finish_non_exhaustive()
    }
}

/// The error of a transfer that was not completed.
#[derive(Debug, thiserror::Error)]
#[error("transfer failed: {arrived} of {total} bytes arrived: {cause}")]
#[non_exhaustive]
pub struct TransferError {
    /// Length of the contiguous part, from the first byte on, that has arrived: the transfer can be resumed behind it.
    /// Some of the other bytes may have arrived.
    pub arrived: u64,
    /// Number of bytes to be transferred.
    pub total: u64,
    /// Why the transfer ended.
    #[source]
    pub cause: CallError,
}

impl RemoteRegion {
    /// Returns a transfer of any length, with one connection of its own, in pieces of 128 KiB. The deadline of the
    /// region's operations is the longest time that may pass without a piece arriving.
    pub fn transfer(&self) -> Transfer<'_> {
        Transfer {
            regions: vec![self],
            lanes: 1,
            piece_bytes: PIECE_BYTES,
            progress: None,
            opened: Vec::new(),
        }
    }
}

impl<'t> Transfer<'t> {
    /// Sets the number of connections per client, 1 to 64: more than one where a single queue pair does not saturate
    /// the network.
    pub fn lanes(self, lanes: usize) -> Self {
        let lanes = lanes.clamp(1, LANES_MAX);
        Self { lanes, ..self }
    }

    /// Also uses another client: the same memory of the same server, attached over another device, for hosts connected
    /// by several NICs. Pieces go to whichever connection has room.
    ///
    /// # Errors
    /// [`CallError::OtherRegion`] when the other region has another name or length, and so is not the same memory.
    pub fn also_by(mut self, region: &'t RemoteRegion) -> Result<Self, CallError> {
        let first = self.regions[0];
        if (first.name(), first.len()) != (region.name(), region.len()) {
            return Err(CallError::OtherRegion {
                region: first.name().to_owned(),
                bytes: first.len(),
                other: region.name().to_owned(),
                other_bytes: region.len(),
            });
        }
        self.regions.push(region);
        Ok(self)
    }

    /// Sets the length of a piece in bytes, at least one.
    pub fn piece_bytes(self, bytes: usize) -> Self {
        let piece_bytes = bytes.max(1);
        Self {
            piece_bytes,
            ..self
        }
    }

    /// Sets a function that is called on the caller's thread whenever more has arrived, with the number of contiguous
    /// bytes from the first on.
    pub fn progress(self, report: impl FnMut(u64) + Send + 't) -> Self {
        Self {
            progress: Some(Box::new(report)),
            ..self
        }
    }

    /// Allocates registered memory of `length` bytes, at least one, for [`Transfer::put_from`] and
    /// [`Transfer::get_into`].
    ///
    /// # Errors
    /// When there is no memory, no connection, or the preset has no one-sided operations.
    pub fn buffer(&mut self, length: usize) -> Result<TransferBuffer, CallError> {
        self.open(1)?;
        TransferBuffer::new(&mut self.opened[0], length)
    }

    /// Writes `source` into the region at `offset`. All of it is there when this returns.
    ///
    /// # Errors
    /// [`TransferError`], whose cause is one of those of [`RemoteRegion::write`]; nothing is written unless all of it
    /// lies in the region.
    pub fn put(&mut self, offset: u64, source: &[u8]) -> Result<(), TransferError> {
        self.run((offset, source.len()), &mut Put::of(source))
    }

    /// As [`Transfer::put`], from a part of registered memory, which is not copied on the way.
    ///
    /// # Errors
    /// As for [`Transfer::put`]; or [`CallError::BufferInUse`].
    ///
    /// # Panics
    /// When the part is not inside the buffer.
    pub fn put_from(
        &mut self,
        offset: u64,
        source: &TransferBuffer,
        part: Range<usize>,
    ) -> Result<(), TransferError> {
        let length = source.check(&part)?;
        self.run((offset, length), &mut Put::of((source, part)))
    }

    /// Reads the region from `offset` on.
    ///
    /// # Errors
    /// As for [`Transfer::put`]; parts of `into` that have not arrived are unchanged.
    pub fn get(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        let length = into.len();
        self.run((offset, length), &mut Get::of(into))
    }

    /// As [`Transfer::get`], directly into a part of registered memory.
    ///
    /// # Errors
    /// As for [`Transfer::put_from`]; the contents of parts that have not arrived are unspecified.
    ///
    /// # Panics
    /// When the part is not inside the buffer.
    pub fn get_into(
        &mut self,
        offset: u64,
        into: &mut TransferBuffer,
        part: Range<usize>,
    ) -> Result<(), TransferError> {
        let length = into.check(&part)?;
        self.run((offset, length), &mut Get::of((into, part)))
    }

    /// As [`Transfer::put`], for a task: the executor's thread is free while pieces are in flight. Where the memory of
    /// the region is mapped here, a mebibyte is copied between two yields to the executor.
    ///
    /// Dropping the future stops the transfer where it is, as an error does; its connections are then made anew. They
    /// are made on the thread that polls.
    ///
    /// # Errors
    /// As for [`Transfer::put`].
    pub async fn put_async(&mut self, offset: u64, source: &[u8]) -> Result<(), TransferError> {
        let length = source.len();
        self.run_async((offset, length), &mut Put::of(source)).await
    }

    /// As [`Transfer::put_from`], for a task like [`Transfer::put_async`].
    ///
    /// # Errors
    /// As for [`Transfer::put_from`].
    ///
    /// # Panics
    /// When the part is not inside the buffer.
    pub async fn put_from_async(
        &mut self,
        offset: u64,
        source: &TransferBuffer,
        part: Range<usize>,
    ) -> Result<(), TransferError> {
        let length = source.check(&part)?;
        let put = &mut Put::of((source, part));
        self.run_async((offset, length), put).await
    }

    /// As [`Transfer::get`], for a task like [`Transfer::put_async`].
    ///
    /// # Errors
    /// As for [`Transfer::get`].
    pub async fn get_async(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        let length = into.len();
        self.run_async((offset, length), &mut Get::of(into)).await
    }

    /// As [`Transfer::get_into`], for a task like [`Transfer::put_async`].
    ///
    /// # Errors
    /// As for [`Transfer::get_into`].
    ///
    /// # Panics
    /// When the part is not inside the buffer.
    pub async fn get_into_async(
        &mut self,
        offset: u64,
        into: &mut TransferBuffer,
        part: Range<usize>,
    ) -> Result<(), TransferError> {
        let length = into.check(&part)?;
        let get = &mut Get::of((into, part));
        self.run_async((offset, length), get).await
    }

    fn run(
        &mut self,
        (offset, length): (u64, usize),
        way: &mut dyn Way,
    ) -> Result<(), TransferError> {
        let mut moving = self.begin(offset, length, way)?;
        let ended = moving.run();
        moving.end(ended)
    }

    async fn run_async(
        &mut self,
        (offset, length): (u64, usize),
        way: &mut (dyn Way + Send),
    ) -> Result<(), TransferError> {
        let mut moving = self.begin(offset, length, way)?;
        let ended = moving.run_async().await;
        moving.end(ended)
    }

    fn begin<'m, W: Way + ?Sized>(
        &'m mut self,
        offset: u64,
        length: usize,
        way: &'m mut W,
    ) -> Result<Moving<'m, 't, W>, TransferError> {
        let pieces = Pieces::new(length, self.piece_bytes);
        let refused = |cause| TransferError {
            arrived: 0,
            total: length as u64,
            cause,
        };
        let region = self.regions[0];
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > region.len()) {
            return Err(refused(CallError::RegionBounds {
                region: region.name().to_owned(),
                offset,
                bytes: length,
                length: region.len(),
            }));
        }
        let lanes = self.lanes * self.regions.len();
        self.open(lanes.min(pieces.count)).map_err(refused)?;
        let report = &mut self.progress;
        Ok(Moving::new(&mut self.opened, report, (offset, pieces), way))
    }

    /// Opens connections until there are `lanes`.
    fn open(&mut self, lanes: usize) -> Result<(), CallError> {
        while self.opened.len() < lanes {
            let by = self.regions[self.opened.len() % self.regions.len()];
            self.opened.push(TransferLane::open(by)?);
        }
        Ok(())
    }
}
