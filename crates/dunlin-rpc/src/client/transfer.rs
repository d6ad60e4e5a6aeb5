//! Bytes of any length into a region and out of it: in pieces, several of which are out at a time, on one connection or
//! more.
//!
//! Where the region's memory is mapped here the pieces behind the first are copied to and from it by the caller,
//! without an operation for each: that is what the operation would do, after another copy.
//!
//! Beside the calls of a client: a transfer has pipelines of its own, for as long as it lives. What a server grants is
//! granted to a connection, and on `shm` mapped for it, so it pays to keep one for several transfers.

mod pieces;
mod way;

use std::sync::Arc;
use std::time::Instant;

use dunlin_verbs::thread;

use super::{Pipeline, RemoteRegion};
use crate::error::CallError;
use pieces::Pieces;
use way::{Get, Piece, Put, Way};

/// Bytes of a piece: pieces that are under way fit into a core's cache, and each is worth its work request.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes that are copied at once where the region's memory is mapped: from so many on copies go past the caches, and of
/// shorter ones each line of the target is read before it is written.
const AT_ONCE_BYTES: usize = 1 << 20;
/// Pieces that are out on a connection at a time.
const PIECES_OUT: usize = 4;
/// Connections of one transfer at most.
const LANES_MAX: usize = 64;

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
    progress: Option<Box<dyn FnMut(u64) + 't>>,
    /// Its connections, from the first transfer on, of each client in turn.
    pipelines: Vec<Pipeline>,
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
            pipelines: Vec::new(),
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
    /// [`CallError::UnknownRegion`] when the other has another name or length, and so is not the same memory.
    pub fn also_by(mut self, region: &'t RemoteRegion) -> Result<Self, CallError> {
        let first = self.regions[0];
        if (first.name(), first.len()) != (region.name(), region.len()) {
            return Err(CallError::UnknownRegion {
                name: region.name().to_owned(),
                why: format!(
                    "it has {} bytes, and '{}', which is being transferred, {}",
                    region.len(),
                    first.name(),
                    first.len()
                ),
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
    pub fn progress(self, report: impl FnMut(u64) + 't) -> Self {
        Self {
            progress: Some(Box::new(report)),
            ..self
        }
    }

    /// Puts `source` into the region from `offset` on. When this returns all of it is there.
    ///
    /// # Errors
    /// [`TransferError`], whose cause is one of those of [`RemoteRegion::write`]; nothing is written where not all of
    /// it lies in the region.
    pub fn put(&mut self, offset: u64, source: &[u8]) -> Result<(), TransferError> {
        let put = &mut Put::of(source);
        self.run((offset, source.len()), put)
    }

    /// Gets what stands in the region from `offset` on.
    ///
    /// # Errors
    /// As for [`Transfer::put`]; what has not arrived is as it was.
    pub fn get(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        let length = into.len();
        self.run((offset, length), &mut Get::of(into))
    }

    fn run(
        &mut self,
        (offset, length): (u64, usize),
        way: &mut dyn Way,
    ) -> Result<(), TransferError> {
        let mut pieces = Pieces::new(length, self.piece_bytes);
        let ended = self.move_all(offset, &mut pieces, way);
        ended.map_err(|cause| {
            // Pieces that are out end with their connection.
            self.pipelines.clear();
            TransferError {
                arrived: pieces.arrived(),
                total: length as u64,
                cause,
            }
        })
    }

    fn move_all(
        &mut self,
        offset: u64,
        pieces: &mut Pieces,
        way: &mut dyn Way,
    ) -> Result<(), CallError> {
        let region = self.regions[0];
        let regions = &self.regions;
        let bytes = pieces.length;
        let end = offset.checked_add(bytes as u64);
        if end.is_none_or(|end| end > region.len()) {
            return Err(CallError::RegionBounds {
                region: region.name().to_owned(),
                offset,
                bytes,
                length: region.len(),
            });
        }
        while self.pipelines.len() < (self.lanes * regions.len()).min(pieces.count) {
            let by = regions[self.pipelines.len() % regions.len()];
            let pipeline = by.client().pipeline_of(PIECES_OUT);
            self.pipelines
                .push(pipeline.map_err(|error| CallError::Connect(Arc::new(error)))?);
        }
        let lanes = &mut self.pipelines;
        let report = &mut self.progress;
        let mut report = |pieces: &Pieces| {
            if let Some(report) = report {
                report(pieces.arrived());
            }
        };
        let mut idle_since: Option<Instant> = None;
        loop {
            if lanes.iter().all(|lane| lane.outstanding() == 0) {
                while let Some((range, last)) = pieces.next_within(AT_ONCE_BYTES) {
                    let first = pieces.sent;
                    let piece = Piece {
                        pipeline: &mut lanes[0],
                        region,
                        at: offset + range.start as u64,
                        range,
                    };
                    if !way.at_once(piece) {
                        break;
                    }
                    pieces.sent = last + 1;
                    (first..=last).for_each(|number| pieces.arrive(number));
                    report(pieces);
                }
            }
            for (index, lane) in lanes.iter_mut().enumerate() {
                while let Some(range) = pieces.next().filter(|_| lane.outstanding() < PIECES_OUT) {
                    let piece = Piece {
                        pipeline: lane,
                        region: regions[index % regions.len()],
                        at: offset + range.start as u64,
                        range,
                    };
                    if !way.submit(piece, pieces.sent as u64)? {
                        break;
                    }
                    pieces.sent += 1;
                }
            }
            let before = pieces.arrived();
            let mut failed = None;
            let mut answer = |tag: u64, answer: Result<&[u8], CallError>| match answer {
                Ok(bytes) => {
                    way.take(pieces.range(tag as usize), bytes);
                    pieces.arrive(tag as usize);
                }
                Err(error) => failed = Some(error),
            };
            let mut taken = 0;
            for lane in &mut *lanes {
                taken += lane.poll(&mut answer)?;
            }
            let busy = lanes.iter_mut().find(|lane| lane.outstanding() > 0);
            if let Some(lane) = busy.filter(|_| taken == 0) {
                taken = lane.wait(&mut answer)?;
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if pieces.arrived() > before {
                report(pieces);
            }
            if pieces.arrived() == bytes as u64 {
                return Ok(());
            }
            if taken > 0 {
                idle_since = None;
                continue;
            }
            // Nothing is out: calls of others have the room.
            let now = thread::now();
            let after = region.deadline();
            if now.duration_since(*idle_since.get_or_insert(now)) > after {
                return Err(CallError::DeadlineExceeded { after });
            }
        }
    }
}
