//! A store in a server's region, and clients that READ it while the server changes it.

use std::sync::atomic::{AtomicBool, Ordering};

use dunlin::{Client, Region, RemoteRegion, Server};
use dunlin_store::kv::{Key, KvLayout, KvStore, Lookup, Step};

fn look(region: &RemoteRegion, layout: KvLayout, key: Key<'_>) -> Step {
    let (mut lookup, mut step) = Lookup::new(layout, key);
    while let Step::Read { offset, length } = step {
        step = lookup.next(&region.read(offset as u64, length).unwrap());
    }
    step
}

/// Values have their key's number, their length and one byte throughout.
fn value(number: u64, seed: u64) -> Vec<u8> {
    let length = [24, 100, 5_000, 70_000][seed as usize % 4];
    let mut value = vec![seed as u8; length];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    value
}

fn is_whole(number: u64, value: &[u8]) -> bool {
    value[..8] == number.to_le_bytes()
        && value[8..16] == (value.len() as u64).to_le_bytes()
        && value[16..].iter().all(|byte| *byte == value[16])
}

#[test]
fn clients_read_whole_values_or_are_told() {
    let layout = KvLayout::new(5, 1 << 21, 1 << 20, 3).unwrap();
    let region = Region::new("kv", layout.bytes());
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = server.region(&region).serve().unwrap();
    let store = KvStore::create(region.registered().unwrap(), layout).unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let remote = client.attach("kv").unwrap();

    // What is there, in the main bucket and behind it, and what is not.
    for number in 0..20u64 {
        store
            .put(
                &store.key(&number.to_le_bytes()).unwrap(),
                &value(number, number),
            )
            .unwrap();
    }
    for number in 0..20u64 {
        let name = number.to_le_bytes();
        let step = look(&remote, layout, layout.key(&name).unwrap());
        assert_eq!(step, Step::Found(value(number, number)));
    }
    assert_eq!(
        look(&remote, layout, layout.key(b"none").unwrap()),
        Step::Absent
    );

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            while !done.load(Ordering::Relaxed) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let number = (state >> 32) % 20;
                let name = number.to_le_bytes();
                let key = store.key(&name).unwrap();
                match state % 3 {
                    0 => drop(store.delete(&key)),
                    _ => drop(store.put(&key, &value(number, state >> 8))),
                }
                std::thread::yield_now();
            }
        });
        let (mut found, mut looks) = (0, 0u64);
        while found < 2_000 && looks < 1_000_000 {
            let number = looks % 20;
            looks += 1;
            let name = number.to_le_bytes();
            if let Step::Found(value) = look(&remote, layout, layout.key(&name).unwrap()) {
                found += 1;
                if !is_whole(number, &value) {
                    done.store(true, Ordering::Relaxed);
                    panic!("a torn value of {} bytes", value.len());
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(found > 0);
    });
    server.shutdown();
}

/// Bytes that no honest store has lead nowhere, and never outside.
#[test]
fn nonsense_is_refused() {
    let layout = KvLayout::new(5, 1 << 20, 1 << 20, 3).unwrap();
    let key = layout.key(b"key").unwrap();
    let mut state = 7u64;
    for _ in 0..20_000 {
        let (mut lookup, mut step) = Lookup::new(layout, key);
        let mut reads = 0;
        while let Step::Read { offset, length } = step {
            assert!(offset + length <= layout.bytes());
            reads += 1;
            assert!(reads < 1_000, "it ends");
            let bytes: Vec<u8> = (0..length.min(70_000))
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    // Many places with the key's tag, and small numbers.
                    if state >> 62 == 0 {
                        (state >> 40) as u8
                    } else {
                        0
                    }
                })
                .collect();
            step = lookup.next(&bytes);
        }
    }
}
