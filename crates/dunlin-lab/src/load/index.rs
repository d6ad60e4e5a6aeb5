//! An ordered index behind an RPC server (FLOCK §8.6): the unchanged store of `dunlin-store` with its index, which
//! serves values of keys, and the number of keys in a range.

use std::sync::Arc;

use dunlin::{HandlerError, HandlerId, Server};
use dunlin_sim::{Cluster, HostId, SimDevice};
use dunlin_store::kv::{KvLayout, OrderedKvStore};
use dunlin_verbs::{Access, Device, Work};

use super::application::{Application, ApplicationBench, Caller};
use crate::dice::Dice;

const GET: HandlerId = 1;
const SCAN: HandlerId = 2;
/// Bytes of a key, and of a value.
const WORD_BYTES: usize = 8;
/// Memory for each item: the smallest chunk that has key, value and their lengths, and the losses of blocks.
const ITEM_BYTES: usize = 64;

/// Settings of an index and its load.
#[derive(Clone, Debug)]
pub struct IndexLoad {
    /// The clients.
    pub application: Application,
    /// Maximum number of active queue pairs (FLOCK's MAX_AQP).
    pub most_active: usize,
    /// Number of keys.
    pub keys: u64,
    /// Number of keys of a range.
    pub range: u64,
    /// Percentage of scans among the operations.
    pub scans: u64,
    /// Cost of a GET.
    pub get: Cost,
    /// Cost of a scan.
    pub scan: Cost,
}

/// Cost of an operation for a core.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Instructions.
    pub instructions: u32,
    /// Time of memory accesses that miss its caches, in nanoseconds.
    pub memory_ns: u64,
}

impl Cost {
    fn charge(self) {
        SimDevice::charge(Work::Instructions(self.instructions));
        SimDevice::charge(Work::Compute(self.memory_ns));
    }
}

impl IndexLoad {
    /// Puts the server and its clients on the hosts of a cluster.
    ///
    /// # Panics
    /// When a device, the RPC or the store refuses.
    pub fn serve(&self, cluster: Cluster) -> ApplicationBench {
        let plan = &self.application;
        let index = Arc::new(Index::new(&cluster, cluster.hosts()[0], self.keys));
        let scanned = Arc::clone(&index);
        let (get, scan) = (self.get, self.scan);
        let server = Server::unbound()
            .channel(plan.channel.clone())
            .max_active_queue_pairs(self.most_active)
            .handle(GET, move |request, reply| {
                let value = index.get(request.payload()).ok_or_else(malformed)?;
                get.charge();
                reply.write(&value)
            })
            .handle(SCAN, move |request, reply| {
                let count = scanned.scan(request.payload()).ok_or_else(malformed)?;
                scan.charge();
                reply.write(&count)
            });
        let (keys, range, scans) = (self.keys, self.range, self.scans);
        ApplicationBench::new(cluster, plan, server, |number| Asker {
            keys,
            range,
            scans,
            dice: Dice::new(number as u64 + 1),
        })
    }
}

#[cold]
fn malformed() -> HandlerError {
    HandlerError::new(1, "a key has 8 bytes and is there, a range is two of them")
}

/// Keys with their values, in order.
#[derive(Debug)]
pub struct Index(OrderedKvStore<<SimDevice as Device>::Region>);

impl Index {
    /// Creates an index with this many keys, from zero on, in the memory of a host.
    ///
    /// # Panics
    /// When the host has no room for them.
    pub fn new(cluster: &Cluster, host: HostId, keys: u64) -> Self {
        let device = cluster.device(host);
        let memory = keys as usize * ITEM_BYTES + (1 << 16);
        let layout = KvLayout::new(keys, memory, WORD_BYTES, 1).expect("a layout");
        let domain = device.create_protection_domain().expect("a domain");
        let region = device.allocate_region(&domain, layout.bytes(), Access::LOCAL_WRITE);
        let store = OrderedKvStore::create(region.expect("memory"), layout).expect("a store");
        let mut order: Vec<u64> = (0..keys).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        for number in order {
            let name = number.to_be_bytes();
            let key = store.store().key(&name).expect("a key");
            let put = store.put(&key, &value(number));
            put.expect("room for an item");
        }
        Self(store)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = self.0.store().key(key).ok()?;
        let mut value = Vec::with_capacity(WORD_BYTES);
        let Ok(found) = self.0.store().get(&key, &mut value);
        found.then_some(value)
    }

    /// The number of keys from one on, and before another.
    pub fn scan(&self, range: &[u8]) -> Option<[u8; 8]> {
        let (first, end) = range.split_at_checked(WORD_BYTES)?;
        let mut count = 0u64;
        self.0.scan_keys(first, |key| {
            count += u64::from(key < end);
            key < end
        });
        Some(count.to_le_bytes())
    }
}

/// An odd number, and its multiplicative inverse.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

fn value(number: u64) -> [u8; 8] {
    number.wrapping_mul(FACTOR).to_le_bytes()
}

/// Whether this is a value of one of `keys` keys.
fn is_value(answer: &[u8], keys: u64) -> bool {
    let word = <[u8; 8]>::try_from(answer);
    word.is_ok_and(|word| u64::from_le_bytes(word).wrapping_mul(INVERSE) < keys)
}

/// A client thread.
struct Asker {
    keys: u64,
    range: u64,
    scans: u64,
    dice: Dice,
}

impl Caller for Asker {
    fn next(&mut self, request: &mut Vec<u8>) -> (HandlerId, usize) {
        let scans = self.dice.chance(self.scans, 100);
        // All ranges have the same number of keys.
        let first = self.dice.between(0, self.keys - self.range - 1);
        request.extend(first.to_be_bytes());
        if !scans {
            return (GET, 0);
        }
        request.extend((first + self.range).to_be_bytes());
        (SCAN, 1)
    }

    fn is_answer(&self, kind: usize, answer: &[u8]) -> bool {
        match kind {
            0 => is_value(answer, self.keys),
            _ => answer == self.range.to_le_bytes(),
        }
    }
}
