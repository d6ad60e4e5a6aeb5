//! Volumes against a model, and what is refused. Servers are of this process.

mod common;

use std::time::Duration;

use common::{block, eventually, in_folder, in_memory, options, start, BLOCK};
use dunlin_volume::client::Operation;
use dunlin_volume::server::Place;
use dunlin_volume::types::ShapeError;
use dunlin_volume::{check, create, remove, Volume, VolumeError, VolumeOptions, BLOCK_BYTES};
use proptest::prelude::*;

/// What a model does with blocks.
#[derive(Clone, Debug)]
enum Step {
    Write { first: u64, count: u64, fill: u8 },
    Read { first: u64, count: u64 },
    Trim { first: u64, count: u64 },
    Reopen,
}

fn steps(blocks: u64) -> impl Strategy<Value = Vec<Step>> {
    let range = (0..blocks).prop_flat_map(move |first| (Just(first), 1..=(blocks - first).min(70)));
    let step = prop_oneof![
        5 => (range.clone(), any::<u8>())
            .prop_map(|((first, count), fill)| Step::Write { first, count, fill }),
        5 => range.clone().prop_map(|(first, count)| Step::Read { first, count }),
        2 => range.prop_map(|(first, count)| Step::Trim { first, count }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

fn run_steps(addresses: &[String], name: &str, blocks: u64, steps: &[Step]) {
    create(name, blocks * BLOCK, addresses, &options()).unwrap();
    let mut volume = Volume::open(name, addresses, &options()).unwrap();
    let mut model = vec![0; (blocks * BLOCK) as usize];
    let bytes =
        |first: u64, count: u64| (first * BLOCK) as usize..((first + count) * BLOCK) as usize;
    for step in steps {
        match step {
            Step::Write { first, count, fill } => {
                let new: Vec<u8> = (0..count * BLOCK)
                    .map(|at| fill.wrapping_add((at / 512) as u8))
                    .collect();
                volume.write_at(first * BLOCK, &new).unwrap();
                model[bytes(*first, *count)].copy_from_slice(&new);
            }
            Step::Read { first, count } => {
                let read = volume
                    .read_at(first * BLOCK, (count * BLOCK) as usize)
                    .unwrap();
                assert!(read == model[bytes(*first, *count)]);
            }
            Step::Trim { first, count } => {
                volume.trim(first * BLOCK, count * BLOCK).unwrap();
                model[bytes(*first, *count)].fill(0);
            }
            Step::Reopen => {
                drop(volume);
                volume = Volume::open(name, addresses, &options()).unwrap();
            }
        }
    }
    for (first, model) in model.chunks(64 * BLOCK_BYTES).enumerate() {
        let read = volume
            .read_at(first as u64 * 64 * BLOCK, model.len())
            .unwrap();
        assert!(read == model);
    }
    drop(volume);
    let findings = check(name, addresses, &options()).unwrap();
    assert!(findings.faults.is_empty(), "{:?}", findings.faults);
    assert_eq!(findings.blocks, blocks);
    remove(name, addresses, &options()).unwrap();
}

#[test]
fn volumes_are_what_was_written_to_them() {
    let (_servers, in_memory) = in_memory(4);
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let servers: Vec<_> = folders
        .iter()
        .map(|folder| start(in_folder(folder.path()), "dunlin://127.0.0.1:0"))
        .collect();
    let on_disk: Vec<_> = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    let alone = vec![in_memory[0].clone()];
    let number = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: std::env::var("DUNLIN_VOLUME_CASES").map_or(8, |text| text.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    // The volume ends in a chunk that is not whole.
    let blocks = 4096 + 100;
    let near_the_end = steps(200);
    runner
        .run(&near_the_end, |steps| {
            let shifted: Vec<Step> = steps.iter().map(|step| shift(step, blocks - 200)).collect();
            for addresses in [&in_memory, &on_disk, &alone] {
                number.set(number.get() + 1);
                run_steps(
                    addresses,
                    &format!("volume{}", number.get()),
                    blocks,
                    &shifted,
                );
            }
            Ok(())
        })
        .unwrap();
}

fn shift(step: &Step, by: u64) -> Step {
    match step.clone() {
        Step::Write { first, count, fill } => Step::Write {
            first: first + by,
            count,
            fill,
        },
        Step::Read { first, count } => Step::Read {
            first: first + by,
            count,
        },
        Step::Trim { first, count } => Step::Trim {
            first: first + by,
            count,
        },
        Step::Reopen => Step::Reopen,
    }
}

#[test]
fn many_requests_are_out_at_once() {
    let (_servers, addresses) = in_memory(3);
    create("birds", 1 << 24, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    let blocks = 2000;
    let (mut begun, mut ended) = (0, 0);
    while ended < blocks {
        while begun < blocks {
            let bytes = block(begun, 1);
            if !volume
                .begin(Operation::Write(&bytes), begun * BLOCK, begun)
                .unwrap()
            {
                break;
            }
            begun += 1;
        }
        match volume.poll() {
            Some(done) => {
                done.result.unwrap();
                ended += 1;
            }
            None => volume.wait(&[], Duration::from_millis(20)).unwrap(),
        }
    }
    let read = volume.read_at(0, 1000 * BLOCK_BYTES).unwrap();
    for number in 0..1000 {
        assert!(read[number as usize * BLOCK_BYTES..][..BLOCK_BYTES] == block(number, 1));
    }
}

#[test]
fn who_does_not_poll_for_a_while_keeps_its_copies() {
    let (_servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    let impatient = VolumeOptions {
        replace_after: Duration::from_secs(1),
        ..options()
    };
    let mut volume = Volume::open("birds", &addresses, &impatient).unwrap();
    eventually("all are there", || {
        volume.poll();
        volume.is_in_sync()
    });
    for tag in 0..10 {
        let bytes = block(tag, 1);
        assert!(volume
            .begin(Operation::Write(&bytes), tag * BLOCK, tag)
            .unwrap());
    }
    // The copies answer, and nobody looks.
    std::thread::sleep(Duration::from_secs(3));
    let mut ended = 0;
    while ended < 10 {
        match volume.poll() {
            Some(done) => ended += u64::from(done.result.is_ok()),
            None => volume.wait(&[], Duration::from_millis(20)).unwrap(),
        }
        assert!(volume.is_in_sync(), "copies that had answered are out");
    }
}

#[test]
fn writes_that_overlap_leave_equal_copies() {
    let (_servers, addresses) = in_memory(3);
    create("birds", 1 << 24, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    let (mut random, mut out) = (fastrand::Rng::with_seed(1), 0);
    for tag in 0..500 {
        let (number, count) = (random.u64(..8), random.u64(1..=4));
        let bytes: Vec<u8> = (0..count)
            .flat_map(|nth| block(number + nth, tag))
            .collect();
        out += u64::from(
            volume
                .begin(Operation::Write(&bytes), number * BLOCK, tag)
                .unwrap(),
        );
        while let Some(done) = volume.poll() {
            done.result.unwrap();
            out -= 1;
        }
    }
    eventually("all writes end", || {
        out -= volume
            .poll()
            .map_or(0, |done| done.result.map(|_| 1).unwrap());
        out == 0
    });
    let faults = check("birds", &addresses, &options()).unwrap().faults;
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let (_servers, addresses) = in_memory(3);
    let options = &options();
    let made =
        |name: &str, bytes: u64, addresses: &[String]| create(name, bytes, addresses, options);
    assert!(matches!(
        made("birds", 4097, &addresses),
        Err(VolumeError::Unaligned(4097))
    ));
    let shape = |result| match result {
        Err(VolumeError::Shape(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        shape(made("a b", 4096, &addresses)),
        ShapeError::Name("a b".into())
    );
    assert_eq!(shape(made("birds", 0, &addresses)), ShapeError::Blocks(0));
    let servers = ShapeError::Servers {
        servers: 2,
        copies: 3,
    };
    assert_eq!(shape(made("birds", 4096, &addresses[..2])), servers);
    let full = made("birds", 4 << 30, &addresses).unwrap_err().to_string();
    assert!(full.contains("capacity"), "{full}");

    made("birds", 1 << 20, &addresses).unwrap();
    assert!(matches!(
        made("birds", 1 << 20, &addresses),
        Err(VolumeError::Exists { .. })
    ));
    let open = |name: &str, addresses: &[String]| Volume::open(name, addresses, options);
    assert!(matches!(open("fish", &addresses), Err(VolumeError::Unknown(name)) if name == "fish"));
    let mut turned = addresses.clone();
    turned.rotate_left(1);
    let order = open("birds", &turned).unwrap_err();
    assert!(matches!(order, VolumeError::Order(_)), "{order}");
    assert!(matches!(
        open("birds", &addresses[..1]),
        Err(VolumeError::Order(_))
    ));

    let mut volume = open("birds", &addresses).unwrap();
    let unaligned = volume.write_at(100, &[0; BLOCK_BYTES]);
    assert!(matches!(unaligned, Err(VolumeError::Unaligned(100))));
    assert!(matches!(
        volume.read_at(0, 5),
        Err(VolumeError::Unaligned(5))
    ));
    let behind = volume.read_at(1 << 20, BLOCK_BYTES);
    assert!(matches!(behind, Err(VolumeError::Range { .. })));
    assert!(matches!(
        volume.trim(u64::MAX - 4095, 4096),
        Err(VolumeError::Range { .. })
    ));
    assert!(matches!(
        volume.write_at(0, &[]),
        Err(VolumeError::Range { length: 0, .. })
    ));
}

#[test]
fn who_was_replaced_writes_no_more() {
    let (_servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    let mut first = Volume::open("birds", &addresses, &options()).unwrap();
    first.write_at(0, &block(0, 1)).unwrap();
    let mut second = Volume::open("birds", &addresses, &options()).unwrap();
    assert!(matches!(
        first.write_at(0, &block(0, 2)),
        Err(VolumeError::Replaced)
    ));
    assert!(matches!(
        first.read_at(0, BLOCK_BYTES),
        Err(VolumeError::Replaced)
    ));
    assert_eq!(second.read_at(0, BLOCK_BYTES).unwrap(), block(0, 1));
    second.write_at(0, &block(0, 3)).unwrap();
    let faults = check("birds", &addresses, &options()).unwrap().faults;
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_copy_that_has_lost_everything_is_built_anew() {
    let (mut servers, addresses) = in_memory(3);
    create("birds", 1 << 24, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    for number in 0..300 {
        volume
            .write_at(number * 7 * BLOCK, &block(number, 1))
            .unwrap();
    }
    servers.remove(1).shutdown();
    volume.write_at(0, &block(0, 2)).unwrap();
    servers.push(start(Place::Memory, &addresses[1]));
    eventually("it is built", || {
        volume.write_at(BLOCK, &block(1, 3)).unwrap();
        volume.is_in_sync()
    });
    drop(volume);
    let findings = check("birds", &addresses, &options()).unwrap();
    assert_eq!((findings.faults, findings.written), (vec![], 301));
    // It counts like the others now: one of those may go.
    servers.remove(0).shutdown();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    assert_eq!(volume.read_at(0, BLOCK_BYTES).unwrap(), block(0, 2));
    assert_eq!(
        volume.read_at(299 * 7 * BLOCK, BLOCK_BYTES).unwrap(),
        block(299, 1)
    );
}
