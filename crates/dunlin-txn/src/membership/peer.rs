//! The requests of machines to each other when an epoch begins, and while one of them copies the others' data.

use super::{Epoch, Record};
use crate::types::{MachineId, TransactionId, Update};
use crate::wire::codec::{
    put_list, put_transaction, put_update, transaction_id, update, UPDATE_LEAST,
};
use crate::wire::{Reader, WireError};

/// Maximum number of records, and of changes, in one message: a page and a chunk have fewer.
const LIST_MAX: usize = 1 << 17;

/// A request of one machine to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerRequest {
    /// Enter this epoch, stop serving, and report the transactions decided since `base` began to serve.
    Seal {
        /// The new epoch.
        epoch: Epoch,
        /// The last one that served.
        base: Epoch,
        /// Where to continue in what was decided; 0 at first.
        cursor: u64,
    },
    /// Of the transactions in progress these have committed, and no others.
    Install {
        /// The new epoch.
        epoch: Epoch,
        /// Number of changes in the pages before this one.
        cursor: u64,
        /// A page of what was decided; its last transaction may continue on a later one.
        records: Vec<Record>,
        /// Whether more pages follow: nothing is installed before the last one.
        more: bool,
    },
    /// All machines of the epoch have installed: serve.
    Serve {
        /// The epoch.
        epoch: Epoch,
    },
    /// Return the data, from this position on, of the shards whose primary you are.
    Copy {
        /// The epoch of both machines.
        epoch: Epoch,
        /// The machine that copies.
        machine: MachineId,
        /// Where to continue; 0 at first.
        cursor: u64,
    },
}

/// The answer to such a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerAnswer {
    /// Sealed; a page of what was decided, and where to continue.
    Report(Vec<Record>, Option<u64>),
    /// Done.
    Done,
    /// Data, and where to continue.
    Chunk(Vec<Update>, Option<u64>),
    /// The machine is in another epoch, or cannot do it.
    No,
}

impl PeerRequest {
    /// The epoch of the request.
    pub fn epoch(&self) -> Epoch {
        match self {
            PeerRequest::Seal { epoch, .. }
            | PeerRequest::Install { epoch, .. }
            | PeerRequest::Serve { epoch }
            | PeerRequest::Copy { epoch, .. } => *epoch,
        }
    }

    /// Appends the encoded request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch().0.to_le_bytes());
        match self {
            PeerRequest::Seal { base, cursor, .. } => {
                out.push(0);
                out.extend_from_slice(&base.0.to_le_bytes());
                out.extend_from_slice(&cursor.to_le_bytes());
            }
            PeerRequest::Install {
                cursor,
                records,
                more,
                ..
            } => {
                out.push(1);
                out.extend_from_slice(&cursor.to_le_bytes());
                put_list(out, records, put_record);
                out.push(u8::from(*more));
            }
            PeerRequest::Serve { .. } => out.push(2),
            PeerRequest::Copy {
                machine, cursor, ..
            } => {
                out.push(3);
                out.extend_from_slice(&machine.0.to_le_bytes());
                out.extend_from_slice(&cursor.to_le_bytes());
            }
        }
    }

    /// Decodes a request, which must be all of the bytes.
    ///
    /// # Errors
    /// When they are not a valid request.
    pub fn decode(bytes: &[u8]) -> Result<PeerRequest, WireError> {
        let mut from = Reader::new(bytes);
        let epoch = Epoch(from.u64()?);
        let request = match from.u8()? {
            0 => PeerRequest::Seal {
                epoch,
                base: Epoch(from.u64()?),
                cursor: from.u64()?,
            },
            1 => PeerRequest::Install {
                epoch,
                cursor: from.u64()?,
                records: records(&mut from)?,
                more: from.flag()?,
            },
            2 => PeerRequest::Serve { epoch },
            3 => PeerRequest::Copy {
                epoch,
                machine: MachineId(from.u16()?),
                cursor: from.u64()?,
            },
            other => return Err(WireError::Kind(other)),
        };
        from.end()?;
        Ok(request)
    }
}

impl PeerAnswer {
    /// Appends the encoded answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            PeerAnswer::Report(records, next) => {
                out.push(0);
                put_list(out, records, put_record);
                put_next(out, *next);
            }
            PeerAnswer::Done => out.push(1),
            PeerAnswer::Chunk(items, next) => {
                out.push(2);
                put_list(out, items, put_update);
                put_next(out, *next);
            }
            PeerAnswer::No => out.push(3),
        }
    }

    /// Decodes an answer, which must be all of the bytes.
    ///
    /// # Errors
    /// When they are not a valid answer.
    pub fn decode(bytes: &[u8]) -> Result<PeerAnswer, WireError> {
        let mut from = Reader::new(bytes);
        let answer = match from.u8()? {
            0 => PeerAnswer::Report(records(&mut from)?, next(&mut from)?),
            1 => PeerAnswer::Done,
            2 => {
                let items = from.list_of(LIST_MAX, UPDATE_LEAST, update)?;
                PeerAnswer::Chunk(items, next(&mut from)?)
            }
            3 => PeerAnswer::No,
            other => return Err(WireError::Kind(other)),
        };
        from.end()?;
        Ok(answer)
    }
}

fn put_record(out: &mut Vec<u8>, (transaction, updates): &Record) {
    put_transaction(out, *transaction);
    put_list(out, updates, put_update);
}

fn put_next(out: &mut Vec<u8>, next: Option<u64>) {
    out.push(u8::from(next.is_some()));
    out.extend(next.iter().flat_map(|next| next.to_le_bytes()));
}

fn next(from: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
    from.flag()?.then(|| from.u64()).transpose()
}

fn records(from: &mut Reader<'_>) -> Result<Vec<Record>, WireError> {
    from.list_of(LIST_MAX, 8 + 2 + 8 + 4, |from| {
        let transaction: TransactionId = transaction_id(from)?;
        // A slot may have logged in several requests, each with two lists: its record is bounded only by the page.
        let updates = from.list_of(u32::MAX as usize, UPDATE_LEAST, update)?;
        Ok((transaction, updates))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Key, Version};
    use crate::wire::MAX_ITEMS;

    #[test]
    fn a_record_of_two_full_lists_is_read() {
        let id = TransactionId {
            coordinator: 1,
            slot: 0,
            sequence: 1,
        };
        let update = |number| Update {
            key: Key::number(0, number),
            value: None,
            version: Version(1),
        };
        let record: Record = (id, (0..2 * MAX_ITEMS as u64).map(update).collect());
        let report = PeerAnswer::Report(vec![record.clone()], Some(9));
        let mut bytes = Vec::new();
        report.encode(&mut bytes);
        assert_eq!(PeerAnswer::decode(&bytes), Ok(report));
        let install = PeerRequest::Install {
            epoch: Epoch(2),
            cursor: 7,
            records: vec![record],
            more: true,
        };
        let mut bytes = Vec::new();
        install.encode(&mut bytes);
        assert_eq!(PeerRequest::decode(&bytes), Ok(install));
    }
}
