//! Allocation of memory and descriptors on behalf of a client: if there are none, that client gets an error. An
//! allocation that fails where no error can be reported would end the server for all clients.
//!
//! Allocations whose size a client decides are made here. All others are small and covered by a reserve: a client is
//! admitted, and a large allocation made, only if the reserve is left afterwards.

use std::io;

use dunlin_verbs::VerbsError;

/// Number of bytes reserved for allocations that are not checked one by one, for stacks and for mappings. More than the
/// 64 MiB that an arena of glibc's allocator reserves: an allocation that fits there does not show whether the system
/// has memory.
const RESERVE_BYTES: usize = 80 << 20;
/// Size in bytes from which on an allocation leaves the reserve untouched. Only smaller ones are taken out of it.
const LARGE_BYTES: usize = 64 << 10;
/// Number of descriptors that a client may need while it connects, left free for others that are connecting.
const RESERVE_DESCRIPTORS: usize = 16;

/// The error for an allocation of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory for {0} bytes")]
pub(crate) struct NoMemory(pub(crate) usize);

impl From<NoMemory> for VerbsError {
    fn from(_: NoMemory) -> Self {
        VerbsError::System {
            call: "allocation",
            source: io::ErrorKind::OutOfMemory.into(),
        }
    }
}

/// Checks that `bytes` are available in addition to the reserve.
#[cold]
pub(crate) fn room_for(bytes: usize) -> Result<(), NoMemory> {
    let mut probe: Vec<u8> = Vec::new();
    let all = bytes.checked_add(RESERVE_BYTES).ok_or(NoMemory(bytes))?;
    probe.try_reserve_exact(all).map_err(|_| NoMemory(bytes))?;
    // Keeps the compiler from removing an unused allocation.
    std::hint::black_box(probe.as_mut_ptr());
    Ok(())
}

/// Checks that a client may be admitted: there are memory and descriptors for what it needs beyond the checked
/// allocations.
pub(crate) fn room_for_client() -> Result<(), VerbsError> {
    room_for(0)?;
    let probes = (0..RESERVE_DESCRIPTORS)
        .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC));
    match probes.collect::<Result<Vec<_>, _>>() {
        Ok(_) => Ok(()),
        Err(errno) => Err(VerbsError::System {
            call: "allocating descriptors for a client",
            source: errno.into(),
        }),
    }
}

/// Reserves capacity for `more` bytes in `bytes`.
pub(crate) fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), NoMemory> {
    if bytes.capacity() - bytes.len() >= more {
        return Ok(());
    }
    let none = NoMemory(bytes.len().saturating_add(more));
    if none.0 >= LARGE_BYTES {
        // Twice the size, as vectors grow.
        room_for(none.0.saturating_add(bytes.len())).map_err(|_| none)?;
    }
    bytes.try_reserve(more).map_err(|_| none)
}

/// Allocates `length` zeros.
pub(crate) fn zeros(length: usize) -> Result<Vec<u8>, NoMemory> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, length)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Allocates a copy.
pub(crate) fn copied(from: &[u8]) -> Result<Box<[u8]>, NoMemory> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(from.len())
        .map_err(|_| NoMemory(from.len()))?;
    bytes.extend_from_slice(from);
    Ok(bytes.into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_an_error() {
        // More than any address space.
        let all = 1 << 60;
        assert_eq!(room_for(all), Err(NoMemory(all)));
        assert_eq!(room_for(usize::MAX), Err(NoMemory(usize::MAX)));
        assert_eq!(zeros(all), Err(NoMemory(all)));
        assert_eq!(reserve(&mut vec![1], all), Err(NoMemory(all + 1)));
        assert_eq!(zeros(100_000).unwrap(), vec![0; 100_000]);
        assert_eq!(*copied(b"copied").unwrap(), *b"copied");
        room_for_client().unwrap();
    }
}
