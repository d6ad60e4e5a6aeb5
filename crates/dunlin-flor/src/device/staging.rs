//! Registered memory in which messages are assembled: slots whose sizes are powers of two, which are reused.

use dunlin_verbs::{Access, Device, VerbsError};

use crate::logical::Source;

/// Size of the smallest slots in bytes.
const LEAST: usize = 256;
/// Slots up to this size are allocated many at a time from one region.
const SLAB: usize = 64 << 10;
const CLASSES: usize = usize::BITS as usize;

/// See the module.
#[derive(Debug)]
pub(crate) struct Staging<D: Device> {
    free: Vec<Vec<(D::Region, usize)>>,
}

impl<D: Device> Staging<D> {
    pub(crate) fn new() -> Self {
        let free = (0..CLASSES).map(|_| Vec::new()).collect();
        Self { free }
    }

    fn class(bytes: usize) -> usize {
        bytes.max(LEAST).next_power_of_two().trailing_zeros() as usize
    }

    /// Takes a slot of at least this many bytes.
    pub(crate) fn take(
        &mut self,
        device: &D,
        domain: &D::ProtectionDomain,
        bytes: usize,
    ) -> Result<Source<D::Region>, VerbsError> {
        let class = Self::class(bytes);
        let free = &mut self.free[class];
        if free.is_empty() {
            let size = 1 << class;
            let length = SLAB.max(size);
            let region = device.allocate_region(domain, length, Access::LOCAL_WRITE)?;
            free.extend((0..length / size).map(|slot| (region.clone(), slot * size)));
        }
        let (region, offset) = free.pop().expect("made above");
        Ok(Source {
            region,
            offset,
            bytes: bytes as u32,
        })
    }

    /// Returns a slot that [`Staging::take`] gave out.
    pub(crate) fn give_back(&mut self, slot: Source<D::Region>) {
        let class = Self::class(slot.bytes as usize);
        self.free[class].push((slot.region, slot.offset));
    }
}
