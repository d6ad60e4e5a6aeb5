//! What it takes of a core to copy a machine's items to another, without a network: the prices of the lab's example
//! `recovery`.
//!
//! ```sh
//! cargo run --release -p dunlin-txn --example copying -- 200000 1000 9
//! ```
//!
//! Items, bytes of a value, and turns, of which the medians are printed, after one that does not count.

use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_txn::membership::peer::PeerAnswer;
use dunlin_txn::server::{LocalStore, StoreConfig, TableSpec};
use dunlin_txn::{Key, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at: usize, default: usize| -> Result<usize, std::num::ParseIntError> {
        std::env::args()
            .nth(at)
            .map_or(Ok(default), |text| text.parse())
    };
    let (items, bytes, turns) = (number(1, 200_000)?, number(2, 1000)?, number(3, 9)?);
    let config = StoreConfig {
        machine: 0,
        machines: 1,
        replicas: 1,
        tables: vec![TableSpec::new(0, "items", items as u64, bytes)],
        one_sided_writes: false,
    };
    let store = || -> Result<LocalStore, Box<dyn std::error::Error>> {
        let device = ShmDevice::open(ShmConfig::default())?;
        Ok(LocalStore::serve_on(device, Server::unbound(), &config, 1)?)
    };
    let from = store()?;
    let value = Value::from(vec![7; bytes]);
    from.load((0..items as u64).map(|key| (Key::number(0, key), value.clone())))?;
    let mut parts: [Vec<usize>; 4] = Default::default();
    for turn in 0..=turns {
        let to = store()?;
        let (mut took, mut copied) = ([Duration::ZERO; 4], 0);
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let mut message = Vec::new();
            let began = Instant::now();
            let (chunk, next) = from.chunk(at, &|_| ());
            let found = Instant::now();
            let answer = PeerAnswer::Chunk(chunk, next);
            answer.encode(&mut message);
            drop(answer);
            let sent = Instant::now();
            let PeerAnswer::Chunk(chunk, next) = PeerAnswer::decode(&message)? else {
                return Err("no chunk".into());
            };
            let decoded = Instant::now();
            to.adopt(&chunk, &|| ())?;
            let stored = Instant::now();
            took[0] += found - began;
            took[1] += sent - found;
            took[2] += decoded - sent;
            took[3] += stored - decoded;
            copied += chunk.len();
            cursor = next;
        }
        assert_eq!(copied, items);
        if turn > 0 || turns == 0 {
            for (part, took) in parts.iter_mut().zip(took) {
                part.push(took.as_nanos() as usize / items);
            }
        }
    }
    for (what, mut each) in ["found", "encoded", "decoded", "stored"].iter().zip(parts) {
        each.sort_unstable();
        let (least, median, most) = (each[0], each[each.len() / 2], each[each.len() - 1]);
        println!("an item of {bytes} bytes is {what} in {median} ns ({least} to {most})");
    }
    Ok(())
}
