//! The entries of a log: each records one action of a machine, or a part of its state.

use crate::membership::{Configuration, Epoch, Record};
use crate::types::{Key, TransactionId, Update};
use crate::wire::codec::{
    put_key, put_list, put_transaction, put_update, transaction_id, update, UPDATE_LEAST,
};
use crate::wire::{Reader, WireError};

/// Minimum length of a transaction's number.
const ID_LEAST: usize = 8 + 2 + 8;
/// Lists are bounded only by the bytes that they are decoded from.
const MOST: usize = u32::MAX as usize;

/// An entry of the log. The last variants are those of which a snapshot consists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Another life of the machine continues with what the log contains.
    Life {
        /// The incarnation.
        incarnation: u64,
        /// Whether the machine started with the database's initial contents; otherwise it started empty, and copied.
        loaded: bool,
        /// The number of the database; 0 if it was not known.
        database: u64,
    },
    /// A transaction's changes were logged, and some applied as a backup.
    Replicate {
        /// The transaction.
        id: TransactionId,
        /// Changes that were logged.
        append: Vec<Update>,
        /// Changes that were applied.
        apply: Vec<Update>,
    },
    /// A transaction's changes were installed as the primary.
    Commit {
        /// The transaction.
        id: TransactionId,
        /// Its changes here.
        updates: Vec<Update>,
    },
    /// An epoch began that follows another.
    Seal {
        /// The new epoch.
        epoch: Epoch,
        /// The last epoch that served.
        base: Epoch,
    },
    /// The decided transactions were executed.
    Install {
        /// The new epoch, with its members.
        of: Configuration,
        /// All decided transactions.
        records: Vec<Record>,
    },
    /// An epoch served.
    Serve {
        /// The epoch.
        epoch: Epoch,
        /// Its database.
        database: u64,
    },
    /// Items were copied from another machine.
    Adopt(Vec<Update>),
    /// The state of a participant.
    Standing {
        /// The index of the participant on its machine.
        share: u16,
        /// Its epoch.
        epoch: Epoch,
        /// The last epoch known to have served.
        served: Epoch,
        /// The last epoch whose decided transactions it has executed.
        installed: Epoch,
        /// It started without data, and no epoch has served since.
        empty: bool,
        /// The transactions decided before its epoch.
        committed: Vec<TransactionId>,
        /// The transactions decided in earlier epochs.
        outcomes: Vec<(Epoch, Vec<TransactionId>)>,
    },
    /// The state that a participant keeps for a coordinator's slot.
    Slot {
        /// The slot's last transaction.
        id: TransactionId,
        /// Its changes that were logged.
        record: Vec<Update>,
        /// The keys of its changes that were applied as a backup.
        applied: Vec<Key>,
        /// Whether all of it is installed here.
        installed: bool,
    },
    /// Items with their versions.
    Items(Vec<Update>),
    /// The last entry of a snapshot.
    End,
}

impl Entry {
    /// Appends the encoded entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Entry::Life {
                incarnation,
                loaded,
                database,
            } => {
                out.push(0);
                out.extend_from_slice(&incarnation.to_le_bytes());
                out.push(u8::from(*loaded));
                out.extend_from_slice(&database.to_le_bytes());
            }
            Entry::Replicate { id, append, apply } => {
                out.push(1);
                put_transaction(out, *id);
                put_list(out, append, put_update);
                put_list(out, apply, put_update);
            }
            Entry::Commit { id, updates } => {
                out.push(2);
                put_transaction(out, *id);
                put_list(out, updates, put_update);
            }
            Entry::Seal { epoch, base } => {
                out.push(3);
                put_epoch(out, *epoch);
                put_epoch(out, *base);
            }
            Entry::Install { of, records } => {
                out.push(4);
                let of = of.encode();
                // A configuration of thousands of machines is shorter than 1 MiB.
                out.extend((of.len() as u32).to_le_bytes());
                out.extend(of);
                put_list(out, records, |out, (id, updates)| {
                    put_transaction(out, *id);
                    put_list(out, updates, put_update);
                });
            }
            Entry::Serve { epoch, database } => {
                out.push(5);
                put_epoch(out, *epoch);
                out.extend_from_slice(&database.to_le_bytes());
            }
            Entry::Adopt(items) => {
                out.push(6);
                put_list(out, items, put_update);
            }
            Entry::Standing {
                share,
                epoch,
                served,
                installed,
                empty,
                committed,
                outcomes,
            } => {
                out.push(7);
                out.extend_from_slice(&share.to_le_bytes());
                for epoch in [epoch, served, installed] {
                    put_epoch(out, *epoch);
                }
                out.push(u8::from(*empty));
                put_ids(out, committed);
                put_list(out, outcomes, |out, (epoch, committed)| {
                    put_epoch(out, *epoch);
                    put_ids(out, committed);
                });
            }
            Entry::Slot {
                id,
                record,
                applied,
                installed,
            } => {
                out.push(8);
                put_transaction(out, *id);
                put_list(out, record, put_update);
                put_list(out, applied, put_key);
                out.push(u8::from(*installed));
            }
            Entry::Items(items) => {
                out.push(9);
                put_list(out, items, put_update);
            }
            Entry::End => out.push(10),
        }
    }

    /// Decodes all entries of a group.
    ///
    /// # Errors
    /// When the bytes are not valid entries.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Entry>, WireError> {
        let mut from = Reader::new(bytes);
        let mut entries = Vec::new();
        while !from.is_empty() {
            entries.push(entry(&mut from)?);
        }
        Ok(entries)
    }
}

fn entry(from: &mut Reader<'_>) -> Result<Entry, WireError> {
    Ok(match from.u8()? {
        0 => Entry::Life {
            incarnation: from.u64()?,
            loaded: from.flag()?,
            database: from.u64()?,
        },
        1 => Entry::Replicate {
            id: transaction_id(from)?,
            append: updates(from)?,
            apply: updates(from)?,
        },
        2 => Entry::Commit {
            id: transaction_id(from)?,
            updates: updates(from)?,
        },
        3 => Entry::Seal {
            epoch: epoch(from)?,
            base: epoch(from)?,
        },
        4 => {
            let length = from.u32()?;
            let of = Configuration::decode(from.bytes(length as usize)?)?;
            let records = from.list_of(MOST, ID_LEAST + 4, |from| {
                Ok((transaction_id(from)?, updates(from)?))
            })?;
            Entry::Install { of, records }
        }
        5 => Entry::Serve {
            epoch: epoch(from)?,
            database: from.u64()?,
        },
        6 => Entry::Adopt(updates(from)?),
        7 => Entry::Standing {
            share: from.u16()?,
            epoch: epoch(from)?,
            served: epoch(from)?,
            installed: epoch(from)?,
            empty: from.flag()?,
            committed: ids(from)?,
            outcomes: from.list_of(MOST, 8 + 4, |from| Ok((epoch(from)?, ids(from)?)))?,
        },
        8 => Entry::Slot {
            id: transaction_id(from)?,
            record: updates(from)?,
            applied: from.list_of(MOST, 4, Reader::key)?,
            installed: from.flag()?,
        },
        9 => Entry::Items(updates(from)?),
        10 => Entry::End,
        other => return Err(WireError::Kind(other)),
    })
}

fn put_epoch(out: &mut Vec<u8>, epoch: Epoch) {
    out.extend_from_slice(&epoch.0.to_le_bytes());
}

fn put_ids(out: &mut Vec<u8>, ids: &[TransactionId]) {
    put_list(out, ids, |out, id| put_transaction(out, *id));
}

fn epoch(from: &mut Reader<'_>) -> Result<Epoch, WireError> {
    from.u64().map(Epoch)
}

fn updates(from: &mut Reader<'_>) -> Result<Vec<Update>, WireError> {
    from.list_of(MOST, UPDATE_LEAST, update)
}

fn ids(from: &mut Reader<'_>) -> Result<Vec<TransactionId>, WireError> {
    from.list_of(MOST, ID_LEAST, transaction_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{MachineId, Value, Version};

    fn one_of_each() -> Vec<Entry> {
        let id = TransactionId {
            coordinator: 9,
            slot: 2,
            sequence: 7,
        };
        let update = |value: Option<&[u8]>| Update {
            key: Key::number(3, 5),
            value: value.map(Value::from),
            version: Version(8),
        };
        let (put, gone) = (update(Some(b"value")), update(None));
        let of = Configuration {
            database: 1,
            epoch: Epoch(4),
            base: Epoch(3),
            serving: false,
            manager: MachineId(0),
            replicas: 1,
            members: Vec::new(),
        };
        vec![
            Entry::Life {
                incarnation: 1,
                loaded: true,
                database: 3,
            },
            Entry::Replicate {
                id,
                append: vec![put.clone()],
                apply: vec![put.clone(), gone.clone()],
            },
            Entry::Commit {
                id,
                updates: vec![gone.clone()],
            },
            Entry::Seal {
                epoch: Epoch(4),
                base: Epoch(3),
            },
            Entry::Install {
                of,
                records: vec![(id, vec![put.clone()])],
            },
            Entry::Serve {
                epoch: Epoch(4),
                database: 1,
            },
            Entry::Adopt(vec![put.clone()]),
            Entry::Standing {
                share: 3,
                epoch: Epoch(4),
                served: Epoch(3),
                installed: Epoch(2),
                empty: true,
                committed: vec![id],
                outcomes: vec![(Epoch(1), Vec::new()), (Epoch(2), vec![id, id])],
            },
            Entry::Slot {
                id,
                record: vec![put.clone()],
                applied: vec![Key::number(1, 1)],
                installed: true,
            },
            Entry::Items(vec![put, gone]),
            Entry::End,
        ]
    }

    #[test]
    fn entries_round_trip_and_cut_ones_are_refused() {
        let all = one_of_each();
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for entry in &all {
            entry.encode(&mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(Entry::decode_all(&bytes), Ok(all.clone()));
        for length in 0..bytes.len() {
            let decoded = Entry::decode_all(&bytes[..length]);
            match ends.iter().position(|end| *end == length) {
                Some(count) => assert_eq!(decoded.as_deref(), Ok(&all[..count])),
                None => assert!(decoded.is_err(), "{length}"),
            }
        }
    }
}
