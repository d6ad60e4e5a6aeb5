use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{Access, Device};

use super::*;
use crate::log::Entry;
use crate::membership::{Configuration, Member, Role};
use crate::participant::{replay, Participant};
use crate::placement::Placement;
use crate::types::{MachineId, Value};

type ShmStore = TableStore<<ShmDevice as Device>::Region>;

/// A table of one main bucket and its overflow buckets.
fn small() -> ShmStore {
    let spec = TableSpec::new(0, "small", 1, 8);
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let bytes = TableSpec::region_bytes(&spec.layout().unwrap());
    let region = device
        .allocate_region(&domain, bytes, Access::LOCAL_WRITE)
        .unwrap();
    let tables = Arc::new(Tables::create(&[spec], vec![region]).unwrap());
    TableStore::divide(&tables, 1).pop().unwrap()
}

fn put(number: u64, version: u64) -> Update {
    Update {
        key: Key::number(0, number),
        value: Some(Value::from(vec![version as u8])),
        version: Version(version),
    }
}

fn gone(number: u64, version: u64) -> Update {
    Update {
        value: None,
        ..put(number, version)
    }
}

fn version(store: &ShmStore, number: u64) -> Option<u64> {
    let stored = store.read(&Key::number(0, number));
    stored.value.map(|_| stored.version.0)
}

#[test]
fn changes_without_room_for_all_of_them_leave_the_table_as_it_was() {
    let mut store = small();
    let full = (0..1000).find(|number| store.apply(&[put(*number, 1)]).is_err());
    let full = full.unwrap();
    let applied = store.apply(&[put(0, 2), gone(1, 2), put(full, 1)]);
    assert_eq!(applied, Err(LockError::Full));
    assert_eq!([version(&store, 0), version(&store, 1)], [Some(1), Some(1)]);

    // Space for one is not enough for two.
    store.apply(&[gone(1, 2)]).unwrap();
    let both = [put(0, 2), put(full, 1), put(full + 1, 1)];
    assert_eq!(store.apply(&both), Err(LockError::Full));
    let found = [0, full, full + 1].map(|number| version(&store, number));
    assert_eq!(found, [Some(1), None, None]);
    store.apply(&both[..2]).unwrap();
    assert_eq!(
        [version(&store, 0), version(&store, full)],
        [Some(2), Some(1)]
    );

    // Nor is a part stored if one value is too long.
    let mut long = put(2, 2);
    long.value = Some(Value::from(vec![1; 9]));
    assert_eq!(store.apply(&[put(0, 3), long]), Err(LockError::Unknown));
    assert_eq!(version(&store, 0), Some(2));
}

/// A key in the shard with this number, of three.
fn key_of(shard: u16, nth: usize) -> u64 {
    let placement = Placement::round(3, 1).unwrap();
    let is_its = |number: &u64| placement.primary(&Key::number(0, *number)).0 == shard;
    (0..).filter(is_its).nth(nth).unwrap()
}

/// The first machine of three after it has replayed these entries, with this number of copies of each key.
fn replayed(copies: u16, entries: Vec<Entry>) -> Participant<ShmStore> {
    let placement = Placement::round(3, copies).unwrap();
    let mut all = [Participant::new(small(), 100).recovering(true)];
    let serves = Entry::Serve {
        epoch: Epoch::FIRST,
        database: 1,
    };
    let entries = std::iter::once(serves).chain(entries);
    replay(&mut all, (MachineId(0), &placement), entries).unwrap();
    let [participant] = all;
    participant
}

fn id(sequence: u64) -> TransactionId {
    TransactionId {
        coordinator: 4,
        slot: sequence as u16,
        sequence,
    }
}

/// A snapshot of a full table contains the item that replaced one which existed when the log after it began.
#[test]
fn a_log_of_a_full_table_is_replayed() {
    let mut store = small();
    let full = (0..1000).find(|number| store.apply(&[put(*number, 1)]).is_err());
    let full = full.unwrap();
    let filled: Vec<Update> = (0..full).map(|number| put(number, 1)).collect();
    let (before, last) = (full, full - 1);
    let changed = |sequence: u64, update: Update| Entry::Replicate {
        id: id(sequence),
        append: vec![],
        apply: vec![update],
    };
    let mut log = vec![
        Entry::Items(filled),
        changed(1, put(before, 5)),
        changed(2, gone(before, 6)),
        changed(3, put(last, 1)),
    ];
    let is_there = |log: &[Entry]| {
        let participant = replayed(3, log.to_vec());
        [before, last].map(|number| version(participant.store(), number))
    };
    assert_eq!(is_there(&log), [None, Some(1)]);
    // Another deletion makes space for it.
    log.truncate(2);
    log.push(changed(2, gone(last, 2)));
    assert_eq!(is_there(&log), [Some(5), None]);
}

/// A commit contains all changes of its transaction, but a machine has space only for those of its own keys.
#[test]
fn a_machine_that_comes_back_has_no_keys_of_others() {
    let mine = key_of(0, 0);
    let others = (0..1000).map(|nth| put(key_of(1, nth), 1));
    let updates: Vec<Update> = std::iter::once(put(mine, 1)).chain(others).collect();
    let commit = Entry::Commit {
        id: id(1),
        updates: updates.clone(),
    };
    let mut participant = replayed(1, vec![commit]);
    let (items, _) = participant.store().chunk(0, 1 << 20, &|_| true);
    assert_eq!(items, [put(mine, 1)]);
    // The others may need the record.
    let next = Epoch::FIRST.next();
    participant.seal(next, Epoch::FIRST).unwrap();
    let records: Vec<_> = participant.decided().collect();
    assert_eq!(records, [(id(1), &updates[..])]);
}

/// A commit can arrive at a machine when a backup there has already seen the next change.
#[test]
fn a_commit_brings_nothing_back_that_a_later_transaction_deleted() {
    let (mine, other) = (key_of(0, 0), key_of(2, 0));
    let apply = |sequence, update: Update| Entry::Replicate {
        id: id(sequence),
        append: Vec::new(),
        apply: vec![update],
    };
    let commit = Entry::Commit {
        id: id(1),
        updates: vec![put(mine, 1), put(other, 1)],
    };
    let entries = vec![apply(1, put(other, 1)), apply(2, gone(other, 2)), commit];
    let participant = replayed(2, entries);
    let found = [mine, other].map(|number| version(participant.store(), number));
    assert_eq!(found, [Some(1), None]);
}

/// What an epoch's beginning installed while the table had no room for it in the replay, which comes later.
#[test]
fn a_log_of_a_full_table_is_replayed_through_an_epoch() {
    let mut store = small();
    let full = (0..1000).find(|number| store.apply(&[put(*number, 1)]).is_err());
    let full = full.unwrap();
    let filled: Vec<Update> = (0..full).map(|number| put(number, 1)).collect();
    let (before, last) = (full, full - 1);
    let (base, epoch) = (Epoch::FIRST, Epoch::FIRST.next());
    let member = |incarnation: u64| Member {
        incarnation,
        address: String::new(),
        role: Role::Whole,
    };
    let of = Configuration {
        database: 1,
        epoch,
        base,
        serving: false,
        manager: MachineId(0),
        replicas: 3,
        members: (1..4).map(member).collect(),
    };
    let changed = |sequence: u64, update: Update| Entry::Replicate {
        id: id(sequence),
        append: vec![],
        apply: vec![update],
    };
    // The change was replicated before, or comes with the epoch.
    for is_replicated in [true, false] {
        let replicated = is_replicated.then(|| changed(1, put(before, 5)));
        let records = vec![(id(1), vec![put(before, 5)])];
        let of = of.clone();
        let rest = [
            Entry::Seal { epoch, base },
            Entry::Install { of, records },
            Entry::Serve { epoch, database: 1 },
            changed(2, gone(last, 2)),
        ];
        let log = std::iter::once(Entry::Items(filled.clone()));
        let participant = replayed(3, log.chain(replicated).chain(rest).collect());
        let found = [before, last].map(|number| version(participant.store(), number));
        assert_eq!(found, [Some(5), None], "replicated: {is_replicated}");
    }
}
