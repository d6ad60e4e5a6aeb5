//! Acknowledgements among the data, on the queue pair in use, as SENDs that are not messages. The paper uses this to
//! measure the benefit of a separate queue pair (Flor A.2.2).

use dunlin_verbs::{Access, Device, Region, Segment, VerbsError};

use crate::ack::{Ack, MAX_ACK_BYTES};

/// Maximum number of outstanding work requests; an acknowledgement that finds no slot is dropped, as if lost.
pub(super) const SLOTS: usize = 64;
const SLOT_BYTES: usize = 256;
/// Takes the place of the kind in a header; no message has this value.
const MARK: u8 = 0xac;
const _: () = assert!(MAX_ACK_BYTES < SLOT_BYTES);

/// See the module.
#[derive(Debug)]
pub(super) struct SharedAcks<R: Region> {
    buffers: R,
    free: Vec<usize>,
}

impl<R: Region> SharedAcks<R> {
    pub(super) fn new<D: Device<Region = R>>(
        device: &D,
        domain: &D::ProtectionDomain,
    ) -> Result<Self, VerbsError> {
        let bytes = SLOTS * SLOT_BYTES;
        Ok(Self {
            buffers: device.allocate_region(domain, bytes, Access::LOCAL_WRITE)?,
            free: (0..SLOTS).collect(),
        })
    }

    /// Returns the id and bytes of the work request that carries an acknowledgement.
    pub(super) fn take(&mut self, ack: &Ack) -> Option<(u64, Segment<'_, R>)> {
        let slot = self.free.pop()?;
        let mut bytes = [0; MAX_ACK_BYTES];
        let length = ack.encode(&mut bytes);
        let offset = slot * SLOT_BYTES;
        self.buffers.memory().write(offset, &[MARK]);
        self.buffers.memory().write(offset + 1, &bytes[..length]);
        let segment = Segment {
            region: &self.buffers,
            offset,
            length: 1 + length,
        };
        Some((u64::MAX - slot as u64, segment))
    }

    /// Whether a completed work request was one of these; if so, its slot is now free.
    pub(super) fn give_back(&mut self, id: u64) -> bool {
        let slot = u64::MAX - id;
        let own = slot < SLOTS as u64;
        if own {
            self.free.push(slot as usize);
        }
        own
    }

    /// Returns the acknowledgement, if the received message is one.
    pub(super) fn is_one(front: &[u8]) -> Option<&[u8]> {
        let (&mark, ack) = front.split_first()?;
        (mark == MARK).then_some(ack)
    }
}
