//! The log of a server: it is bounded, outlives the server, and is not trusted when it is damaged. And what strangers
//! say to a server's handlers.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{block, in_folder, in_memory, options, start, BLOCK};
use dunlin::{CallError, Client, Server};
use dunlin_volume::server::{serve, BlockOptions, BlockServerError};
use dunlin_volume::wire::call;
use dunlin_volume::{create, Volume, BLOCK_BYTES};

fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().metadata().map_or(0, |about| about.len()))
        .sum()
}

/// Writes blocks, so many at a time.
fn write(volume: &mut Volume, blocks: std::ops::Range<u64>, run: u64, turn: u64) {
    for first in blocks.step_by(run as usize) {
        let bytes: Vec<u8> = (first..first + run)
            .flat_map(|one| block(one, turn))
            .collect();
        volume.write_at(first * BLOCK, &bytes).unwrap();
    }
}

#[test]
fn a_start_leaves_no_file_behind_in_which_nothing_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    create("birds", 64 * BLOCK, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    volume.write_at(0, &block(0, 1)).unwrap();
    drop(volume);
    assert!(server.shutdown());
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let before = files();
    for _ in 0..5 {
        assert!(start(in_folder(folder.path()), "dunlin://127.0.0.1:0").shutdown());
    }
    // The one that the last start has begun.
    assert!(files() <= before + 1, "{} files, {before} before", files());
    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    assert!(volume.read_at(0, BLOCK_BYTES).unwrap() == block(0, 1));
}

/// Blocks are written over and over, so that files of the log are cleaned; some are trimmed, and stay so.
#[test]
fn it_is_bounded_and_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    let (blocks, run) = (4096, 32);
    create("birds", blocks * BLOCK, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    volume.write_at(0, &block(0, 77)).unwrap();
    volume.trim(BLOCK, 3 * BLOCK).unwrap();
    let turns = 22;
    for turn in 0..turns {
        // What was written once, at the beginning, is carried along.
        write(&mut volume, run..blocks, run, turn);
    }
    drop(volume);
    // Twice what is live, four files, and the one that is written.
    let written = turns * (blocks - run) * BLOCK;
    let most = 2 * blocks * BLOCK + 6 * (32 << 20);
    assert!(written > most + (64 << 20));
    let found = bytes_in(folder.path());
    assert!(
        found < most,
        "{found} bytes of {written} that were written, and not below {most}"
    );
    assert!(server.shutdown());

    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    assert!(volume.read_at(0, BLOCK_BYTES).unwrap() == block(0, 77));
    assert!(volume.read_at(BLOCK, 3 * BLOCK_BYTES).unwrap() == vec![0; 3 * BLOCK_BYTES]);
    for first in [run, blocks / 2, blocks - 1] {
        let read = volume.read_at(first * BLOCK, BLOCK_BYTES).unwrap();
        assert!(read == block(first, turns - 1), "block {first}");
    }
}

/// A file of the log is damaged while the server runs, and later has the least live data of all.
#[test]
fn a_damaged_file_does_not_end_the_writing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    let (blocks, run) = (4096, 32);
    create("birds", blocks * BLOCK, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    write(&mut volume, 0..blocks, run, 0);
    let log = folder.path().join("log0000000001");
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(&[0; 64], 1 << 20).unwrap();
    // The log is due to be cleaned when it has 128 MiB and twice what is live.
    let turns = 20;
    (1..=turns).for_each(|turn| write(&mut volume, 0..blocks, run, turn));
    for first in [0, blocks / 2, blocks - 1] {
        let read = volume.read_at(first * BLOCK, BLOCK_BYTES).unwrap();
        assert!(read == block(first, turns), "block {first}");
    }
    assert!(log.exists());
    let files = fs::read_dir(folder.path()).unwrap().count();
    // Six that the log has at most, the one that is damaged, the one that is written, the lock and the volume.
    assert!(files <= 10, "{files} files");
}

#[test]
fn a_folder_is_one_servers_and_a_damaged_one_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let addresses = vec![server.address().to_string()];
    let again = || {
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        serve(server, &BlockOptions::in_folder(folder.path()))
    };
    assert!(matches!(again(), Err(BlockServerError::InUse(_))));
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    for number in 0..3 {
        volume.write_at(number * BLOCK, &block(number, 1)).unwrap();
    }
    drop(volume);
    assert!(server.shutdown());
    let log = folder.path().join("log0000000001");
    let whole = fs::read(&log).unwrap();
    // A write that was under way is cut off.
    fs::write(&log, [&whole[..], &whole[24..1000]].concat()).unwrap();
    drop(again().unwrap());
    assert_eq!(fs::read(&log).unwrap(), whole);
    // In the first of three groups: it was there, and is not any more.
    let mut damaged = whole;
    damaged[2000] ^= 1;
    fs::write(&log, damaged).unwrap();
    match again() {
        Err(BlockServerError::Damaged { file, offset, .. }) => {
            assert_eq!((file, offset), (log, 24));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_bytes_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let disk = start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
    let (_servers, mut addresses) = in_memory(1);
    addresses.push(disk.address().to_string());
    let mut random = fastrand::Rng::with_seed(5);
    for address in &addresses {
        let alone = std::slice::from_ref(address);
        let id = create("birds", 1 << 20, alone, &options()).unwrap().id;
        let mut volume = Volume::open("birds", alone, &options()).unwrap();
        volume.write_at(0, &block(0, 1)).unwrap();
        let client = Client::connect(address).unwrap();
        for _ in 0..500 {
            let handler = random.u16(call::DESCRIBE..call::JOIN);
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            // Some of them speak of the volume, in its epoch.
            if random.bool() && bytes.len() >= 28 {
                bytes[..8].copy_from_slice(&1_u64.to_le_bytes());
                bytes[8..16].copy_from_slice(&id.to_le_bytes());
            }
            match client.call(handler, &bytes) {
                Ok(_) | Err(CallError::Handler { .. }) => {}
                Err(error) => panic!("{handler}: {error}"),
            }
        }
        assert!(volume.read_at(0, BLOCK_BYTES).unwrap() == block(0, 1));
    }
}
