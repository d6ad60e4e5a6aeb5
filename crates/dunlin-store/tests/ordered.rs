//! The store with its index: a model by properties, and scans while keys come and go.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{scan, store, ShmStore};
use proptest::prelude::*;

/// At most `most` keys from `first` on.
fn scan_keys(store: &ShmStore, first: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    store.scan_keys(first, |key| {
        if keys.len() < most {
            keys.push(key.to_vec());
        }
        keys.len() < most
    });
    keys
}

/// Short ones, which stand in the index's nodes, and longer ones with the same beginning.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        prop::collection::vec(0u8..2, 20..25),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Sixteen blocks of memory, which long values use up.
    #[test]
    fn is_an_ordered_map(steps in prop::collection::vec((0u8..4, key(), 0usize..60_000, 0usize..40), 1..200)) {
        let store = store(100, 1 << 20);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (what, name, length, most) in steps {
            let key = store.store().key(&name).unwrap();
            match what {
                0 | 1 => {
                    let value = vec![length as u8; if what == 0 { length % 100 } else { length }];
                    // One that is refused leaves nothing in the index.
                    if store.put(&key, &value).is_ok() {
                        model.insert(name, value);
                    }
                }
                2 => prop_assert_eq!(store.delete(&key), model.remove(&name).is_some()),
                _ => {
                    let expected: Vec<_> = model
                        .range(name.clone()..)
                        .take(most)
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect();
                    prop_assert_eq!(scan(&store, &name, most), expected);
                    let keys = model.range(name.clone()..).map(|(key, _)| key.clone());
                    let keys: Vec<_> = keys.take(most).collect();
                    prop_assert_eq!(scan_keys(&store, &name, most), keys);
                }
            }
        }
        prop_assert_eq!(scan(&store, b"", usize::MAX).len(), model.len());
    }
}

/// Keys that stay are in every scan, in order and once, whatever comes and goes between them.
#[test]
fn scans_miss_nothing_that_stays() {
    let store = store(2_000, 1 << 22);
    let name = |number: u64| format!("key{number:06}");
    let put = |number: u64| {
        let name = name(number);
        let key = store.store().key(name.as_bytes()).unwrap();
        store.put(&key, name.as_bytes()).unwrap();
    };
    (0..500).for_each(|number| put(number * 4));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..3u64 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut state = thread;
                while !done.load(Ordering::Relaxed) {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    // Both threads want the same keys.
                    let name = name((state >> 40) % 500 * 4 + 1 + (state >> 33) % 3);
                    let key = store.store().key(name.as_bytes()).unwrap();
                    match state >> 32 & 1 {
                        0 => drop(store.delete(&key)),
                        _ => drop(store.put(&key, name.as_bytes()).unwrap()),
                    }
                }
            });
        }
        for _ in 0..200 {
            let entries = scan(&store, b"key", usize::MAX);
            let ordered = entries.windows(2).all(|two| two[0].0 < two[1].0);
            let whole = entries.iter().all(|(key, value)| key == value);
            let stay = (0..500u64).filter(|number| {
                let name = name(number * 4).into_bytes();
                entries.binary_search_by(|entry| entry.0.cmp(&name)).is_ok()
            });
            let stay = stay.count();
            if !(ordered && whole && stay == 500) {
                done.store(true, Ordering::Relaxed);
                panic!("ordered {ordered}, whole {whole}, {stay} of 500");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    // The index and the store have the same keys, also where both threads changed one.
    let keys = store.store().usage().keys;
    assert_eq!(scan(&store, b"", usize::MAX).len() as u64, keys);
    let mut indexed = 0;
    store.scan(b"", 1, |_| {
        indexed += 1;
        true
    });
    assert_eq!(indexed, keys);
}
