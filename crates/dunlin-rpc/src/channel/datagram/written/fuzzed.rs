//! HERD's zone, filled with any bytes; for the fuzz target `pool`, see `crate::fuzzing`.

use std::sync::atomic::Ordering;

use dunlin_verbs::{Device, Region};

use super::{UnconnectedUplink, Zone};
use crate::channel::pool::block::Draft;
use crate::channel::pool::fuzzed::forge;
use crate::channel::pool::{block_bytes, zone_bytes};
use crate::channel::Parameters;

const EAGER: usize = 256;

/// A zone and its client, which does what the bytes say.
#[derive(Debug)]
pub(crate) struct FuzzedZone<D: Device> {
    zone: Zone<D>,
    _client: UnconnectedUplink<D>,
    draft: Draft,
    target: Vec<u8>,
}

impl<D: Device> Zone<D> {
    pub(crate) fn fuzzed(device: &D) -> FuzzedZone<D> {
        let client = UnconnectedUplink::new(device).expect("an uplink");
        let mut said = Parameters::new();
        client.tell(&mut said);
        FuzzedZone {
            zone: Zone::new(device, EAGER, &said).expect("a zone"),
            _client: client,
            draft: Draft::new(block_bytes(EAGER)),
            target: vec![0; block_bytes(EAGER)],
        }
    }
}

impl<D: Device> FuzzedZone<D> {
    /// Steps of eleven bytes: a word anywhere, or a message with a valid seal; then a poll.
    pub(crate) fn run(&mut self, steps: &[u8]) {
        for step in steps.chunks_exact(11) {
            let value = u64::from_le_bytes(std::array::from_fn(|i| step[3 + i]));
            let place = usize::from(u16::from_le_bytes([step[1], step[2]]));
            let memory = self.zone.region.memory();
            if step[0] & 1 == 0 {
                let at = place * 8 % zone_bytes(EAGER);
                memory.atomic_u64(at).store(value, Ordering::SeqCst);
            } else {
                let (blocks, seals) = (self.zone.blocks, &self.zone.seals);
                forge(&mut self.draft, memory, blocks, place, seals, 0, value);
            }
            self.zone.begin();
            let mut taken = 0;
            while let Some((block, header)) = self.zone.take(&mut self.target) {
                assert!(header.length as usize <= EAGER);
                taken += 1;
                assert!(taken <= crate::channel::pool::BLOCKS, "block {block} again");
            }
        }
    }
}
