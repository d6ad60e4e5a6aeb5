//! Random transactions on few keys: many conflicts, inserts and deletes, and values that are all different.
use super::Workload;
use crate::logic::{Access, Logic, Once, Step};
use crate::server::TableSpec;
use crate::types::{Key, Value};

/// Reads of up to four keys and writes of up to three, in one round.
#[derive(Clone, Debug)]
pub struct Random {
    keys: u64,
    made: u64,
}

impl Random {
    /// Transactions on this number of keys, at least one; half of the keys exist initially.
    pub fn new(keys: u64) -> Random {
        Random {
            keys: keys.max(1),
            made: 0,
        }
    }
}

impl Workload for Random {
    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec::new(0, "random", self.keys, 8)]
    }

    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_> {
        let even = (0..self.keys).step_by(2);
        Box::new(even.map(|key| (Key::number(0, key), key.to_le_bytes().to_vec().into())))
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic> {
        let reads = (0..random.usize(0..5)).map(|_| Key::number(0, random.u64(0..self.keys)));
        let reads: Vec<Key> = reads.collect();
        let writes = (0..random.usize(0..4)).map(|_| Key::number(0, random.u64(0..self.keys)));
        let writes: Vec<Key> = writes.collect();
        let changes: Vec<(Key, Option<Value>)> = writes
            .iter()
            .map(|key| {
                self.made += 1;
                let value = (self.made << 32 | 1 << 31).to_le_bytes().to_vec();
                (key.clone(), (random.u8(..) > 50).then(|| value.into()))
            })
            .collect();
        let writes = writes.into_iter().map(|key| (key, 8)).collect();
        Box::new(Once::new(Access { reads, writes }, move |_| {
            Step::Commit(changes.clone())
        }))
    }
}
