//! Servers of this process, and what is written to a volume.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::Path;
use std::time::{Duration, Instant};

use dunlin::Server;
use dunlin_volume::client::channel;
use dunlin_volume::server::{serve, BlockOptions, BlockServer, Durability, Place};
use dunlin_volume::{VolumeOptions, BLOCK_BYTES};

pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// Waits for a condition, with a generous bound.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "never came: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Patient: the machine may be busy.
pub fn options() -> VolumeOptions {
    VolumeOptions {
        patience: Duration::from_secs(60),
        ..VolumeOptions::default()
    }
}

pub fn start(place: Place, address: &str) -> BlockServer {
    let server = Server::bind(address).unwrap().channel(channel());
    serve(
        server,
        &BlockOptions {
            place,
            capacity: 1 << 30,
        },
    )
    .unwrap()
}

pub fn in_folder(folder: &Path) -> Place {
    Place::Log(folder.to_owned(), Durability::Process)
}

pub fn in_memory(servers: usize) -> (Vec<BlockServer>, Vec<String>) {
    let servers: Vec<_> = (0..servers)
        .map(|_| start(Place::Memory, "dunlin://127.0.0.1:0"))
        .collect();
    let addresses = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    (servers, addresses)
}

/// A block that says what it is all over, so that torn and old ones are seen.
pub fn block(number: u64, turn: u64) -> Vec<u8> {
    (number << 32 | turn).to_le_bytes().repeat(BLOCK_BYTES / 8)
}
