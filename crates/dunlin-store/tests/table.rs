//! The table against a model, when full, under damage, and used by several threads at once.

use std::collections::HashMap;

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_store::{Layout, StoreError, Table};
use dunlin_verbs::{Access, Device, Region};
use proptest::prelude::*;

type ShmTable = Table<<ShmDevice as Device>::Region>;

fn table(main: u64, overflow: u64, value_bytes: usize) -> ShmTable {
    let layout = Layout::new(main, overflow, value_bytes, 7).unwrap();
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let region = device
        .allocate_region(&domain, layout.bytes(), Access::LOCAL_WRITE)
        .unwrap();
    Table::create(region, layout).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One or two main buckets: chains grow, shrink and run out of buckets.
    #[test]
    fn is_a_map(main in 0u32..2, overflow in 0u64..4, steps in prop::collection::vec((0u8..5, 0u64..40, any::<u64>()), 1..300)) {
        let table = table(1 << main, overflow, 8);
        let mut model: HashMap<u64, (u64, Option<u16>)> = HashMap::new();
        for (what, key, value) in steps {
            let bytes = value.to_le_bytes();
            let known = model.get(&key).copied();
            let owner = (value % 3) as u16;
            match (what, known) {
                (0 | 1, Some(_)) => prop_assert_eq!(table.insert(key, &bytes), Err(StoreError::Exists(key))),
                (0 | 1, None) => match table.insert(key, &bytes) {
                    Ok(_) => drop(model.insert(key, (value, None))),
                    // Full only where all places could be: seven in each bucket of the key's chain at least.
                    Err(StoreError::Full { .. }) => prop_assert!(model.len() >= 7),
                    Err(other) => prop_assert!(false, "{}", other),
                },
                (2, None) => prop_assert_eq!(table.delete(key), Err(StoreError::Absent(key))),
                (2, Some((_, None))) => {
                    table.delete(key).unwrap();
                    model.remove(&key);
                }
                (2, Some((_, Some(owner)))) => prop_assert_eq!(table.delete(key), Err(StoreError::Locked { key, owner })),
                (3, Some((old, None))) => {
                    table.try_lock(key, owner).unwrap();
                    model.insert(key, (old, Some(owner)));
                }
                (3, Some((_, Some(holder)))) => {
                    prop_assert_eq!(table.try_lock(key, owner).unwrap_err(), StoreError::Locked { key, owner: holder });
                    if holder == owner {
                        table.update_and_unlock(key, owner, &bytes).unwrap();
                        model.insert(key, (value, None));
                    } else {
                        prop_assert_eq!(table.unlock(key, owner), Err(StoreError::NotLocked { key, owner }));
                    }
                }
                (4, Some((_, None))) => {
                    let (_, before) = table.address_of(key).unwrap();
                    prop_assert_eq!(table.update(key, &bytes).unwrap(), before.version() + 1);
                    model.insert(key, (value, None));
                }
                _ => {}
            }
        }
        let mut bytes = [0; 8];
        for key in 0..40 {
            if let Some((_, Some(owner))) = model.get(&key) {
                table.unlock(key, *owner).unwrap();
            }
            let got = table.get(key, &mut bytes).ok().map(|_| u64::from_le_bytes(bytes));
            prop_assert_eq!(got, model.get(&key).map(|known| known.0));
            if got.is_some() {
                table.delete(key).unwrap();
            }
        }
        // All overflow buckets are back: one chain takes as many keys as it could at first.
        if main == 0 {
            let places = 7 * (overflow + 1);
            for key in 0..places {
                table.insert(key, &bytes).unwrap();
            }
            let overflow_buckets = overflow as u32;
            prop_assert_eq!(table.insert(places, &bytes), Err(StoreError::Full { overflow_buckets }));
        }
    }

    #[test]
    fn descriptions_are_checked(bytes in any::<[u8; 32]>(), at in 0usize..32) {
        prop_assert!(Layout::parse(&bytes).is_err() || bytes[0] == 0x41);
        let layout = Layout::new(8, 3, 100, 9).unwrap();
        let mut described = layout.describe();
        prop_assert_eq!(Layout::parse(&described).unwrap(), layout);
        described[at] = bytes[0];
        if let Ok(parsed) = Layout::parse(&described) {
            let last = parsed.item(parsed.main_bucket(u64::MAX), 6).unwrap();
            prop_assert!(last.value + parsed.value_bytes() <= parsed.bytes());
        }
    }
}

#[test]
fn limits_are_errors() {
    assert!(matches!(
        Layout::new(8, 0, 4061, 0),
        Err(StoreError::ValueBytes {
            bytes: 4061,
            limit: 4060
        })
    ));
    assert!(matches!(
        Layout::new(6, 0, 8, 0),
        Err(StoreError::Buckets { main: 6, .. })
    ));
    assert!(matches!(
        Layout::new(8, u64::MAX, 8, 0),
        Err(StoreError::Buckets { .. })
    ));
    let table = table(1, 0, 4060);
    assert!(matches!(
        table.insert(1, &[0; 4061]),
        Err(StoreError::ValueLength { expected: 4060, .. })
    ));
    table.insert(1, &[3; 4060]).unwrap();
    assert!(matches!(
        table.try_lock(1, u16::MAX),
        Err(StoreError::Owner { .. })
    ));
}

/// A client that may write the region leads a chain in a circle, and outside.
#[test]
fn a_damaged_chain_is_an_error() {
    let table = table(1, 2, 8);
    for key in 0..8 {
        table.insert(key, &[0; 8]).unwrap();
    }
    let overflow = table.layout().bucket_offset(1) + 56;
    for next in [1u32, 3, u32::MAX] {
        table
            .region()
            .memory()
            .write(overflow + 4, &next.to_ne_bytes());
        assert_eq!(
            table.get(99, &mut [0; 8]),
            Err(StoreError::Damaged { bucket: 0 })
        );
        assert_eq!(
            table.insert(99, &[0; 8]),
            Err(StoreError::Damaged { bucket: 0 })
        );
    }
}

/// What a client sees by address: the layout alone leads to the item, and a WRITE with the header last ends the lock.
#[test]
fn an_item_is_read_and_written_by_address() {
    let table = table(4, 4, 16);
    table.insert(5, &[1; 16]).unwrap();
    let (address, version) = table.try_lock(5, 3).unwrap();
    assert!(matches!(
        table.get(5, &mut [0; 16]),
        Err(StoreError::Locked { key: 5, owner: 3 })
    ));
    let (_, header) = table.address_of(5).unwrap();
    let memory = table.region().memory();
    memory.write(address.value, &[2; 16]);
    memory.write(address.header, &header.changed(true).0.to_ne_bytes());
    let mut value = [0; 16];
    assert_eq!(table.get(5, &mut value).unwrap(), version + 1);
    assert_eq!(value, [2; 16]);
}

/// Values hold their key and one number throughout: a torn or foreign one is noticed.
#[test]
fn threads_see_whole_values() {
    const WORDS: usize = 64;
    let table = table(1, 6, WORDS * 8);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
                let mut value = [0; WORDS * 8];
                for _ in 0..30_000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let key = (state >> 32) % 40;
                    let outcome = match state % 8 {
                        0 | 1 => {
                            let word = (key << 56) | (state >> 8);
                            value
                                .chunks_exact_mut(8)
                                .for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()));
                            if state & 8 == 0 {
                                table.update(key, &value)
                            } else {
                                table.insert(key, &value)
                            }
                            .map(drop)
                        }
                        2 => table.delete(key),
                        3 => table
                            .try_lock(key, thread as u16)
                            .and_then(|_| table.unlock(key, thread as u16)),
                        _ => table.get(key, &mut value).map(|_| {
                            assert!(
                                value.chunks_exact(8).all(|chunk| chunk == &value[..8]),
                                "a torn value"
                            );
                            let word = u64::from_le_bytes(value[..8].try_into().unwrap());
                            assert_eq!(word >> 56, key, "another key's value");
                        }),
                    };
                    let damaged = matches!(
                        outcome,
                        Err(StoreError::Damaged { .. } | StoreError::Full { .. })
                    );
                    assert!(!damaged, "{outcome:?}");
                }
            });
        }
    });
}

/// A transaction's items: made before they have a value, locked against all others, gone when they stay without one.
#[test]
fn items_of_transactions_have_the_versions_they_are_given() {
    let table = table(1, 2, 8);
    let mut value = [0; 8];
    let (place, header) = table.reserve(5, 1, |before| before + 10).unwrap();
    assert!(header.is_locked() && !header.is_present() && header.version() == 10);
    assert_eq!(table.reserve(5, 2, |_| 0), Err(StoreError::Exists(5)));
    let held = StoreError::Locked { key: 5, owner: 1 };
    assert_eq!(table.read(5, &mut value), Err(held));
    assert_eq!(table.try_lock(5, 2), Err(held));
    // Without a value it goes, and the place keeps its version.
    table.release(5, 1).unwrap();
    assert_eq!(table.read(5, &mut value), Err(StoreError::Absent(5)));
    let (again, header) = table.reserve(5, 2, |before| before).unwrap();
    assert_eq!((again, header.version()), (place, 10));
    assert_eq!(
        table.set_locked(5, 1, Some(&[1; 8]), 11),
        Err(StoreError::NotLocked { key: 5, owner: 1 })
    );
    table.set_locked(5, 2, Some(&[1; 8]), 11).unwrap();
    let (_, header) = table.read_locked(5, 2, &mut value).unwrap();
    assert!(header.is_locked() && header.is_present() && value == [1; 8]);
    table.release(5, 2).unwrap();
    let (_, header) = table.read(5, &mut value).unwrap();
    assert_eq!((header.version(), header.is_locked()), (11, false));
    // A copy takes what is newer and leaves the rest.
    assert_eq!(table.apply(5, Some(&[2; 8]), 11), Ok(false));
    assert_eq!(table.apply(5, Some(&[2; 8]), 12), Ok(true));
    assert_eq!(table.get(5, &mut value), Ok(12));
    assert_eq!(table.apply(5, None, 13), Ok(true));
    assert_eq!(table.get(5, &mut value), Err(StoreError::Absent(5)));
    assert_eq!(table.apply(6, Some(&[3; 8]), 4), Ok(true));
    assert_eq!(table.get(6, &mut value), Ok(4));
}

/// What was inserted is taken back without a trace but for its version, and what has changed since stays.
#[test]
fn an_insertion_is_taken_back() {
    let table = table(1, 0, 8);
    let mut value = [0; 8];
    assert!(!table.contains(1));
    assert_eq!(table.apply(1, Some(&[7; 8]), 5), Ok(true));
    assert!(table.contains(1));
    table.take_back(1, 4).unwrap();
    assert_eq!(table.read(1, &mut value).unwrap().1.version(), 5);
    table.take_back(1, 5).unwrap();
    assert!(!table.contains(1));
    assert_eq!(table.take_back(1, 5), Err(StoreError::Absent(1)));
    assert_eq!(table.apply(1, Some(&[8; 8]), 3), Ok(true));
}
