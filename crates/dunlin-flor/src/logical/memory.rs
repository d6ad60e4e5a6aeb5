//! Memory of a logical connection: for submitted messages, for the headers in front of them, and for messages that the
//! peer writes.

use std::collections::{BTreeMap, VecDeque};

use dunlin_verbs::{Access, Device, Region, RemoteAddress, VerbsError};

use crate::wire::{MAX_BODY_BYTES, SEND_HEADER_BYTES};

const FRONT_BYTES: usize = SEND_HEADER_BYTES + MAX_BODY_BYTES;
/// Memory for written messages is allocated in powers of two, from this size on, so that it can be reused.
const LEAST_LANDING_BYTES: usize = 64 << 10;

/// The bytes of a submitted message.
#[derive(Clone, Debug)]
pub struct Source<R: Region> {
    /// The registered memory that contains them.
    pub region: R,
    /// Offset of the first byte.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: u32,
}

/// Memory into which a message of the peer was written. A peer that violates the protocol can still write there, so
/// read each value once and then check it.
#[derive(Debug)]
pub struct Landing<R: Region> {
    region: R,
    offset: usize,
    bytes: usize,
    /// Whether it is memory of the connection.
    pooled: bool,
    /// Set if a WRITE that was considered lost may still arrive, with the same bytes: the memory is not reused for this
    /// time.
    pub(super) rest_ns: Option<u64>,
}

impl<R: Region> Landing<R> {
    /// Memory of the user. If the device carries out late WRITEs, the region must be registered for this message alone,
    /// so that its key ends with it.
    pub fn lent(region: R, offset: usize, bytes: usize) -> Self {
        Self {
            region,
            offset,
            bytes,
            pooled: false,
            rest_ns: None,
        }
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies a part of the message.
    ///
    /// # Panics
    /// When it is out of bounds.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.region.memory().read(self.offset + offset, target);
    }

    /// Copies the message.
    pub fn copy(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.read(0, &mut copy);
        copy
    }

    /// The memory, and the offset of the message in it.
    pub(crate) fn place(&self) -> (&R, usize) {
        (&self.region, self.offset)
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        self.region.memory().write(self.offset + offset, bytes);
    }

    pub(super) fn remote(&self) -> RemoteAddress {
        self.region.remote().plus(self.offset as u64)
    }
}

/// Memory for written messages, which is reused after it is returned.
#[derive(Debug)]
pub(super) struct Landings<D: Device> {
    free: BTreeMap<usize, Vec<D::Region>>,
    resting: VecDeque<(u64, D::Region)>,
    allocated: usize,
    limit: usize,
}

impl<D: Device> Landings<D> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            free: BTreeMap::new(),
            resting: VecDeque::new(),
            allocated: 0,
            limit,
        }
    }

    /// Takes memory for a message, unless the limit is reached or the device has none.
    pub(super) fn take(
        &mut self,
        device: &D,
        domain: &D::ProtectionDomain,
        bytes: u32,
        beyond: bool,
    ) -> Option<Landing<D::Region>> {
        let bytes = bytes as usize;
        let size = bytes.next_power_of_two().max(LEAST_LANDING_BYTES);
        let region = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(region) => region,
            None if !beyond && !self.make_room(size) => return None,
            None => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                let region = device.allocate_region(domain, size, access).ok()?;
                self.allocated += size;
                region
            }
        };
        Some(Landing {
            region,
            offset: 0,
            bytes,
            pooled: true,
            rest_ns: None,
        })
    }

    /// Whether this much more is within the limit, after releasing unused memory of other sizes.
    fn make_room(&mut self, size: usize) -> bool {
        let unused = |(size, regions): (&usize, &Vec<D::Region>)| size * regions.len();
        let unused: usize = self.free.iter().map(unused).sum();
        if self.allocated - unused + size > self.limit {
            return false;
        }
        while self.allocated + size > self.limit {
            let Some(mut largest) = self.free.last_entry() else {
                return false;
            };
            match largest.get_mut().pop() {
                Some(region) => self.allocated -= region.memory().len(),
                None => drop(largest.remove()),
            }
        }
        true
    }

    pub(super) fn release(&mut self, now_ns: u64, landing: Landing<D::Region>) {
        match landing.rest_ns {
            // Its key ends here, if it was registered for this message.
            _ if !landing.pooled => {}
            None => self.give_back(landing.region),
            Some(rest_ns) => {
                let until_ns = now_ns.saturating_add(rest_ns);
                self.resting.push_back((until_ns, landing.region));
            }
        }
    }

    fn give_back(&mut self, region: D::Region) {
        let size = region.memory().len();
        // Memory beyond the limit is not kept.
        if self.allocated > self.limit {
            self.allocated -= size;
            return;
        }
        self.free.entry(size).or_default().push(region);
    }

    /// When the next resting memory can be reused.
    pub(super) fn rested_ns(&self) -> Option<u64> {
        self.resting.front().map(|(until_ns, _)| *until_ns)
    }

    pub(super) fn rested(&mut self, now_ns: u64) {
        while self
            .resting
            .front()
            .is_some_and(|(until, _)| *until <= now_ns)
        {
            if let Some((_, region)) = self.resting.pop_front() {
                self.give_back(region);
            }
        }
    }
}

/// Memory for headers in front of a message's bytes.
#[derive(Debug)]
pub(super) struct Fronts<R: Region> {
    region: R,
    free: Vec<usize>,
}

impl<R: Region> Fronts<R> {
    pub(super) fn new<D: Device<Region = R>>(
        device: &D,
        domain: &D::ProtectionDomain,
        slots: usize,
    ) -> Result<Self, VerbsError> {
        let bytes = slots * FRONT_BYTES;
        Ok(Self {
            region: device.allocate_region(domain, bytes, Access::LOCAL_WRITE)?,
            free: (0..slots).collect(),
        })
    }

    /// Takes a slot. There are as many slots as work requests may be outstanding.
    pub(super) fn take(&mut self, front: &[u8]) -> usize {
        let slot = self.free.pop().expect("a slot for each work request");
        self.region.memory().write(slot * FRONT_BYTES, front);
        slot
    }

    pub(super) fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
    }

    pub(super) fn region(&self) -> &R {
        &self.region
    }

    pub(super) fn offset(slot: usize) -> usize {
        slot * FRONT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_shm::{ShmConfig, ShmDevice};

    /// Resting memory cannot be used, so the request whose turn it is gets more than the limit allows, but only
    /// temporarily.
    #[test]
    fn what_was_had_beyond_the_limit_is_given_back() {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let domain = device.create_protection_domain().unwrap();
        let size = LEAST_LANDING_BYTES as u32;
        let mut landings = Landings::<ShmDevice>::new(2 * LEAST_LANDING_BYTES);
        for _ in 0..5 {
            let landing = landings.take(&device, &domain, size, true);
            let mut landing = landing.expect("memory");
            landing.rest_ns = Some(100);
            landings.release(0, landing);
        }
        assert!(landings.take(&device, &domain, size, false).is_none());
        assert_eq!(landings.allocated, 5 * LEAST_LANDING_BYTES);
        landings.rested(100);
        assert_eq!(landings.allocated, landings.limit);
        assert_eq!(landings.free[&LEAST_LANDING_BYTES].len(), 2);
        assert!(landings.take(&device, &domain, size, false).is_some());
    }

    /// Messages of one size used all the memory; those of another size come later.
    #[test]
    fn memory_of_another_size_gives_way() {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let domain = device.create_protection_domain().unwrap();
        let size = LEAST_LANDING_BYTES as u32;
        let mut landings = Landings::<ShmDevice>::new(4 * LEAST_LANDING_BYTES);
        let take = |landings: &mut Landings<ShmDevice>, bytes| {
            landings.take(&device, &domain, bytes, false)
        };
        let short: Vec<_> = (0..4).filter_map(|_| take(&mut landings, size)).collect();
        assert_eq!(short.len(), 4);
        assert!(take(&mut landings, 2 * size).is_none());
        for landing in short {
            landings.release(0, landing);
        }
        let long = [2 * size, 2 * size].map(|bytes| take(&mut landings, bytes));
        assert!(long.iter().all(Option::is_some));
        assert!(take(&mut landings, size).is_none());
        assert_eq!(landings.allocated, landings.limit);
    }
}
