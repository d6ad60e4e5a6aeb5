//! The face of the database, in one process and over the RPC: what is written is read, what is aborted is not, who is
//! in the way is named.

use std::time::Duration;

use dunlin_rpc::{RunningServer, Server};
use dunlin_txn::server::{StoreConfig, StoreServer, StoreServerError, TableSpec};
use dunlin_txn::{
    Database, DatabaseError, Key, OpenError, Outcome, Placement, Table, TransactionError,
};

fn config(machine: u16, machines: u16) -> StoreConfig {
    StoreConfig {
        machine,
        machines,
        replicas: machines,
        tables: vec![
            TableSpec::new(0, "accounts", 100, 8),
            TableSpec::new(1, "names", 100, 16),
        ],
        one_sided_writes: true,
    }
}

fn serve(config: StoreConfig) -> StoreServer {
    StoreServer::serve(Server::bind("dunlin://127.0.0.1:0").unwrap(), config).unwrap()
}

/// Two machines of this process, and their addresses.
fn two() -> (Vec<RunningServer>, Vec<String>) {
    let servers = (0..2).map(|n| serve(config(n, 2)).into_server());
    let servers: Vec<RunningServer> = servers.collect();
    let addresses = servers.iter().map(|s| s.address().to_string()).collect();
    (servers, addresses)
}

/// All that a database promises, whatever is below it.
fn behaves(database: &Database) {
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let names: Table<u64, String> = database.table("names").unwrap();

    // What is written is read by itself at once, and by others when it has committed.
    let mut t = database.begin().unwrap();
    t.put(&accounts, &1, &10).unwrap();
    t.put(&names, &1, &"ada".to_owned()).unwrap();
    assert_eq!(t.get(&accounts, &1).unwrap(), Some(10));
    let read = |key: u64| -> Option<i64> {
        let found: Result<Option<i64>, DatabaseError> = database.read(|t| t.get(&accounts, &key));
        found.unwrap()
    };
    assert_eq!(read(1), None);
    t.commit().unwrap();
    assert_eq!(read(1), Some(10));
    let name: Result<Option<String>, DatabaseError> = database.read(|t| t.get(&names, &1));
    assert_eq!(name.unwrap().as_deref(), Some("ada"));

    // Dropped, aborted, or ended by an error of the function's own, it has no effect and leaves no lock.
    let mut t = database.begin().unwrap();
    t.put(&accounts, &1, &99).unwrap();
    t.get_for_update(&accounts, &1).unwrap();
    t.abort();
    let failed: Result<(), Box<dyn std::error::Error>> = database.run(|t| {
        t.put(&accounts, &1, &98)?;
        Err("not today".into())
    });
    assert_eq!(failed.unwrap_err().to_string(), "not today");
    assert_eq!(read(1), Some(10));

    // Deleted and inserted again.
    let change = |value: Option<i64>| -> Result<(), DatabaseError> {
        database.run(|t| match value {
            Some(value) => t.put(&accounts, &1, &value),
            None => t.delete(&accounts, &1),
        })
    };
    change(None).unwrap();
    assert_eq!(read(1), None);
    change(Some(11)).unwrap();
    assert_eq!(read(1), Some(11));

    // What changed after it was read aborts the reader, which is told the key.
    let mut t = database.begin().unwrap();
    assert_eq!(t.get(&accounts, &1).unwrap(), Some(11));
    assert_eq!(t.get(&accounts, &2).unwrap(), None);
    change(Some(12)).unwrap();
    t.put(&accounts, &2, &1).unwrap();
    match t.commit() {
        Err(DatabaseError::Aborted {
            by: TransactionError::Changed { key },
            ..
        }) => {
            assert_eq!(key.to_string(), "0:1");
        }
        other => panic!("{other:?}"),
    }
    // So does an insert of what was absent.
    let mut t = database.begin().unwrap();
    assert_eq!(t.get(&accounts, &3).unwrap(), None);
    let insert: Result<(), DatabaseError> = database.run(|t| t.put(&accounts, &3, &1));
    insert.unwrap();
    t.put(&accounts, &2, &1).unwrap();
    let ended = t.commit();
    assert!(
        matches!(ended, Err(DatabaseError::Aborted { .. })),
        "{ended:?}"
    );

    // Who holds a lock is named, and waited for no longer than the deadline.
    let mut holder = database.begin().unwrap();
    holder.get_for_update(&accounts, &1).unwrap();
    let short = database.within(Duration::from_secs(2));
    let refused: Result<(), DatabaseError> = short.run(|t| t.put(&accounts, &1, &0));
    match refused {
        Err(DatabaseError::Aborted {
            by: TransactionError::Locked { owner, .. },
            attempts,
            ..
        }) => {
            assert_eq!(owner, holder.id());
            assert!(attempts > 1);
        }
        other => panic!("{other:?}"),
    }
    drop(holder);
    assert_eq!(read(1), Some(12));

    // Threads that all want the same key lose none of their changes.
    change(Some(0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let added: Result<(), DatabaseError> = database.run(|t| {
                        let before = t.get(&accounts, &1)?.unwrap_or(0);
                        t.put(&accounts, &1, &(before + 1))
                    });
                    added.unwrap();
                }
            });
        }
    });
    assert_eq!(read(1), Some(200));
    let mut t = database.begin().unwrap();
    let wrong: Table<u64, u16> = database.table("accounts").unwrap();
    let found = t.get(&wrong, &1);
    assert!(
        matches!(found, Err(DatabaseError::Unreadable { .. })),
        "{found:?}"
    );
    assert_eq!(database.outcome(t.id(), Duration::ZERO), Outcome::Unknown);
}

#[test]
fn in_one_process() {
    behaves(&Database::in_process());
}

#[test]
fn over_the_rpc_with_each_protocol() {
    for protocol in ["fasst", "flocktx", "scaletx", "scaletx-o", "auto"] {
        let (_servers, addresses) = two();
        let database = Database::builder()
            .protocol(protocol)
            .open(&addresses)
            .unwrap();
        assert_eq!(database.protocol().name, protocol);
        behaves(&database);
    }
}

#[test]
fn limits_and_mistakes_are_typed_errors() {
    let (_servers, addresses) = two();
    let open = |addresses: &[String]| Database::open(addresses).map(drop);
    assert!(matches!(open(&[]), Err(OpenError::NoAddress)));
    assert!(matches!(
        open(&addresses[..1]),
        Err(OpenError::Membership { .. })
    ));
    let twice = [addresses[0].clone(), addresses[0].clone()];
    assert!(matches!(open(&twice), Err(OpenError::Membership { .. })));
    let nobody = ["dunlin://127.0.0.1:1".to_owned()];
    assert!(matches!(open(&nobody), Err(OpenError::Connect { .. })));
    let protocol = Database::builder().protocol("two-phase").open(&addresses);
    assert!(matches!(protocol, Err(OpenError::NoProtocol(_))));
    let preset = Database::builder()
        .protocol("flocktx")
        .preset(dunlin_rpc::Preset::Fasst);
    assert!(matches!(
        preset.open(&addresses),
        Err(OpenError::OneSided { .. })
    ));

    let database = Database::open(addresses.iter().rev()).unwrap();
    let absent = database.table::<u64, i64>("account");
    assert!(matches!(&absent, Err(DatabaseError::NoTable { known, .. }) if known.len() == 2));
    let names: Table<u64, String> = database.table("names").unwrap();
    let long: Result<(), DatabaseError> = database.run(|t| t.put(&names, &1, &"x".repeat(17)));
    assert!(matches!(
        long,
        Err(DatabaseError::ValueTooLong {
            bytes: 17,
            limit: 16,
            ..
        })
    ));
    // The tables of a store take keys of eight bytes so far.
    let texts: Table<String, String> = database.table("names").unwrap();
    let key: Result<(), DatabaseError> =
        database.run(|t| t.put(&texts, &"a key of text".to_owned(), &String::new()));
    assert!(matches!(key, Err(DatabaseError::Refused(_))), "{key:?}");

    let server = |config| StoreServer::serve(Server::bind("dunlin://127.0.0.1:0").unwrap(), config);
    let machine = server(config(2, 2)).map(drop);
    assert!(matches!(machine, Err(StoreServerError::Machine { .. })));
    let mut same = config(0, 1);
    same.tables[1].id = 0;
    assert!(matches!(
        server(same).map(drop),
        Err(StoreServerError::Twice { .. })
    ));
}

/// The place of an item that is gone becomes another key's, of a shard that its machine has a copy of, under the
/// version that the one had: who has read that one has read the past.
#[test]
fn a_place_that_is_another_keys_by_now_is_not_what_was_read() {
    let servers = [0, 1, 2].map(|number| {
        let mut one = config(number, 3);
        one.replicas = 2;
        one.tables = vec![TableSpec::new(0, "accounts", 1, 8)];
        serve(one).into_server()
    });
    let addresses = servers.iter().map(|server| server.address().to_string());
    let database = Database::builder().protocol("flocktx");
    let database = database.open(addresses).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let placement = Placement::round(3, 2).unwrap();
    let of = |machine: u16| {
        let mut keys = 0u64..;
        let is_there = |key: &u64| placement.primary(&Key::number(0, *key)).0 == machine;
        keys.find(is_there).unwrap()
    };
    // The third is not on machine 0, the second as a copy.
    let (first, second, third) = (of(0), of(2), of(1));
    let put = |key: u64, value: i64| -> Result<(), DatabaseError> {
        database.run(|t| t.put(&accounts, &key, &value))
    };
    put(first, 1).unwrap();
    let mut t = database.begin().unwrap();
    assert_eq!(t.get(&accounts, &first).unwrap(), Some(1));
    let moved: Result<(), DatabaseError> = database.run(|t| {
        t.delete(&accounts, &first)?;
        t.put(&accounts, &third, &1)
    });
    moved.unwrap();
    put(second, 1).unwrap();
    assert_eq!(t.get(&accounts, &third).unwrap(), Some(1));
    let ended = t.commit();
    let is_aborted = matches!(ended, Err(DatabaseError::Aborted { .. }));
    assert!(is_aborted, "one was in two places at once: {ended:?}");
}

/// A table that is full says so, and what was there stays.
#[test]
fn a_full_table_refuses() {
    let mut small = config(0, 1);
    small.tables = vec![TableSpec::new(0, "accounts", 1, 8)];
    let server = serve(small).into_server();
    let database = Database::open([server.address().to_string()]).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let put = |key: u64| database.run(|t| t.put(&accounts, &key, &1)) as Result<(), DatabaseError>;
    let full = (0..10_000).find_map(|key| put(key).err());
    let full = full.expect("a table of one row has no room for ten thousand");
    assert!(full.to_string().contains("table is full"), "{full}");
    let first: Result<Option<i64>, DatabaseError> = database.read(|t| t.get(&accounts, &0));
    assert_eq!(first.unwrap(), Some(1));
}

/// More changes than one request carries are refused before anything is logged, and leave no lock.
#[test]
fn more_changes_than_a_request_carries_are_refused() {
    let mut large = config(0, 1);
    large.tables = vec![TableSpec::new(0, "accounts", 10_000, 8)];
    let server = serve(large).into_server();
    let database = Database::open([server.address().to_string()]).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let change = |keys: u64| -> Result<(), DatabaseError> {
        let mut t = database.begin()?;
        // The commit asks for the rest: each round is within the limit.
        t.get_for_update(&accounts, &0)?;
        for key in 0..keys {
            t.put(&accounts, &key, &1)?;
        }
        t.commit()
    };
    let most = dunlin_txn::wire::MAX_ITEMS as u64;
    let refused = change(most + 1);
    let is_named = matches!(
        &refused,
        Err(DatabaseError::Refused(TransactionError::TooLarge { .. }))
    );
    assert!(is_named, "{refused:?}");
    change(most).unwrap();
}

/// What was read in several rounds is more than one request carries, and is validated all the same.
#[test]
fn more_reads_than_a_request_carries_are_validated() {
    let mut large = config(0, 1);
    large.tables = vec![TableSpec::new(0, "accounts", 10_000, 8)];
    let server = serve(large).into_server();
    let database = Database::builder().protocol("fasst");
    let database = database
        .open([server.address().to_string()])
        .expect("a database");
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let most = dunlin_txn::wire::MAX_ITEMS as u64;
    let rounds = [1..most, most..2 * most - 1, 2 * most - 1..2 * most + 1];
    for keys in rounds.clone() {
        let put: Result<(), DatabaseError> =
            database.run(|t| keys.clone().try_for_each(|key| t.put(&accounts, &key, &1)));
        put.unwrap();
    }
    let sum = |meanwhile: &dyn Fn()| -> Result<i64, DatabaseError> {
        let mut t = database.begin()?;
        let mut sum = 0;
        for keys in rounds.clone() {
            let keys: Vec<u64> = keys.collect();
            sum += t
                .get_many(&accounts, &keys)?
                .into_iter()
                .flatten()
                .sum::<i64>();
        }
        t.put(&accounts, &0, &sum)?;
        meanwhile();
        t.commit().map(|()| sum)
    };
    assert_eq!(sum(&|| ()).unwrap(), 2 * most as i64);
    // One of the last that are looked at has changed.
    let changed = sum(&|| {
        let put: Result<(), DatabaseError> = database.run(|t| t.put(&accounts, &(2 * most), &2));
        put.unwrap();
    });
    let is_named = matches!(
        &changed,
        Err(DatabaseError::Aborted {
            by: TransactionError::Changed { .. },
            ..
        })
    );
    assert!(is_named, "{changed:?}");
}
