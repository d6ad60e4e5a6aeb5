//! One-sided operations as callers request them, checked before a lane posts them.

use std::any::Any;
use std::sync::Arc;

use dunlin_verbs::{Access, RemoteAddress};

use crate::channel::one_sided::{Attached, Verb, INLINE_BYTES};
use crate::error::CallError;

/// Identifies a region at a lane.
#[derive(Debug)]
pub(crate) struct RegionKey {
    /// Its number at this client.
    pub(crate) number: u64,
    pub(crate) name: String,
}

impl RegionKey {
    pub(crate) fn new(number: u64, name: &str) -> Self {
        Self {
            number,
            name: name.to_owned(),
        }
    }
}

/// An operation that a caller requests on a region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Read(usize),
    Write(&'a [u8]),
    FetchAndAdd(u64),
    CompareAndSwap { compare: u64, swap: u64 },
}

impl Wanted<'_> {
    /// Number of bytes that it reads or writes.
    pub(crate) fn length(&self) -> usize {
        match self {
            Wanted::Read(length) => *length,
            Wanted::Write(bytes) => bytes.len(),
            Wanted::FetchAndAdd(_) | Wanted::CompareAndSwap { .. } => 8,
        }
    }

    /// Checks that it is not longer than `most`.
    ///
    /// # Errors
    /// When it is.
    pub(crate) fn check_length(&self, most: usize) -> Result<(), CallError> {
        let bytes = self.length();
        if bytes > most {
            return Err(CallError::TooLong { bytes, limit: most });
        }
        Ok(())
    }

    /// The verb to post; `source` provides memory that the device can read for bytes that do not fit into the request.
    pub(crate) fn verb(
        &self,
        inline_bytes: usize,
        source: impl FnOnce(&[u8]) -> Result<Arc<dyn Any + Send + Sync>, CallError>,
    ) -> Result<Verb, CallError> {
        Ok(match *self {
            Wanted::Read(length) => Verb::Read { length },
            Wanted::Write(from) if from.len() <= INLINE_BYTES.min(inline_bytes) => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..from.len()].copy_from_slice(from);
                Verb::WriteInline {
                    bytes,
                    length: from.len() as u8,
                }
            }
            Wanted::Write(from) => Verb::WriteBuffer {
                buffer: source(from)?,
            },
            Wanted::FetchAndAdd(add) => Verb::FetchAndAdd { add },
            Wanted::CompareAndSwap { compare, swap } => Verb::CompareAndSwap { compare, swap },
        })
    }

    /// Returns the remote address of the operation.
    ///
    /// # Errors
    /// When the server did not grant it, the operation would leave the region, or an atomic is misaligned.
    pub(crate) fn check(
        &self,
        region: &RegionKey,
        attached: &Attached,
        offset: u64,
    ) -> Result<RemoteAddress, CallError> {
        let access = match self {
            Wanted::Read(_) => Access::REMOTE_READ,
            Wanted::Write(_) => Access::REMOTE_WRITE,
            _ => Access::REMOTE_ATOMIC,
        };
        attached.check(region, (offset, self.length()), access)
    }
}

impl Attached {
    /// Returns the remote address of an operation on `length` bytes from `offset` on that needs this access.
    ///
    /// # Errors
    /// As for [`Wanted::check`].
    pub(crate) fn check(
        &self,
        region: &RegionKey,
        (offset, length): (u64, usize),
        access: Access,
    ) -> Result<RemoteAddress, CallError> {
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(CallError::RegionBounds {
                region: region.name.clone(),
                offset,
                bytes: length,
                length: self.length,
            });
        }
        let right = match access {
            Access::REMOTE_READ => "reading",
            Access::REMOTE_WRITE => "writing",
            _ => "atomics",
        };
        if !self.access.contains(access) {
            return Err(CallError::RegionRight {
                region: region.name.clone(),
                right,
            });
        }
        if access == Access::REMOTE_ATOMIC && offset % 8 != 0 {
            return Err(CallError::RegionAlignment {
                region: region.name.clone(),
                offset,
            });
        }
        Ok(self.remote.plus(offset))
    }
}
