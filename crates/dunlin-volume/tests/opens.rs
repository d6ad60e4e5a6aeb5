//! What an open takes from the copies that it finds, and what it leaves of them where it fails.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{block, eventually, in_folder, in_memory, options, start, BLOCK};
use dunlin::{CallError, Client, HandlerError, Reply, Server};
use dunlin_volume::client::{channel, MOST_FAULTS};
use dunlin_volume::server::BlockServer;
use dunlin_volume::types::Version;
use dunlin_volume::wire::{call, code, decode, encode, Described, Head, Kind, Named, PROTOCOL};
use dunlin_volume::{check, create, remove, Volume, VolumeError, VolumeOptions, BLOCK_BYTES};

/// Three servers in folders, of which some may be down.
struct Servers {
    folders: Vec<tempfile::TempDir>,
    servers: Vec<Option<BlockServer>>,
    addresses: Vec<String>,
}

impl Servers {
    fn start() -> Self {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let started =
            |folder: &tempfile::TempDir| start(in_folder(folder.path()), "dunlin://127.0.0.1:0");
        let servers: Vec<_> = folders.iter().map(started).collect();
        let address = |server: &BlockServer| server.address().to_string();
        let addresses = servers.iter().map(address).collect();
        let servers = servers.into_iter().map(Some).collect();
        Self {
            folders,
            servers,
            addresses,
        }
    }

    fn stop(&mut self, server: usize) {
        self.servers[server].take().unwrap().shutdown();
    }

    fn start_again(&mut self, server: usize) {
        let folder = in_folder(self.folders[server].path());
        self.servers[server] = Some(start(folder, &self.addresses[server]));
    }

    fn open(&self) -> Volume {
        Volume::open("birds", &self.addresses, &options()).unwrap()
    }
}

fn ask(address: &str, handler: u16, payload: &[u8]) -> Reply {
    let client = Client::builder().channel(channel());
    client
        .connect(address)
        .unwrap()
        .call(handler, payload)
        .unwrap()
}

fn describe(address: &str) -> Described {
    decode(&ask(address, call::DESCRIBE, b"birds")).unwrap()
}

/// A write to one copy alone, as of a client that dies before it reaches the others.
fn write_alone(address: &str, volume: u64, version: Version, bytes: &[u8]) {
    let mut request = version.epoch().to_le_bytes().to_vec();
    let head = Head {
        volume,
        version,
        first: 0,
        count: 1,
        kind: Kind::Data,
    };
    head.encode(bytes, &mut request);
    ask(address, call::WRITE, &request);
}

#[test]
fn what_an_owner_has_not_read_does_not_come_back() {
    // The write comes before the next open, which does not reach the copy, or after it.
    for before in [true, false] {
        let mut servers = Servers::start();
        let volume = create("birds", 1 << 20, &servers.addresses, &options())
            .unwrap()
            .id;
        servers.open().write_at(0, &block(0, 1)).unwrap();
        let lost = |servers: &Servers| {
            write_alone(
                &servers.addresses[2],
                volume,
                Version::new(1, 1000),
                &block(0, 2),
            );
        };
        if before {
            lost(&servers);
        }
        servers.stop(2);
        assert!(servers.open().read_at(0, BLOCK_BYTES).unwrap() == block(0, 1));
        servers.stop(0);
        servers.start_again(2);
        if !before {
            lost(&servers);
        }
        let mut opened = servers.open();
        assert!(
            opened.read_at(0, BLOCK_BYTES).unwrap() == block(0, 1),
            "before: {before}"
        );
        servers.start_again(0);
        eventually("the copy that was away is back", || {
            assert!(opened.read_at(0, BLOCK_BYTES).unwrap() == block(0, 1));
            opened.is_in_sync()
        });
        drop(opened);
        let settled: Vec<u64> = servers
            .addresses
            .iter()
            .map(|one| describe(one).settled)
            .collect();
        assert_eq!(settled, [3; 3]);
        let faults = check("birds", &servers.addresses, &options())
            .unwrap()
            .faults;
        assert!(faults.is_empty(), "{faults:?}");
    }
}

#[test]
fn a_copy_that_came_back_counts_like_those_that_were_there() {
    let mut servers = Servers::start();
    create("birds", 1 << 20, &servers.addresses, &options()).unwrap();
    servers.stop(2);
    let mut volume = servers.open();
    volume.write_at(0, &block(0, 1)).unwrap();
    servers.start_again(2);
    eventually("the copy that was away is back", || {
        volume.read_at(0, BLOCK_BYTES).unwrap();
        volume.is_in_sync()
    });
    // Without the first, what is acknowledged is on the other two alone.
    servers.stop(0);
    volume.write_at(0, &block(0, 2)).unwrap();
    drop(volume);
    servers.stop(1);
    servers.start_again(0);
    let mut volume = servers.open();
    assert!(volume.read_at(0, BLOCK_BYTES).unwrap() == block(0, 2));
}

/// It would serve without settling, and what it has acknowledged would count less than what it has not.
#[test]
fn a_client_that_does_not_settle_is_refused() {
    let (_servers, addresses) = in_memory(1);
    let volume = create("birds", 1 << 20, &addresses, &options()).unwrap().id;
    let client = Client::builder().channel(channel());
    let client = client.connect(&addresses[0]).unwrap();
    let refused = |request: Vec<u8>| match client.call(call::PROMISE, &request) {
        Err(CallError::Handler {
            code: code::MALFORMED,
            message,
            ..
        }) => message,
        other => panic!("{other:?}"),
    };
    // Protocol 1 had no word for it.
    refused(encode(&(volume, 1_u64, 7_u64)));
    let other = refused(encode(&(volume, 1_u64, 7_u64, PROTOCOL + 1)));
    assert!(other.contains("protocol 3"), "{other}");
    assert_eq!(describe(&addresses[0]).epoch, 0);
}

/// Protocol 1 had no word for the epoch of settling, and ignored what followed the words that it had.
#[test]
fn no_volume_is_created_at_a_server_of_an_earlier_version() {
    let (_servers, mut addresses) = in_memory(2);
    let made: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let (create_at, describe_at, remove_at) = (made.clone(), made.clone(), made.clone());
    let former = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .channel(channel())
        .handle(call::CREATE, move |request, _| {
            let mut described = request.payload().to_vec();
            assert_eq!(described.pop(), Some(0), "the epoch of settling");
            *create_at.lock().unwrap() = Some(described);
            Ok(())
        })
        .handle(call::DESCRIBE, move |_, reply| {
            match &*describe_at.lock().unwrap() {
                Some(described) => Ok(reply.write(described)?),
                None => Err(HandlerError::new(code::UNKNOWN, "no such volume")),
            }
        })
        .handle(call::REMOVE, move |_, _| {
            remove_at.lock().unwrap().take();
            Ok(())
        })
        .serve()
        .unwrap();
    addresses.push(former.address().to_string());
    match create("birds", 1 << 20, &addresses, &options()) {
        Err(VolumeError::Strange(address)) => assert_eq!(address, addresses[2]),
        other => panic!("{other:?}"),
    }
    assert!(made.lock().unwrap().is_none(), "it is left behind");
    // Nor is it at the others.
    create("birds", 1 << 20, &addresses[..1], &options()).unwrap();
}

#[test]
fn an_open_that_cannot_succeed_takes_no_epoch() {
    let (mut servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    drop(Volume::open("birds", &addresses, &options()).unwrap());
    assert_eq!(describe(&addresses[2]).epoch, 1);
    servers
        .drain(..2)
        .for_each(|server| assert!(server.shutdown()));
    let impatient = VolumeOptions {
        patience: Duration::from_secs(2),
        ..options()
    };
    match Volume::open("birds", &addresses, &impatient) {
        Err(VolumeError::TooFew {
            have: 1, want: 2, ..
        }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(describe(&addresses[2]).epoch, 1);
}

/// Changes a byte of a block in a server's log, as a disk may.
fn damage(folder: &Path, bytes: &[u8]) {
    let log = folder.join("log0000000001");
    let content = fs::read(&log).unwrap();
    let at = content
        .windows(bytes.len())
        .position(|window| window == bytes)
        .unwrap();
    let file = OpenOptions::new().write(true).open(log).unwrap();
    file.write_all_at(&[!bytes[0]], at as u64).unwrap();
}

#[test]
fn a_block_that_one_copy_cannot_give_is_taken_from_another() {
    for (damaged, while_open) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut servers = Servers::start();
        create("birds", 1 << 20, &servers.addresses, &options()).unwrap();
        let mut volume = servers.open();
        servers.stop(2);
        for number in 0..3 {
            volume.write_at(number * BLOCK, &block(number, 1)).unwrap();
        }
        damage(servers.folders[damaged].path(), &block(1, 1));
        if !while_open {
            drop(volume);
            servers.start_again(2);
            volume = servers.open();
        } else {
            servers.start_again(2);
        }
        eventually(
            "the copy that has missed them is brought up to date",
            || {
                volume.read_at(0, BLOCK_BYTES).unwrap();
                volume.is_in_sync()
            },
        );
        for number in 0..3 {
            let read = volume.read_at(number * BLOCK, BLOCK_BYTES).unwrap();
            assert!(read == block(number, 1), "block {number}");
        }
        drop(volume);
        // With what has the bad block away, the third has what it needs.
        servers.stop(damaged);
        let mut volume = servers.open();
        assert!(volume.read_at(BLOCK, BLOCK_BYTES).unwrap() == block(1, 1));
    }
}

#[test]
fn a_damaged_block_is_written_again_from_another_copy() {
    let servers = Servers::start();
    create("birds", 1 << 20, &servers.addresses, &options()).unwrap();
    let mut volume = servers.open();
    let blocks: Vec<u8> = (0..3).flat_map(|number| block(number, 1)).collect();
    volume.write_at(0, &blocks).unwrap();
    for copy in 0..3 {
        damage(servers.folders[copy].path(), &block(2, 1));
        // Reads are of one copy, chosen by the block's number.
        for first in 0..3 {
            let (offset, length) = (first * BLOCK, (3 - first) as usize * BLOCK_BYTES);
            let read = volume.read_at(offset, length).unwrap();
            assert!(
                read == blocks[offset as usize..],
                "copy {copy}, from {first}"
            );
        }
        eventually("the damaged block is whole again", || {
            volume.poll();
            volume.rewritten_blocks() == copy as u64 + 1
        });
    }
    // Each first copy is damaged by now, and no read misses it.
    let read = volume.read_at(0, blocks.len()).unwrap();
    assert!(read == blocks);
    drop(volume);
    let found = check("birds", &servers.addresses, &options()).unwrap();
    assert!(found.faults.is_empty(), "{found:?}");
}

#[test]
fn a_check_counts_more_faults_than_it_lists() {
    let (_servers, addresses) = in_memory(3);
    let blocks = MOST_FAULTS as u64 + 200;
    let volume = create("birds", blocks * BLOCK, &addresses, &options())
        .unwrap()
        .id;
    let mut opened = Volume::open("birds", &addresses, &options()).unwrap();
    for first in (0..blocks).step_by(100) {
        let length = 100 * BLOCK_BYTES;
        opened.write_at(first * BLOCK, &vec![1; length]).unwrap();
    }
    // One copy has something else than the others everywhere.
    let client = Client::builder().channel(channel());
    let client = client.connect(&addresses[0]).unwrap();
    let head = Head {
        volume,
        version: Version::new(1, 100_000),
        first: 0,
        count: blocks as u32,
        kind: Kind::Zeros,
    };
    let mut request = 1_u64.to_le_bytes().to_vec();
    head.encode(&[], &mut request);
    client.call(call::WRITE, &request).unwrap();
    let found = check("birds", &addresses, &options()).unwrap();
    assert_eq!((found.faulty, found.faults.len()), (blocks, MOST_FAULTS));
}

#[test]
fn a_removal_that_was_broken_off_is_brought_to_its_end() {
    let (_servers, addresses) = in_memory(3);
    let volume = create("birds", 1 << 20, &addresses, &options()).unwrap().id;
    for address in &addresses[..2] {
        ask(address, call::REMOVE, &encode(&Named { volume, epoch: 0 }));
    }
    remove("birds", &addresses, &options()).unwrap();
    assert!(matches!(
        remove("birds", &addresses, &options()),
        Err(VolumeError::Unknown(name)) if name == "birds"
    ));
    create("birds", 1 << 20, &addresses, &options()).unwrap();
}

#[test]
fn a_volume_is_removed_from_all_servers_or_from_none() {
    let (mut servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    servers.remove(1).shutdown();
    assert!(matches!(
        remove("birds", &addresses, &options()),
        Err(VolumeError::Server { address, .. }) if address == addresses[1]
    ));
    assert_eq!(
        (describe(&addresses[0]).epoch, describe(&addresses[2]).epoch),
        (0, 0)
    );
}
