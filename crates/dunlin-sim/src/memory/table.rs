//! The regions of one host, by key.

use std::sync::atomic::AtomicU32;
use std::sync::Arc;

use dunlin_verbs::Access;

use super::Block;
use crate::random::Random;

/// Number of bits of a key that are its index; the rest is random and never zero.
const INDEX_BITS: u32 = 16;
/// Maximum number of regions at once.
pub(crate) const REGIONS_MAX: usize = 1 << INDEX_BITS;
/// Gap between regions in the simulated address space, and the alignment of each: a huge page.
const SPACING: u64 = 2 << 20;

/// A thread that polls part of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) thread: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Requested by the thread itself, not inferred from its accesses.
    pub(crate) explicit: bool,
    /// Whether the thread is to be woken. With `once`, as for threads with a stack, only until it was woken: then it
    /// looks again.
    pub(crate) armed: bool,
    pub(crate) once: bool,
}

/// A registered region.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: u32,
    pub(crate) block: Arc<Block>,
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) domain: u32,
    pub(crate) access: Access,
    pub(crate) watches: Vec<Watch>,
    /// The simulated thread that looked at the memory last, unless it was woken since.
    pub(crate) looker: Arc<AtomicU32>,
}

impl Entry {
    /// Whether `bytes` from `offset` are inside the region.
    #[inline]
    pub(crate) fn contains(&self, offset: u64, bytes: u64) -> bool {
        offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.length)
    }

    /// The offset of an address, if `bytes` from there are inside the region.
    #[inline]
    pub(crate) fn offset_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        self.contains(offset, bytes).then_some(offset)
    }
}

/// All regions of a host.
#[derive(Debug)]
pub(crate) struct RegionTable {
    slots: Vec<Option<Entry>>,
    free: std::collections::VecDeque<u32>,
    next_base: u64,
    pub(crate) bytes: usize,
    random: Random,
}

impl RegionTable {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            slots: Vec::new(),
            free: std::collections::VecDeque::new(),
            // Address 0 stays unused, so that a null address is outside of every region.
            next_base: SPACING * 16,
            bytes: 0,
            random,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == REGIONS_MAX
    }

    /// Number of regions registered.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Registers a region; the table must not be full. Returns its key and base address.
    pub(crate) fn insert(
        &mut self,
        block: Arc<Block>,
        domain: u32,
        access: Access,
        looker: Arc<AtomicU32>,
    ) -> (u32, u64) {
        // A slot is not reused while few are free, so that a dead key does not soon become a live one.
        let index = if self.free.len() > 64 || self.slots.len() == REGIONS_MAX {
            self.free.pop_front().expect("the table is not full")
        } else {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        };
        let secret = self.random.below((1 << (32 - INDEX_BITS)) - 1) as u32 + 1;
        let key = secret << INDEX_BITS | index;
        let length = block.memory().len() as u64;
        let base = self.next_base;
        self.next_base += length.div_ceil(SPACING) * SPACING;
        self.bytes += length as usize;
        let watches = Vec::new();
        self.slots[index as usize] = Some(Entry {
            key,
            block,
            base,
            length,
            domain,
            access,
            watches,
            looker,
        });
        (key, base)
    }

    pub(crate) fn remove(&mut self, key: u32) {
        let index = key & (REGIONS_MAX as u32 - 1);
        if let Some(entry) = self.slots[index as usize].take() {
            self.bytes -= entry.length as usize;
            self.free.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<&Entry> {
        let index = key as usize & (REGIONS_MAX - 1);
        self.slots
            .get(index)?
            .as_ref()
            .filter(|entry| entry.key == key)
    }

    /// Removes the watches of a thread of this host that has ended.
    pub(crate) fn end_watches(&mut self, thread: u32) {
        for entry in self.slots.iter_mut().flatten() {
            entry.watches.retain(|watch| watch.thread != thread);
        }
    }

    pub(crate) fn find_mut(&mut self, key: u32) -> Option<&mut Entry> {
        let index = key as usize & (REGIONS_MAX - 1);
        self.slots
            .get_mut(index)?
            .as_mut()
            .filter(|entry| entry.key == key)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_verbs::{Access, Device, Region};

    use crate::{Cluster, HostParameters, Next, NicParameters, SwitchParameters};

    #[test]
    fn a_thread_that_has_ended_looks_at_nothing() {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        let cluster = Cluster::star(1, 1, &host, &nic, &SwitchParameters::z9264f());
        let host = cluster.hosts()[0];
        let device = cluster.device(host);
        let domain = device.create_protection_domain().expect("a domain");
        let region = device.allocate_region(&domain, 64, Access::all());
        let region = region.expect("a region");
        for number in 0..10 {
            let looked = region.clone();
            let mut looks = 0;
            cluster.spawn(host, number, move |now_ns: u64| {
                let _ = looked.memory();
                looks += 1;
                match looks < 2 || number == 0 {
                    true => Next::PollUntil(now_ns + 1_000),
                    false => Next::Done,
                }
            });
        }
        let watches = || {
            let world = cluster.inner().world(0);
            let entry = world.hosts[0].regions.find(region.key());
            entry.map_or(0, |entry| entry.watches.len())
        };
        cluster.run_for(500);
        assert_eq!(watches(), 10);
        cluster.run_for(10_000);
        assert_eq!(watches(), 1);
    }
}
