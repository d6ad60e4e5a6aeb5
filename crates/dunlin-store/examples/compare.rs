//! GETs and updates of 64-byte values in one thread: the table and the key-value store beside `hashbrown` and
//! `dashmap`, in turns.
//!
//! `cargo run --release -p dunlin-store --example compare -- [KEYS] [--json]`; a million keys by default. Each turn
//! draws the same keys for all of them; rates are medians of nine turns. "together" are GETs of 16 keys by `get_many`;
//! `hashbrown` and `dashmap` look for them one after the other there, too.

use std::error::Error;
use std::time::Instant;

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_store::kv::{KvLayout, KvStore, Space};
use dunlin_store::{Layout, Table};
use dunlin_verbs::{Access, Device, Region};

const VALUE_BYTES: usize = 64;
const OPERATIONS: usize = 400_000;
const TURNS: usize = 9;
/// Keys that are looked for together.
const TOGETHER: usize = 16;

type Value = [u8; VALUE_BYTES];

/// What is measured: a map of numbers to values of 64 bytes.
trait Map {
    fn fetch(&self, key: u64, value: &mut Value) -> bool;
    fn replace(&mut self, key: u64, value: &Value) -> bool;
    /// How many of them there are.
    fn fetch_many(&self, keys: &[u64; TOGETHER], values: &mut [Value; TOGETHER]) -> usize {
        let both = keys.iter().zip(values);
        both.filter_map(|(key, value)| self.fetch(*key, value).then_some(()))
            .count()
    }
}

impl<S: Space> Map for KvStore<S> {
    fn fetch(&self, key: u64, value: &mut Value) -> bool {
        let name = key.to_ne_bytes();
        let Ok(key) = self.key(&name) else {
            return false;
        };
        self.get(&key, &mut Copied(value)) == Ok(true)
    }

    fn replace(&mut self, key: u64, value: &Value) -> bool {
        let name = key.to_ne_bytes();
        self.key(&name)
            .is_ok_and(|key| self.put(&key, value).is_ok())
    }

    fn fetch_many(&self, keys: &[u64; TOGETHER], values: &mut [Value; TOGETHER]) -> usize {
        let names = keys.map(u64::to_ne_bytes);
        let keys: [_; TOGETHER] = std::array::from_fn(|at| self.key(&names[at]).expect("8 bytes"));
        let mut targets = values.each_mut().map(Copied);
        let mut found = 0;
        let copied = self.get_many(&keys, &mut targets, |_, is_there| {
            found += usize::from(is_there)
        });
        copied.map_or(0, |()| found)
    }
}

/// A value of known length.
struct Copied<'a>(&'a mut Value);

impl dunlin_store::kv::Target for Copied<'_> {
    type Error = usize;

    fn room(&mut self, bytes: usize) -> Result<&mut [u8], usize> {
        if bytes == VALUE_BYTES {
            Ok(self.0)
        } else {
            Err(bytes)
        }
    }
}

impl<R: Region> Map for Table<R> {
    fn fetch_many(&self, keys: &[u64; TOGETHER], values: &mut [Value; TOGETHER]) -> usize {
        let mut found = 0;
        self.get_many(keys, values.as_flattened_mut(), |_, got| {
            found += usize::from(got.is_ok())
        });
        found
    }

    fn fetch(&self, key: u64, value: &mut Value) -> bool {
        self.get(key, value).is_ok()
    }

    fn replace(&mut self, key: u64, value: &Value) -> bool {
        self.update(key, value).is_ok()
    }
}

impl Map for hashbrown::HashMap<u64, Value> {
    fn fetch(&self, key: u64, value: &mut Value) -> bool {
        self.get(&key).map(|found| *value = *found).is_some()
    }

    fn replace(&mut self, key: u64, value: &Value) -> bool {
        self.get_mut(&key).map(|place| *place = *value).is_some()
    }
}

impl Map for dashmap::DashMap<u64, Value> {
    fn fetch(&self, key: u64, value: &mut Value) -> bool {
        self.get(&key).map(|found| *value = *found).is_some()
    }

    fn replace(&mut self, key: u64, value: &Value) -> bool {
        self.get_mut(&key)
            .map(|mut place| *place = *value)
            .is_some()
    }
}

/// GETs, GETs of several together, and updates a second.
fn rates<M: Map>(map: &mut M, keys: u64, seed: u64) -> [f64; 3] {
    let mut value = [0; VALUE_BYTES];
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 20) % keys
    };
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        assert!(map.fetch(draw(), &mut value));
    }
    let gets = OPERATIONS as f64 / start.elapsed().as_secs_f64();
    let mut values = [value; TOGETHER];
    let start = Instant::now();
    for _ in 0..OPERATIONS / TOGETHER {
        let drawn = std::array::from_fn(|_| draw());
        assert_eq!(map.fetch_many(&drawn, &mut values), TOGETHER);
    }
    let together = OPERATIONS as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        assert!(map.replace(draw(), &value));
    }
    let updates = OPERATIONS as f64 / start.elapsed().as_secs_f64();
    [gets, together, updates]
}

fn median(turns: &[[f64; 3]], which: usize) -> f64 {
    let mut one: Vec<f64> = turns.iter().map(|both| both[which]).collect();
    one.sort_unstable_by(f64::total_cmp);
    one[one.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let keys = arguments.iter().find(|argument| *argument != "--json");
    let keys: u64 = keys.map_or(Ok(1_000_000), |keys| keys.parse())?;

    let buckets = (keys / 5).next_power_of_two();
    let layout = Layout::new(buckets, buckets / 2, VALUE_BYTES, 1)?;
    let device = ShmDevice::open(ShmConfig::default())?;
    let domain = device.create_protection_domain()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = device.allocate_region(&domain, layout.bytes(), access)?;
    let mut table = Table::create(region, layout)?;
    let layout = KvLayout::new(keys, keys as usize * 96 + (1 << 20), VALUE_BYTES, 1)?;
    let region = device.allocate_region(&domain, layout.bytes(), access)?;
    let mut store = KvStore::create(region, layout)?;
    let mut fast = hashbrown::HashMap::new();
    let mut shared = dashmap::DashMap::new();
    for key in 0..keys {
        let value = [key as u8; VALUE_BYTES];
        table.insert(key, &value)?;
        store.put(&store.key(&key.to_ne_bytes())?, &value)?;
        fast.insert(key, value);
        shared.insert(key, value);
    }
    let mut turns = [const { Vec::new() }; 4];
    for turn in 1..=TURNS as u64 {
        turns[0].push(rates(&mut table, keys, turn));
        turns[1].push(rates(&mut store, keys, turn));
        turns[2].push(rates(&mut fast, keys, turn));
        turns[3].push(rates(&mut shared, keys, turn));
    }
    for (name, turns) in ["table", "key-value", "hashbrown", "dashmap"]
        .into_iter()
        .zip(&turns)
    {
        let (gets, together, updates) = (median(turns, 0), median(turns, 1), median(turns, 2));
        if json {
            println!(
                "{{\"map\":\"{name}\",\"keys\":{keys},\"gets_per_s\":{gets:.0},\"together_per_s\":{together:.0},\"updates_per_s\":{updates:.0}}}"
            );
        } else {
            println!(
                "{name:<12} {:5.1} M GETs/s, {:5.1} M/s together, {:5.1} M updates/s",
                gets / 1e6,
                together / 1e6,
                updates / 1e6
            );
        }
    }
    Ok(())
}
