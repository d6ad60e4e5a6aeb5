//! The last-level cache as inbound DMA sees it: indexed by set, with the ways that DDIO may allocate.
//!
//! ScaleRPC Fig. 3(b) cannot be explained by capacity alone: 8000 blocks of 32 bytes always fit. With a power-of-two
//! distance between blocks, the address bits below that distance do not select sets, and the blocks compete for those
//! that are left.

use crate::parameters::HostParameters;
use crate::random::{mix, Random};

/// Bytes of a cache line.
pub(crate) const LINE: u64 = 64;

/// Size of the physical address space that frames are drawn from: so large that two pages hardly ever share a frame.
const PHYSICAL_BYTES: u64 = 1 << 45;

/// Tags of the lines of a set; zero for an empty way.
type Set = Box<[u64]>;

/// The cache of the socket to which the NIC is attached.
#[derive(Debug)]
pub(crate) struct Llc {
    sets: Vec<Option<Set>>,
    slices: u64,
    sets_of_slice: u64,
    ways: usize,
    ddio_ways: usize,
    /// Below the size of a page the simulated address is the physical one; above, it is permuted.
    page: u64,
    /// Number of physical frames.
    frames: u64,
    salt: u64,
    random: Random,
}

/// Outcome of an inbound write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// The line was there: updated in place.
    Update,
    /// The line was not there: it was allocated, and another one written back.
    Allocate,
}

impl Llc {
    /// `None` when inbound DMA does not go to the cache.
    pub(crate) fn new(host: &HostParameters, salt: u64, random: Random) -> Option<Self> {
        if host.ddio == 0.0 {
            return None;
        }
        let (slices, sets_of_slice) = (host.llc_slices as u64, host.llc_sets as u64);
        Some(Self {
            sets: vec![None; (slices * sets_of_slice) as usize],
            slices,
            sets_of_slice,
            ways: host.llc_ways as usize,
            ddio_ways: (host.ddio_ways as usize).clamp(1, host.llc_ways as usize),
            page: (host.page_bytes as u64).max(LINE),
            frames: PHYSICAL_BYTES / (host.page_bytes as u64).max(LINE),
            salt,
            random,
        })
    }

    /// Records that a core has read or written the line of `address`: it is present, in any way.
    pub(crate) fn touch(&mut self, address: u64) {
        let _ = self.write(address, true);
    }

    /// Writes into the line of `address`. Lines that the CPU polls are warm and may occupy any way; the others stay
    /// within DDIO's ways.
    pub(crate) fn write(&mut self, address: u64, warm: bool) -> Hit {
        // The upper address bits choose the slice together with the lower ones (Intel's hash, undocumented); the set
        // within the slice comes from the bits above the line.
        let frame = mix((address / self.page) ^ self.salt) % self.frames;
        let physical = frame * self.page + address % self.page;
        let line = physical / LINE;
        let slice = ((u128::from(mix(line)) * u128::from(self.slices)) >> 64) as u64;
        let index = (slice * self.sets_of_slice + line % self.sets_of_slice) as usize;
        let ways = self.ways;
        let set = self.sets[index].get_or_insert_with(|| vec![0; ways].into_boxed_slice());
        let tag = line + 1;
        if set.contains(&tag) {
            return Hit::Update;
        }
        let (first, choice) = if warm {
            (0, ways)
        } else {
            (ways - self.ddio_ways, self.ddio_ways)
        };
        let victim = match set[first..].iter().position(|&held| held == 0) {
            Some(free) => first + free,
            None => first + self.random.below(choice as u64) as usize,
        };
        set[victim] = tag;
        Hit::Allocate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit_rate(block: u64) -> f64 {
        let host = HostParameters::xeon_e5_v4();
        let mut cache = Llc::new(&host, 1, Random::of(1, "llc", 0)).expect("DDIO");
        let mut random = Random::of(2, "addresses", 0);
        let mut hits = 0;
        for round in 0..200_000 {
            let hit = cache.write((64 << 20) + random.below(8000) * block, true);
            hits += u32::from(round >= 100_000 && hit == Hit::Update);
        }
        f64::from(hits) / 100_000.0
    }

    /// nic-model.md §6: 0.98 up to 2 KB, 0.94 at 4 KB, 0.48 at 8 KB, 0.24 at 16 KB.
    #[test]
    fn blocks_far_apart_fight_for_few_sets() {
        assert!(hit_rate(2048) > 0.95);
        assert!(hit_rate(16384) < 0.4);
        assert!(hit_rate(4096) > hit_rate(8192) && hit_rate(8192) > hit_rate(16384));
    }
}
