//! Acknowledgements among the data: on the queue pair that is in use, as SENDs that are no message. The paper measures
//! by it what a queue pair of their own is good for (Flor A.2.2).

use dunlin_verbs::{Access, Device, Region, Segment, VerbsError};

use crate::ack::{Ack, MAX_ACK_BYTES};

/// Work requests at once; what finds no slot is as good as lost.
pub(super) const SLOTS: usize = 64;
const SLOT_BYTES: usize = 256;
/// In the place of a header's kind, where no message has it.
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

    /// Id and bytes of the work request that carries an acknowledgement.
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

    /// Whether a completed work request was one of these; its slot is free then.
    pub(super) fn give_back(&mut self, id: u64) -> bool {
        let slot = u64::MAX - id;
        let own = slot < SLOTS as u64;
        if own {
            self.free.push(slot as usize);
        }
        own
    }

    /// The acknowledgement, if what was received is one.
    pub(super) fn is_one(front: &[u8]) -> Option<&[u8]> {
        let (&mark, ack) = front.split_first()?;
        (mark == MARK).then_some(ack)
    }
}
