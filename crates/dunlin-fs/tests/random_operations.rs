//! Random reads, writes and truncations beside a vector of bytes, as `fsx` does it.
//!
//! `DUNLIN_FSX_STEPS` says how many steps (20,000), `DUNLIN_FSX_SEED` which: `DUNLIN_FSX_STEPS=1000000 cargo test
//! --release -p dunlin-fs --test random_operations` is the long run.

mod common;

use std::time::Duration;

use common::Cluster;

/// Longest file, and longest operation: several extents, and neither a multiple of one.
const FILE_BYTES: usize = 300_000;
const OPERATION_BYTES: usize = 70_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn content_is_what_a_vector_of_bytes_says() {
    let steps = setting("DUNLIN_FSX_STEPS", 20_000);
    let seed = setting("DUNLIN_FSX_SEED", fastrand::u64(..));
    println!("DUNLIN_FSX_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cluster = Cluster::new(2, 8 << 20, Duration::from_secs(10));
    let systems = [cluster.client(), cluster.client()];
    drop(systems[0].create_new("/f").unwrap());
    let files = systems.each_ref().map(|system| system.open("/f").unwrap());
    let mut model: Vec<u8> = Vec::new();
    // One client for some hundred steps, then the other: a change costs a commit.
    let mut who = 0;
    for step in 0..steps {
        if random.usize(..400) == 0 {
            who = 1 - who;
        }
        let file = &files[who];
        let (offset, length) = (random.usize(..FILE_BYTES), random.usize(..OPERATION_BYTES));
        match random.u32(..100) {
            0..40 => {
                let read = file.read_at(offset as u64, length).unwrap();
                let end = model.len().min(offset + length);
                let there = model.get(offset..end).unwrap_or(&[]);
                assert!(read == there, "step {step}: {length} bytes at {offset}");
            }
            40..85 => {
                let end = FILE_BYTES.min(offset + length);
                let bytes = vec![random.u8(1..); end - offset];
                file.write_at(offset as u64, &bytes).unwrap();
                if !bytes.is_empty() {
                    model.resize(model.len().max(end), 0);
                    model[offset..end].copy_from_slice(&bytes);
                }
            }
            85..95 => {
                file.set_len(offset as u64).unwrap();
                model.resize(offset, 0);
            }
            95..99 => {
                // Reading takes the lease: what the other client had not committed is committed then.
                file.read_at(0, 1).unwrap();
                assert_eq!(file.attributes().unwrap().size, model.len() as u64);
            }
            _ => file.sync().unwrap(),
        }
        if step == steps / 2 {
            cluster.restart_meta();
        }
    }
    assert!(files[who].read_at(0, FILE_BYTES).unwrap() == model);
    drop((files, systems));
    let findings = cluster.check();
    assert_eq!(findings.mapped + findings.free, findings.extents);
}
