//! More was committed in an epoch than one message carries, and the next epoch begins all the same.

use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_txn::membership::memory::MemoryMembership;
use dunlin_txn::membership::Role;
use dunlin_txn::server::{Replicated, StoreConfig, StoreServer, TableSpec};
use dunlin_txn::{Database, DatabaseError, Table};

const LEASE: Duration = Duration::from_secs(5);
/// No step takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(60);
/// Of each of two transactions: 18 MB together, and a message has 16 MiB.
const KEYS: u64 = 2250;
const VALUE_BYTES: usize = 4000;

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < BOUND, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn records_of_any_size_are_told_and_installed() {
    let membership = MemoryMembership::default();
    let serve = |machine: u16| {
        let mut with = Replicated::new(membership.clone());
        with.lease = LEASE;
        let config = StoreConfig {
            machine,
            machines: 3,
            replicas: 3,
            tables: vec![TableSpec::new(0, "large", 2 * KEYS, VALUE_BYTES)],
            one_sided_writes: false,
        };
        let bound = Server::bind("dunlin://127.0.0.1:0").unwrap();
        StoreServer::serve_replicated(bound, config, with, std::iter::empty).unwrap()
    };
    let mut servers: Vec<StoreServer> = (0..3).map(serve).collect();
    let addresses = servers.iter().map(|one| one.server().address().to_string());
    let addresses: Vec<String> = addresses.collect();
    // A slot of one client keeps one transaction.
    let databases = [0, 1].map(|_| Database::open(&addresses).unwrap());
    for (half, database) in (0..).zip(&databases) {
        let large: Table<u64, Vec<u8>> = database.table("large").unwrap();
        let written: Result<(), DatabaseError> = database.run(|t| {
            let mut keys = half * KEYS..(half + 1) * KEYS;
            keys.try_for_each(|key| t.put(&large, &key, &vec![key as u8; VALUE_BYTES]))
        });
        written.unwrap();
    }

    drop(servers.pop());
    let database = &databases[0];
    until("the others go on", || {
        let known = database.configuration();
        known.is_some_and(|of| of.members[2].role == Role::Out)
            && servers[0].configuration().is_some()
    });
    let large: Table<u64, Vec<u8>> = database.table("large").unwrap();
    let read: Result<Vec<Option<Vec<u8>>>, DatabaseError> = database.read(|t| {
        let keys = [0, KEYS, 2 * KEYS - 1];
        keys.iter().map(|key| t.get(&large, key)).collect()
    });
    let expected = [0, KEYS, 2 * KEYS - 1].map(|key| Some(vec![key as u8; VALUE_BYTES]));
    assert!(read.unwrap() == expected);
    let changed: Result<(), DatabaseError> =
        database.run(|t| t.put(&large, &0, &vec![1; VALUE_BYTES]));
    changed.unwrap();
}
