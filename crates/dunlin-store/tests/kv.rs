//! The key-value store against a model, when full, and used by several threads at once.

use std::collections::HashMap;
use std::sync::{mpsc, Arc};
use std::time::Duration;

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_store::kv::{KvError, KvLayout, KvStore, MAX_KEY_BYTES};
use dunlin_verbs::{Access, Device};
use proptest::prelude::*;

type ShmStore = KvStore<<ShmDevice as Device>::Region>;

const LONGEST: usize = 300_000;

fn store(keys: u64, item_memory: usize) -> ShmStore {
    let layout = KvLayout::new(keys, item_memory, LONGEST, 7).unwrap();
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let region = device
        .allocate_region(&domain, layout.bytes(), access)
        .unwrap();
    KvStore::create(region, layout).unwrap()
}

fn get(store: &ShmStore, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let key = store.key(key).unwrap();
    let Ok(found) = store.get(&key, &mut value);
    found.then_some(value)
}

fn put(store: &ShmStore, key: &[u8], value: &[u8]) -> Result<bool, KvError> {
    store.put(&store.key(key).unwrap(), value)
}

fn delete(store: &ShmStore, key: &[u8]) -> bool {
    store.delete(&store.key(key).unwrap())
}

/// Bytes that tell of their number and length.
fn bytes(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (number.wrapping_mul(31).wrapping_add(at * 7 + length as u64)) as u8)
        .collect()
}

fn key(number: u64) -> Vec<u8> {
    // Of all lengths, the empty one and the longest among them.
    let length = [0, 1, 7, 8, 9, 14, 16, 40, 200, MAX_KEY_BYTES][number as usize % 10];
    let mut key = number.to_le_bytes().repeat(length / 8 + 1);
    key.truncate(length);
    key
}

/// Lengths of values: around the steps of classes, of changes in place, and of runs.
fn value_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..300,
        2 => 3_000usize..5_000,
        2 => 15_000usize..20_000,
        1 => 60_000usize..LONGEST,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Two main buckets, so that chains grow and shrink; memory that is sometimes too small.
    #[test]
    fn is_a_map(steps in prop::collection::vec((0u8..6, 0u64..60, value_bytes(), any::<u64>()), 1..300)) {
        let store = store(10, 1 << 20);
        let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for (what, number, length, seed) in steps {
            let key = key(number);
            match what {
                0..=2 => {
                    let value = bytes(seed, length);
                    match put(&store, &key, &value) {
                        Ok(replaced) => prop_assert_eq!(replaced, model.insert(key, value).is_some()),
                        Err(KvError::NoMemory { needed, total, .. }) => {
                            prop_assert!(needed >= length && total == 1 << 20);
                            // Sixteen blocks: each class takes one for its first item.
                            prop_assert!(model.len() > 3);
                        }
                        Err(other) => prop_assert_eq!(other, KvError::NoBuckets(8)),
                    }
                }
                3 => prop_assert_eq!(delete(&store, &key), model.remove(&key).is_some()),
                _ => prop_assert_eq!(get(&store, &key), model.get(&key).cloned()),
            }
        }
        prop_assert_eq!(store.usage().keys, model.len() as u64);
        for number in 0..60 {
            let key = key(number);
            prop_assert_eq!(get(&store, &key), model.get(&key).cloned());
            prop_assert_eq!(delete(&store, &key), model.remove(&key).is_some());
        }
        let usage = store.usage();
        prop_assert_eq!((usage.keys, usage.item_bytes, usage.overflow_buckets), (0, 0, 0));
    }

    #[test]
    fn descriptions_are_checked(bytes in any::<[u8; 40]>(), at in 0usize..40) {
        prop_assert!(KvLayout::parse(&bytes).is_err() || bytes[0] == 0x44);
        let layout = KvLayout::new(1000, 1 << 20, LONGEST, 9).unwrap();
        let mut described = layout.describe();
        prop_assert_eq!(KvLayout::parse(&described).unwrap(), layout);
        described[at] = bytes[0];
        if let Ok(parsed) = KvLayout::parse(&described) {
            prop_assert!(parsed.bytes() > parsed.item_memory());
        }
    }
}

#[test]
fn limits_are_errors() {
    let store = store(10, 1 << 20);
    let long = vec![1; MAX_KEY_BYTES + 1];
    assert_eq!(store.key(&long).unwrap_err(), KvError::KeyBytes(1025));
    let value = vec![2; LONGEST + 1];
    let limit = LONGEST;
    assert_eq!(
        put(&store, b"a", &value),
        Err(KvError::ValueBytes {
            bytes: LONGEST + 1,
            limit
        })
    );
    assert!(matches!(KvLayout::new(0, 1, 1, 0), Err(KvError::Keys(0))));
    assert!(matches!(
        KvLayout::new(u64::MAX, 1, 1, 0),
        Err(KvError::Keys(_))
    ));
    assert!(matches!(
        KvLayout::new(1, 1, 2 << 30, 0),
        Err(KvError::LongestValue(_))
    ));
    assert!(matches!(
        KvLayout::in_memory(4096, 100, 1, 0),
        Err(KvError::Memory { length: 4096, .. })
    ));
    let fits = KvLayout::in_memory(10 << 20, 100, 1, 0).unwrap();
    assert!((9 << 20..=10 << 20).contains(&fits.bytes()));
}

/// A full store says so, keeps what it has, changes in place, and takes again what was deleted.
#[test]
fn a_full_store_keeps_what_it_has() {
    let store = store(2000, 1 << 17);
    let mut held = 0u64;
    let error = loop {
        match put(&store, &held.to_le_bytes(), &bytes(held, 100)) {
            Ok(replaced) => assert!(!replaced),
            Err(error) => break error,
        }
        held += 1;
    };
    // 116 bytes in chunks of 128.
    assert_eq!(held, 1024);
    assert!(
        matches!(
            error,
            KvError::NoMemory {
                needed: 116,
                free: 0,
                ..
            }
        ),
        "{error}"
    );
    assert!(put(&store, &7u64.to_le_bytes(), &bytes(99, 100)).unwrap());
    assert!(put(&store, &7u64.to_le_bytes(), &bytes(99, 1000)).is_err());
    assert_eq!(get(&store, &7u64.to_le_bytes()), Some(bytes(99, 100)));
    assert!(delete(&store, &8u64.to_le_bytes()));
    assert!(!put(&store, &held.to_le_bytes(), &bytes(held, 100)).unwrap());
    for number in (0..held).filter(|number| ![7, 8].contains(number)) {
        assert_eq!(get(&store, &number.to_le_bytes()), Some(bytes(number, 100)));
    }
}

#[test]
fn many_are_found_together() {
    let store = store(1000, 1 << 20);
    for number in (0..200u64).step_by(2) {
        put(&store, &key(number), &bytes(number, number as usize)).unwrap();
    }
    let numbers: Vec<u64> = (0..200).filter(|number| number % 10 != 0).collect();
    let names: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    let keys: Vec<_> = names.iter().map(|name| store.key(name).unwrap()).collect();
    let mut values = vec![Vec::new(); keys.len()];
    let mut found = Vec::new();
    let Ok(()) = store.get_many(&keys, &mut values, |at, is_there| {
        assert_eq!(at, found.len());
        found.push(is_there);
    });
    for ((name, value), found) in names.iter().zip(&values).zip(found) {
        assert_eq!(found.then(|| value.clone()), get(&store, name));
    }
}

/// Values have one number and their length throughout: a torn or foreign one is noticed. Few keys, so that chains
/// change, and few chunks, so that one key's is soon another's.
#[test]
fn threads_see_whole_values() {
    let store = store(5, 1 << 18);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
                let mut value = Vec::new();
                for _ in 0..30_000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let number = (state >> 32) % 40;
                    let name = number.to_le_bytes();
                    let key = store.key(&name).unwrap();
                    match state % 8 {
                        0..=2 => {
                            let length = match state >> 8 & 7 {
                                0 => 20_000,
                                1 => 5_000,
                                _ => 24 + (state >> 16) as usize % 100,
                            };
                            value.clear();
                            value.resize(length, (state >> 24) as u8);
                            value[..8].copy_from_slice(&number.to_le_bytes());
                            value[8..16].copy_from_slice(&(length as u64).to_le_bytes());
                            match store.put(&key, &value) {
                                Ok(_) | Err(KvError::NoMemory { .. } | KvError::NoBuckets(_)) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                        3 => drop(store.delete(&key)),
                        _ => {
                            let Ok(found) = store.get(&key, &mut value);
                            if found {
                                let word = |at: usize| {
                                    u64::from_le_bytes(value[at..at + 8].try_into().unwrap())
                                };
                                assert_eq!(word(0), number, "another key's value");
                                assert_eq!(word(8), value.len() as u64, "a torn length");
                                let first = value[16];
                                assert!(value[16..].iter().all(|byte| *byte == first), "torn");
                            }
                        }
                    }
                }
            });
        }
    });
    for number in 0..40u64 {
        delete(&store, &number.to_le_bytes());
    }
    let usage = store.usage();
    assert_eq!(
        (usage.keys, usage.item_bytes, usage.overflow_buckets),
        (0, 0, 0)
    );
}

/// Both look at the memory of items and at the overflow buckets, and neither waits for the other for ever.
#[test]
fn how_full_it_is_is_told_while_there_is_no_bucket() {
    let store = Arc::new(store(10, 1 << 20));
    let is_full = |number: &u64| match put(&store, &number.to_le_bytes(), &[1; 24]) {
        Ok(_) => false,
        Err(KvError::NoBuckets(_)) => true,
        Err(other) => panic!("{other}"),
    };
    let full = (0..).find(is_full).unwrap();
    let (done, is_done) = mpsc::channel();
    let (puts, other) = (Arc::clone(&store), done.clone());
    std::thread::spawn(move || {
        // Some of them find a place in the chain of another bucket.
        (full..full + 300_000)
            .for_each(|number| drop(put(&puts, &u64::to_le_bytes(number), &[2; 5_000])));
        other.send(())
    });
    std::thread::spawn(move || {
        for _ in 0..3_000_000 {
            std::hint::black_box(store.usage());
        }
        done.send(())
    });
    for _ in 0..2 {
        let waited = is_done.recv_timeout(Duration::from_secs(60));
        waited.expect("they wait for each other");
    }
}
