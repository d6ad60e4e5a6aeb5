//! One-sided operations as values (FLOCK §6): what a thread requests of memory that a server has granted, before it
//! becomes a work request.

use std::any::Any;
use std::sync::Arc;

use dunlin_verbs::{Access, RemoteAddress, RemoteKey};

/// Size in bytes of the response to a request to attach a region.
pub(crate) const GRANT_BYTES: usize = 24;
/// Maximum length of a region's name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// Maximum number of bytes of a WRITE that travel in the request itself; longer ones are read from an export buffer.
pub(crate) const INLINE_BYTES: usize = 64;

/// A region of the server as granted to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) remote: RemoteAddress,
    pub(crate) length: u64,
    pub(crate) access: Access,
}

impl Attached {
    /// Encodes the response to a request to attach.
    pub(crate) fn encode(&self) -> [u8; GRANT_BYTES] {
        let mut bytes = [0; GRANT_BYTES];
        bytes[..8].copy_from_slice(&self.remote.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.remote.key.0.to_le_bytes());
        bytes[20..].copy_from_slice(&self.access.bits().to_le_bytes());
        bytes
    }

    /// Decodes what a server wrote; `None` if it is not such a response.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; GRANT_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let low = word(16);
        Some(Self {
            remote: RemoteAddress {
                address: word(0),
                key: RemoteKey(low as u32),
            },
            length: word(8),
            access: Access::from_bits((low >> 32) as u32)?,
        })
    }
}

/// The kind of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    /// The bytes arrive with the completion.
    Read {
        length: usize,
    },
    /// Bytes in the request itself.
    WriteInline {
        bytes: [u8; INLINE_BYTES],
        length: u8,
    },
    /// Bytes in an export buffer of the lane's device.
    WriteBuffer {
        buffer: Arc<dyn Any + Send + Sync>,
    },
    /// The bytes are read from, or written to, the caller's own memory.
    Own(OwnPart, Direction),
    FetchAndAdd {
        add: u64,
    },
    CompareAndSwap {
        compare: u64,
        swap: u64,
    },
}

/// The direction of a transfer from or to the caller's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToPeer,
    FromPeer,
}

impl Direction {
    /// The access that the peer must have granted.
    pub(crate) fn access(self) -> Access {
        match self {
            Direction::ToPeer => Access::REMOTE_WRITE,
            Direction::FromPeer => Access::REMOTE_READ,
        }
    }
}

/// A lane's registration of the caller's own memory: a region of its device, or none if the device cannot use it.
pub(crate) type Registration = Option<Arc<dyn Any + Send + Sync>>;

/// A part of the caller's own memory that its lane has registered ([`crate::call::own`]).
#[derive(Clone, Debug)]
pub(crate) struct OwnPart {
    /// The lane's registration: a region of its device.
    pub(crate) region: Arc<dyn Any + Send + Sync>,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    /// Held until the operation has completed; declared after the region, so that it is dropped after it.
    #[allow(dead_code)]
    pub(crate) use_of: Arc<()>,
}

/// One operation, prepared by the thread that requests it; a leader makes the work request from it.
#[derive(Clone, Debug)]
pub(crate) struct OneSided {
    /// The call that it belongs to: it travels in the work request's id.
    pub(crate) call: u64,
    pub(crate) remote: RemoteAddress,
    pub(crate) verb: Verb,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn grants_round_trip_and_any_bytes_are_read(
            address: u64, key: u32, length: u64, access in 0u32..16, noise in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let access = Access::from_bits(access).unwrap();
            let grant = Attached { remote: RemoteAddress { address, key: RemoteKey(key) }, length, access };
            prop_assert_eq!(Attached::decode(&grant.encode()), Some(grant));
            let _ = Attached::decode(&noise);
        }
    }
}
