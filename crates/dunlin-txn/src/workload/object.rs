//! The object store of FaSST and ScaleRPC, O(r, w): transactions of r random keys, w of which they change.
use super::Workload;
use crate::logic::{Access, Logic, Once, Step};
use crate::server::TableSpec;
use crate::types::{Key, Value};

/// Length of a value in bytes (FaSST).
const VALUE_BYTES: usize = 40;

/// The workload.
#[derive(Clone, Debug)]
pub struct Objects {
    keys: u64,
    all: usize,
    changed: usize,
}

impl Objects {
    /// Transactions on `all` keys out of `keys`, at most all of them, `changed` of which get a new value.
    pub fn new(keys: u64, all: usize, changed: usize) -> Objects {
        let keys = keys.max(1);
        let all = all.clamp(1, keys.min(64) as usize);
        Objects {
            keys,
            all,
            changed: changed.min(all),
        }
    }
}

impl Workload for Objects {
    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec::new(0, "objects", self.keys, VALUE_BYTES)]
    }

    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_> {
        let value = Value::from(vec![0; VALUE_BYTES]);
        Box::new((0..self.keys).map(move |key| (Key::number(0, key), value.clone())))
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic> {
        let mut keys: Vec<Key> = Vec::with_capacity(self.all);
        while keys.len() < self.all {
            let key = Key::number(0, random.u64(0..self.keys));
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let read = keys.split_off(self.changed);
        let access = Access {
            reads: read,
            writes: keys
                .iter()
                .map(|key| (key.clone(), VALUE_BYTES as u32))
                .collect(),
        };
        let fill = random.u8(..);
        Box::new(Once::new(access, move |_| {
            let value = Value::from(vec![fill; VALUE_BYTES]);
            Step::Commit(
                keys.iter()
                    .map(|key| (key.clone(), Some(value.clone())))
                    .collect(),
            )
        }))
    }
}
