//! Memory that transfers read and fill in place.

use std::ops::Range;

use super::lane::TransferLane;
use super::TransferError;
use crate::call::own::Own;
use crate::channel::buffers::OwnMemory;
use crate::channel::one_sided::Direction;
use crate::error::CallError;

/// Registered memory of the caller: data put from it or got into it is not copied through buffers of the client. Made
/// by [`super::Transfer::buffer`]; registering is slow, so it pays to keep one. It outlives its transfer, and may serve
/// other transfers, of the same server or of any other.
///
/// While an operation of a failed transfer may still be using it, its bytes are not accessible
/// ([`CallError::BufferInUse`]). This ends with the connection: the transfer's own or, where threads share connections
/// (`flock`), that of its client, when the last thread that has used it ends.
///
/// Where the device of a connection cannot use memory allocated by another (`shm`), pieces are copied, like those of
/// plain slices.
#[derive(Debug)]
pub struct TransferBuffer(OwnMemory);

impl TransferBuffer {
    pub(super) fn new(lane: &mut TransferLane<'_>, length: usize) -> Result<Self, CallError> {
        let memory = lane.pipeline.allocate(length)?;
        Ok(Self(OwnMemory::new(memory)))
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`CallError::BufferInUse`] while an operation of a transfer that has failed may still write them.
    pub fn bytes(&self) -> Result<&[u8], CallError> {
        self.0.bytes().ok_or(CallError::BufferInUse)
    }

    /// The bytes, mutable. They are zero at first.
    ///
    /// # Errors
    /// [`CallError::BufferInUse`] while an operation of a transfer that has failed may still read or write them.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], CallError> {
        self.0.bytes_mut().ok_or(CallError::BufferInUse)
    }

    /// Copies bytes into it, next to pieces that arrive elsewhere in it.
    pub(super) fn fill(&mut self, offset: usize, bytes: &[u8]) {
        self.0.fill(offset, bytes);
    }

    /// Length in bytes of a part that is to be transferred.
    ///
    /// # Errors
    /// As for [`TransferBuffer::bytes`]: each transfer starts with memory that is not in use.
    ///
    /// # Panics
    /// When the part is not inside.
    pub(super) fn check(&self, part: &Range<usize>) -> Result<usize, TransferError> {
        assert!(
            part.start <= part.end && part.end <= self.len(),
            "range {part:?} exceeds the buffer of {} bytes",
            self.len()
        );
        match self.bytes() {
            Ok(_) => Ok(part.len()),
            Err(cause) => Err(TransferError {
                arrived: 0,
                total: part.len() as u64,
                cause,
            }),
        }
    }

    /// A part that an operation reads.
    pub(super) fn use_to_send(&self, range: Range<usize>) -> Own<'_> {
        Own {
            range,
            direction: Direction::ToPeer,
            use_of: self.0.use_to_send(),
            memory: self.0.region(),
        }
    }

    /// A part that an operation fills.
    pub(super) fn use_to_fill(&mut self, range: Range<usize>) -> Own<'_> {
        Own {
            range,
            direction: Direction::FromPeer,
            use_of: self.0.use_to_fill(),
            memory: self.0.region(),
        }
    }
}
