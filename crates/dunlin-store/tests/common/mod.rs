//! The ordered store that tests look at.

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_store::kv::{KvLayout, OrderedKvStore};
use dunlin_verbs::{Access, Device};

pub(crate) type ShmStore = OrderedKvStore<<ShmDevice as Device>::Region>;

pub(crate) fn store(keys: u64, item_memory: usize) -> ShmStore {
    let layout = KvLayout::new(keys, item_memory, 1 << 16, 7).unwrap();
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let region = device
        .allocate_region(&domain, layout.bytes(), Access::LOCAL_WRITE)
        .unwrap();
    OrderedKvStore::create(region, layout).unwrap()
}

/// At most `most` entries from `first` on.
pub(crate) fn scan(store: &ShmStore, first: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    if most > 0 {
        store.scan(first, most, |key| {
            let mut value = Vec::new();
            let Ok(found) = store.store().get(key, &mut value);
            if found {
                entries.push((key.bytes().to_vec(), value));
            }
            entries.len() < most
        });
    }
    entries
}
