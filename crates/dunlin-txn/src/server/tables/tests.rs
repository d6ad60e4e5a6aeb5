use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{Access, Device};

use super::*;
use crate::types::Value;

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

    // Room for one is no room for two.
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

    // Nor is a value that is too long taken in part.
    let mut long = put(2, 2);
    long.value = Some(Value::from(vec![1; 9]));
    assert_eq!(store.apply(&[put(0, 3), long]), Err(LockError::Unknown));
    assert_eq!(version(&store, 0), Some(2));
}
