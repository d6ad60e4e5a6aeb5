//! A table in a region that a server has named: its clients READ headers and items by address and WRITE what they have
//! locked, with the rights that were granted.

use dunlin_rpc::{CallError, Client, Region, Server};
use dunlin_store::{Header, Layout, Table};

#[test]
fn clients_read_and_write_items_of_a_table_in_a_named_region() {
    let layout = Layout::new(16, 4, 8, 7).unwrap();
    let open = Region::new("open", layout.bytes()).writable();
    let closed = Region::new("closed", layout.bytes());
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    assert!(open.registered().is_none());
    let server = server.region(&open).region(&closed).serve().unwrap();
    let table = Table::create(open.registered().unwrap(), layout).unwrap();
    let other = Table::create(closed.registered().unwrap(), layout).unwrap();
    table.insert(1, &[1; 8]).unwrap();
    other.insert(1, &[9; 8]).unwrap();

    let client = Client::connect(&server.address().to_string()).unwrap();
    let remote = client.attach("open").unwrap();
    let word = |offset: usize| {
        let bytes = remote.read(offset as u64, 8).unwrap();
        Header(u64::from_ne_bytes(bytes[..].try_into().unwrap()))
    };
    let (place, version) = table.try_lock(1, 3).unwrap();
    let header = word(place.header);
    assert!(header.is_locked() && header.owner() == 3 && header.version() == version);
    assert_eq!(&*remote.read(place.value as u64, 8).unwrap(), [1; 8]);
    remote.write(place.value as u64, &[2; 8]).unwrap();
    let unlocked = Header::new(version + 1, true).0.to_ne_bytes();
    remote.write(place.header as u64, &unlocked).unwrap();
    let mut value = [0; 8];
    assert_eq!(table.get(1, &mut value), Ok(version + 1));
    assert_eq!(value, [2; 8]);

    let remote = client.attach("closed").unwrap();
    let (place, _) = other.address_of(1).unwrap();
    assert_eq!(&*remote.read(place.value as u64, 8).unwrap(), [9; 8]);
    let refused = remote.write(place.value as u64, &[0; 8]);
    assert!(
        matches!(refused, Err(CallError::RegionRight { .. })),
        "{refused:?}"
    );
    assert!(server.shutdown());
}
