//! The assignment of keys to machines.
use crate::types::{Key, MachineId};

/// Keys are divided into shards by hash; a shard has a primary and backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    shards: Vec<Vec<MachineId>>,
}

/// Why a placement is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There are no shards.
    #[error("a placement needs at least one shard")]
    NoShard,
    /// A shard has no machines.
    #[error("shard {0} has no machine; specify its primary first, then its backups")]
    NoMachine(usize),
    /// A machine is named twice in a shard.
    #[error("shard {0} contains {1} twice; its replicas must be different machines")]
    Twice(usize, MachineId),
}

impl Placement {
    /// Creates a placement of these shards, each with its primary first.
    pub fn new(shards: Vec<Vec<MachineId>>) -> Result<Placement, PlacementError> {
        if shards.is_empty() {
            return Err(PlacementError::NoShard);
        }
        for (number, shard) in shards.iter().enumerate() {
            if shard.is_empty() {
                return Err(PlacementError::NoMachine(number));
            }
            for (at, machine) in shard.iter().enumerate() {
                if shard[..at].contains(machine) {
                    return Err(PlacementError::Twice(number, *machine));
                }
            }
        }
        Ok(Placement { shards })
    }

    /// One shard per machine, with backups on the machines after it: with three machines and three replicas each is the
    /// primary of one shard and a backup of the other two (FLOCK §8.5.2).
    pub fn round(machines: u16, replicas: u16) -> Result<Placement, PlacementError> {
        let shard = |first: u16| {
            (0..replicas)
                .map(|n| MachineId((first + n) % machines))
                .collect()
        };
        Placement::new((0..machines).map(shard).collect())
    }

    /// The machine that orders the changes of the key.
    pub fn primary(&self, key: &Key) -> MachineId {
        self.shard(key)[0]
    }

    /// The other machines that hold copies of the key.
    pub fn backups(&self, key: &Key) -> &[MachineId] {
        &self.shard(key)[1..]
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The shard of a key among this number of shards.
    pub(crate) fn shard_of(key: &Key, shards: u64) -> u64 {
        // The high half: a store selects its buckets by the low one.
        (key.spread() >> 32) % shards
    }

    fn shard(&self, key: &Key) -> &[MachineId] {
        &self.shards[Placement::shard_of(key, self.shards.len() as u64) as usize]
    }
}
