//! Bytes of any length into a region and out of it: in pieces, several of which are out at a time, on one connection or
//! more.
//!
//! Where the region's memory is mapped here the pieces behind the first are copied to and from it by the caller,
//! without an operation for each: that is what the operation would do, after another copy. Elsewhere a piece of a plain
//! slice goes through a registered buffer of its connection, and one of a [`TransferBuffer`] does not.
//!
//! Beside the calls of a client: a transfer has pipelines of its own, for as long as it lives. What a server grants is
//! granted to a connection, and on `shm` mapped for it, so it pays to keep one for several transfers.

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

/// Bytes of a piece: pieces that are under way fit into a core's cache, and each is worth its work request.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes that are copied at once where the region's memory is mapped: from so many on copies go past the caches, and of
/// shorter ones each line of the target is read before it is written.
const AT_ONCE_BYTES: usize = 1 << 20;
/// Pieces that are out on a connection at a time.
const PIECES_OUT: usize = 4;
/// Connections of one transfer at most.
const LANES_MAX: usize = 64;

/// Who is told of what has arrived.
type Progress<'t> = Box<dyn FnMut(u64) + Send + 't>;

/// A transfer between memory of the caller's and a region of the server's, longer than an operation may be. Made by
/// [`RemoteRegion::transfer`].
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
#[must_use = "nothing is transferred until `put` or `get`"]
pub struct Transfer<'t> {
    /// The region, as each of the clients knows it.
    regions: Vec<&'t RemoteRegion>,
    lanes: usize,
    piece_bytes: usize,
    progress: Option<Progress<'t>>,
    /// Its connections, from the first transfer on, of each client in turn.
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

/// A transfer that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("{arrived} of {total} bytes arrived: {cause}")]
#[non_exhaustive]
pub struct TransferError {
    /// So many bytes from the first on have arrived: it can go on behind them. Some of the others may have.
    pub arrived: u64,
    /// So many were to arrive.
    pub total: u64,
    /// Why no more.
    #[source]
    pub cause: CallError,
}

impl RemoteRegion {
    /// A transfer of any length, with one connection of its own, in pieces of 128 KiB. The deadline of the region's
    /// operations is the longest time in which no piece may arrive.
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
    /// So many connections of each client, 1 to 64: more than one where a single queue pair does not fill the network.
    pub fn lanes(self, lanes: usize) -> Self {
        let lanes = lanes.clamp(1, LANES_MAX);
        Self { lanes, ..self }
    }

    /// By another client, too: the same memory of the same server, attached over another device, for hosts that are
    /// joined by several NICs. Pieces go to whichever has room.
    ///
    /// # Errors
    /// [`CallError::OtherRegion`] when the other has another name or length, and so is not the same memory.
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

    /// So many bytes in a piece, one at least.
    pub fn piece_bytes(self, bytes: usize) -> Self {
        let piece_bytes = bytes.max(1);
        Self {
            piece_bytes,
            ..self
        }
    }

    /// Called on the caller's thread whenever more has arrived, with how many bytes from the first on have.
    pub fn progress(self, report: impl FnMut(u64) + Send + 't) -> Self {
        Self {
            progress: Some(Box::new(report)),
            ..self
        }
    }

    /// Registered memory of so many bytes, at least one, for [`Transfer::put_from`] and [`Transfer::get_into`].
    ///
    /// # Errors
    /// When there is no memory, no connection, or the preset has no one-sided operations.
    pub fn buffer(&mut self, length: usize) -> Result<TransferBuffer, CallError> {
        self.open(1)?;
        TransferBuffer::new(&mut self.opened[0], length)
    }

    /// Puts `source` into the region from `offset` on. When this returns all of it is there.
    ///
    /// # Errors
    /// [`TransferError`], whose cause is one of those of [`RemoteRegion::write`]; nothing is written where not all of
    /// it lies in the region.
    pub fn put(&mut self, offset: u64, source: &[u8]) -> Result<(), TransferError> {
        self.run((offset, source.len()), &mut Put::of(source))
    }

    /// As [`Transfer::put`], of a part of registered memory, which is not copied on the way.
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

    /// Gets what stands in the region from `offset` on.
    ///
    /// # Errors
    /// As for [`Transfer::put`]; what has not arrived is as it was.
    pub fn get(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        let length = into.len();
        self.run((offset, length), &mut Get::of(into))
    }

    /// As [`Transfer::get`], into a part of registered memory, where it lands by itself.
    ///
    /// # Errors
    /// As for [`Transfer::put_from`]; bytes of the part that have not arrived may be anything.
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

    /// As [`Transfer::put`], for a task: while pieces are out its executor's thread does other things. Where the memory
    /// of the region is mapped here, a mebibyte is copied between two turns of the executor.
    ///
    /// Dropping the future ends the transfer where it stands, as an error does; connections are made anew then. They
    /// are made on the thread that polls.
    ///
    /// # Errors
    /// As for [`Transfer::put`].
    pub async fn put_async(&mut self, offset: u64, source: &[u8]) -> Result<(), TransferError> {
        let length = source.len();
        self.run_async((offset, length), &mut Put::of(source)).await
    }

    /// [`Transfer::put_from`], as [`Transfer::put_async`].
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

    /// [`Transfer::get`], as [`Transfer::put_async`].
    ///
    /// # Errors
    /// As for [`Transfer::get`].
    pub async fn get_async(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        let length = into.len();
        self.run_async((offset, length), &mut Get::of(into)).await
    }

    /// [`Transfer::get_into`], as [`Transfer::put_async`].
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

    /// Opens connections until there are so many.
    fn open(&mut self, lanes: usize) -> Result<(), CallError> {
        while self.opened.len() < lanes {
            let by = self.regions[self.opened.len() % self.regions.len()];
            self.opened.push(TransferLane::open(by)?);
        }
        Ok(())
    }
}
