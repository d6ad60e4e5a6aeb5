//! Copies that have less room than their primary: a change is on all of them or on none, and who does not take what is
//! committed is left out.

use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_txn::membership::memory::MemoryMembership;
use dunlin_txn::membership::Epoch;
use dunlin_txn::server::{Replicated, StoreConfig, StoreServer, TableSpec};
use dunlin_txn::wire::{Body, Refusal, Request, Response};
use dunlin_txn::{Access, Once, Report, Step, TransactionError};
use dunlin_txn::{
    Database, DatabaseError, Key, MemoryStore, NotInstalled, Outcome, Participant, Placement,
    Store, Table, TransactionId, Update, Value, Version,
};

/// Beats come each fifth of it, from threads that may wait for a processor.
const LEASE: Duration = Duration::from_secs(5);
/// No step takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(60);

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < BOUND, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn key(number: u64) -> Key {
    Key::number(0, number)
}

fn update(number: u64, version: u64) -> Update {
    Update {
        key: key(number),
        value: Some(Value::from(vec![version as u8])),
        version: Version(version),
    }
}

fn transaction(sequence: u64) -> TransactionId {
    TransactionId {
        coordinator: 1,
        slot: 0,
        sequence,
    }
}

/// A participant with room for so many keys, of which it has the first with version 0.
fn participant(room: usize) -> Participant<MemoryStore> {
    let mut store = MemoryStore::new(&Placement::round(1, 1).unwrap(), 1 << 16, room);
    store.load(key(1), Value::from(vec![0])).unwrap();
    Participant::new(store, 100)
}

fn replicate(sequence: u64, apply: Vec<Update>) -> Request {
    let append = Vec::new();
    Request {
        transaction: transaction(sequence),
        step: 3,
        body: Body::Replicate { append, apply },
    }
}

/// A backup without room for all changes of a transaction has none of them, and takes them when room has come.
#[test]
fn a_backup_takes_all_changes_or_none_and_is_asked_again() {
    let mut participant = participant(1);
    let request = replicate(1, vec![update(1, 1), update(2, 1)]);
    let answer = participant.handle(&request, Epoch::FIXED);
    assert_eq!(answer.response, Response::Refused(Refusal::Full));
    let kept = participant.store().read(&key(1));
    assert_eq!(
        (kept.version, kept.value),
        (Version(0), Some(vec![0].into()))
    );

    let (first, room) = (participant.store().contents(), 2);
    let mut larger = MemoryStore::new(&Placement::round(1, 1).unwrap(), 1 << 16, room);
    for (key, value) in first {
        larger.load(key, value).unwrap();
    }
    *participant.store_mut() = larger;
    let answer = participant.handle(&request, Epoch::FIXED);
    assert_eq!(answer.response, Response::Done);
    for number in [1, 2] {
        assert_eq!(participant.store().read(&key(number)).version, Version(1));
    }
}

/// What was decided and has no room is not taken for installed when the epoch's manager asks again.
#[test]
fn an_install_without_room_fails_again() {
    let mut participant = participant(1).recovering(true);
    let epoch = Epoch::FIRST.next();
    participant.serve(Epoch::FIRST).unwrap();
    participant.seal(epoch, Epoch::FIRST).unwrap();
    // As the primary gave them in the epoch that is over.
    let next = |number: u64| {
        let version = participant.store().read(&key(number)).version.next();
        update(number, version.unwrap().0)
    };
    let records = [
        (transaction(1), vec![next(2)]),
        (transaction(2), vec![next(3)]),
    ];
    for _ in 0..3 {
        let installed = participant.install(epoch, &records, |_| true);
        assert!(
            matches!(installed, Err(NotInstalled::NoRoom(_))),
            "{installed:?}"
        );
    }
    assert!(participant.serve(epoch).is_err());
}

fn config(machine: u16, machines: u16, rows: u64) -> StoreConfig {
    StoreConfig {
        machine,
        machines,
        replicas: machines,
        tables: vec![TableSpec::new(0, "accounts", rows, 8)],
        one_sided_writes: false,
    }
}

/// A value that no machine has a place for is refused before it is logged, whatever room was asked for.
#[test]
fn a_value_that_is_too_long_is_not_committed() {
    let bound = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = StoreServer::serve(bound, config(0, 1, 100)).unwrap();
    let database = Database::open([server.server().address().to_string()]).unwrap();
    let mut driver = database.driver(1).unwrap();
    let writes = vec![(key(1), 0)];
    let access = Access {
        reads: Vec::new(),
        writes,
    };
    let long = Value::from(vec![1; 9]);
    let logic = Once::new(access, move |_| {
        Step::Commit(vec![(key(1), Some(long.clone()))])
    });
    driver.begin(0, Box::new(logic)).unwrap();
    let mut ended = None;
    until("the transaction ends", || {
        driver.poll(|_, _, report| ended = Some(report));
        driver.rest();
        ended.is_some()
    });
    let is_named = matches!(
        &ended,
        Some(Report::Ended(Err(TransactionError::NotWritable { key: of }))) if *of == key(1)
    );
    assert!(is_named, "{ended:?}");
}

/// A machine whose tables are smaller than those of the others, which are not full.
#[test]
fn a_machine_without_room_for_what_is_committed_is_left_out() {
    let membership = MemoryMembership::default();
    let serve = |number: u16, rows: u64| {
        let mut with = Replicated::new(membership.clone());
        with.lease = LEASE;
        let bound = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let config = config(number, 3, rows);
        StoreServer::serve_replicated(bound, config, with, std::iter::empty).unwrap()
    };
    let servers = [serve(0, 10_000), serve(1, 10_000), serve(2, 1)];
    let addresses = servers.iter().map(|one| one.server().address().to_string());
    let database = Database::open(addresses).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let placement = Placement::round(3, 3).unwrap();
    let theirs = |number: &u64| placement.primary(&key(*number)).0 < 2;
    let put = |number: u64| database.run(|t| t.put(&accounts, &number, &7));
    let failed = (0..10_000)
        .filter(theirs)
        .find_map(|number| put(number).err().map(|error| (number, error)));
    let words = failed.as_ref().map(|(_, error)| error.to_string());
    let Some((number, DatabaseError::UnknownOutcome { transaction, .. })) = failed else {
        panic!("{failed:?}");
    };
    assert!(words.is_some_and(|words| words.contains("table is full")));

    // One copy has it, so it is committed, and who cannot have it is a member no more.
    assert_eq!(database.outcome(transaction, BOUND), Outcome::Committed);
    until("the machine without room is left out", || {
        servers[2].is_fenced()
    });
    let read: Result<Option<i64>, DatabaseError> = database.read(|t| t.get(&accounts, &number));
    assert_eq!(read.unwrap(), Some(7));
    let more: Result<(), DatabaseError> = put(number + 1);
    more.unwrap();
    assert!(!servers[0].is_fenced() && !servers[1].is_fenced());
}
