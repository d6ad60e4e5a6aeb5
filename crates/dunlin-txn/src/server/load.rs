//! Values that the machine itself loads into its tables.

use super::disk::Disk;
use super::member::{lock_all, Participants};
use super::StoreServerError;
use crate::log::Entry;
use crate::placement::Placement;
use crate::recovery::CHUNK_BYTES;
use crate::types::{Key, MachineId, Update, Value, Version};

/// Loads, chunk by chunk, the values of which the machine has a copy, and logs them if it has a log by then. Returns
/// their number.
pub(super) fn load(
    participants: &Participants,
    (machine, placement): (MachineId, &Placement),
    items: impl Iterator<Item = (Key, Value)>,
    disk: Option<&Disk>,
) -> Result<u64, StoreServerError> {
    let mut loaded = 0;
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for (key, value) in items {
        let primary = placement.primary(&key) == machine;
        if !primary && !placement.backups(&key).contains(&machine) {
            continue;
        }
        bytes += value.len();
        chunk.push((key, value));
        loaded += 1;
        if bytes >= CHUNK_BYTES {
            put(participants, std::mem::take(&mut chunk), disk)?;
            bytes = 0;
        }
    }
    put(participants, chunk, disk)?;
    if let Some(disk) = disk {
        disk.wait()?;
    }
    Ok(loaded)
}

/// Under all locks, so that no snapshot begins between table and log.
fn put(
    participants: &Participants,
    chunk: Vec<(Key, Value)>,
    disk: Option<&Disk>,
) -> Result<(), StoreServerError> {
    let mut all = lock_all(participants);
    let Some(one) = all.first_mut() else {
        return Ok(());
    };
    let mut loaded = Vec::new();
    let mut put = Ok(());
    for (key, value) in chunk {
        put = one.store_mut().load(&key, &value).map_err(|source| {
            let name = format!("number {}", key.table());
            StoreServerError::Table { name, source }
        });
        if put.is_err() {
            break;
        }
        if disk.is_some() {
            loaded.push(Update {
                key,
                value: Some(value),
                version: Version(0),
            });
        }
    }
    // Includes those loaded before one that was refused.
    if let Some(disk) = disk.filter(|_| !loaded.is_empty()) {
        disk.append(&Entry::Adopt(loaded));
    }
    put
}
