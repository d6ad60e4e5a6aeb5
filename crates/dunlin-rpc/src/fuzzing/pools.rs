//! Message pools and HERD's zones.

use dunlin_shm::ShmDevice;
use dunlin_verbs::Device;

use crate::channel::datagram::written::{FuzzedZone, Zone};
use crate::channel::pool::fuzzed::FuzzedPool;

/// Ends of pools, made again when one was given up.
#[derive(Debug)]
pub struct FuzzedPools {
    device: ShmDevice,
    pools: [Option<FuzzedPool>; 2],
    zone: FuzzedZone<ShmDevice>,
}

impl Default for FuzzedPools {
    fn default() -> Self {
        Self::new()
    }
}

impl FuzzedPools {
    /// On shared memory.
    ///
    /// # Panics
    /// When this machine gives none.
    pub fn new() -> Self {
        let device = crate::devices::shared_memory().expect("a device");
        Self {
            zone: Zone::fuzzed(&device),
            pools: [None, None],
            device,
        }
    }

    /// Has the ends of a pool look while their memory is written; the first byte chooses: static mapping, by turns,
    /// HERD's zone.
    ///
    /// # Panics
    /// When an end takes a message that leaves its limits.
    pub fn run(&mut self, bytes: &[u8]) {
        let Some((choice, steps)) = bytes.split_first() else {
            return;
        };
        match usize::from(choice % 3) {
            2 => self.zone.run(steps),
            mapping => {
                let mut pool = self.pools[mapping]
                    .take()
                    .unwrap_or_else(|| FuzzedPool::new(&self.device, mapping == 1));
                if pool.run(steps).is_ok() {
                    self.pools[mapping] = Some(pool);
                }
            }
        }
        // Nothing of ended connections is kept.
        while self.device.poll_async_event().is_some() {}
    }
}
