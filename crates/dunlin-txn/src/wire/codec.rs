//! Encoding and decoding of messages: little-endian numbers, lengths before bytes, counts before lists.
use super::reader::{Reader, WireError};
use super::{Answer, Body, Fate, Item, Refusal, Request, Response};
use crate::types::{Address, Key, Place, Raised, TransactionId, Update, Value, Version};

/// Minimum length of a key: table and length.
const KEY_LEAST: usize = 4;
/// Minimum length of a change: key, version, flag.
pub(crate) const UPDATE_LEAST: usize = KEY_LEAST + 8 + 1;
/// Minimum length of an item: flag, version, flag, two addresses, flag.
const ITEM_LEAST: usize = 1 + 8 + 1 + 16 + 1;

impl Request {
    /// Appends the encoded request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_name(out, self.transaction, self.step);
        match &self.body {
            Body::Execute { writes, reads } => {
                out.push(0);
                put_list(out, writes, |out, (key, room)| {
                    put_key(out, key);
                    out.extend_from_slice(&room.to_le_bytes());
                });
                put_list(out, reads, put_key);
            }
            Body::Validate(checks) => {
                out.push(1);
                put_list(out, checks, |out, (key, version)| {
                    put_key(out, key);
                    out.extend_from_slice(&version.0.to_le_bytes());
                });
            }
            Body::Replicate { append, apply } => {
                out.push(2);
                put_list(out, append, put_update);
                put_list(out, apply, put_update);
            }
            Body::Commit(updates) => {
                out.push(3);
                put_list(out, updates, put_update);
            }
            Body::Release => out.push(4),
            Body::Outcome => out.push(5),
        }
    }

    /// Decodes a request, which must be all of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Request, WireError> {
        let mut from = Reader::new(bytes);
        let (transaction, step) = name(&mut from)?;
        let body = match from.u8()? {
            0 => Body::Execute {
                writes: from.list(KEY_LEAST + 4, |from| Ok((from.key()?, from.u32()?)))?,
                reads: from.list(KEY_LEAST, Reader::key)?,
            },
            1 => {
                Body::Validate(from.list(KEY_LEAST + 8, |from| Ok((from.key()?, version(from)?)))?)
            }
            2 => Body::Replicate {
                append: from.list(UPDATE_LEAST, update)?,
                apply: from.list(UPDATE_LEAST, update)?,
            },
            3 => Body::Commit(from.list(UPDATE_LEAST, update)?),
            4 => Body::Release,
            5 => Body::Outcome,
            other => return Err(WireError::Kind(other)),
        };
        from.end()?;
        Ok(Request {
            transaction,
            step,
            body,
        })
    }
}

impl Answer {
    /// Appends the encoded answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_name(out, self.transaction, self.step);
        match &self.response {
            Response::Executed(items) => {
                out.push(0);
                put_list(out, items, |out, item| {
                    put_value(out, item.value.as_ref());
                    out.extend_from_slice(&item.version.0.to_le_bytes());
                    out.push(u8::from(item.raised.is_some()));
                    if let Some(Raised { header, from, to }) = item.raised {
                        [header.0, from.0, to.0]
                            .iter()
                            .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
                    }
                    out.extend_from_slice(&item.place.header.0.to_le_bytes());
                    out.extend_from_slice(&item.place.item.0.to_le_bytes());
                    out.push(u8::from(item.place.capacity.is_some()));
                    out.extend(item.place.capacity.into_iter().flat_map(u32::to_le_bytes));
                });
            }
            Response::Locked { item, owner } => {
                out.push(1);
                out.extend_from_slice(&item.to_le_bytes());
                put_transaction(out, *owner);
            }
            Response::Valid => out.push(2),
            Response::Invalid { item } => {
                out.push(3);
                out.extend_from_slice(&item.to_le_bytes());
            }
            Response::Done => out.push(4),
            Response::Outcome(fate) => {
                out.push(6);
                out.push(match fate {
                    Fate::Committed => 0,
                    Fate::Aborted => 1,
                    Fate::Undecided => 2,
                    Fate::Forgotten => 3,
                });
            }
            Response::Refused(refusal) => {
                out.push(5);
                out.push(match refusal {
                    Refusal::Stale => 0,
                    Refusal::Unfinished => 1,
                    Refusal::Full => 2,
                    Refusal::TooManySlots => 3,
                    Refusal::Unknown => 4,
                    Refusal::Restarted => 5,
                    Refusal::Epoch => 6,
                });
            }
        }
    }

    /// Decodes an answer, which must be all of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Answer, WireError> {
        let mut from = Reader::new(bytes);
        let (transaction, step) = name(&mut from)?;
        let response = match from.u8()? {
            0 => Response::Executed(from.list(ITEM_LEAST, item)?),
            1 => Response::Locked {
                item: from.u32()?,
                owner: transaction_id(&mut from)?,
            },
            2 => Response::Valid,
            3 => Response::Invalid { item: from.u32()? },
            4 => Response::Done,
            5 => Response::Refused(match from.u8()? {
                0 => Refusal::Stale,
                1 => Refusal::Unfinished,
                2 => Refusal::Full,
                3 => Refusal::TooManySlots,
                4 => Refusal::Unknown,
                5 => Refusal::Restarted,
                6 => Refusal::Epoch,
                other => return Err(WireError::Kind(other)),
            }),
            6 => Response::Outcome(match from.u8()? {
                0 => Fate::Committed,
                1 => Fate::Aborted,
                2 => Fate::Undecided,
                3 => Fate::Forgotten,
                other => return Err(WireError::Kind(other)),
            }),
            other => return Err(WireError::Kind(other)),
        };
        from.end()?;
        Ok(Answer {
            transaction,
            step,
            response,
        })
    }
}

pub(crate) fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    // A coordinator refuses a transaction of more items than `MAX_ITEMS`.
    out.extend((list.len() as u32).to_le_bytes());
    list.iter().for_each(|item| put(out, item));
}

fn put_name(out: &mut Vec<u8>, transaction: TransactionId, step: u16) {
    put_transaction(out, transaction);
    out.extend_from_slice(&step.to_le_bytes());
}

pub(crate) fn put_transaction(out: &mut Vec<u8>, transaction: TransactionId) {
    out.extend_from_slice(&transaction.coordinator.to_le_bytes());
    out.extend_from_slice(&transaction.slot.to_le_bytes());
    out.extend_from_slice(&transaction.sequence.to_le_bytes());
}

pub(crate) fn put_key(out: &mut Vec<u8>, key: &Key) {
    out.extend_from_slice(&key.table().to_le_bytes());
    // A key has at most `MAX_KEY_BYTES`.
    out.extend((key.bytes().len() as u16).to_le_bytes());
    out.extend(key.bytes());
}

fn put_value(out: &mut Vec<u8>, value: Option<&Value>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        // A value is at most as long as a message, which is shorter than 4 GiB.
        out.extend((value.len() as u32).to_le_bytes());
        out.extend(&**value);
    }
}

pub(crate) fn put_update(out: &mut Vec<u8>, update: &Update) {
    put_key(out, &update.key);
    out.extend_from_slice(&update.version.0.to_le_bytes());
    put_value(out, update.value.as_ref());
}

fn name(from: &mut Reader<'_>) -> Result<(TransactionId, u16), WireError> {
    let transaction = transaction_id(from)?;
    match from.u16()? {
        0 => Err(WireError::Zero),
        step => Ok((transaction, step)),
    }
}

pub(crate) fn transaction_id(from: &mut Reader<'_>) -> Result<TransactionId, WireError> {
    let (coordinator, slot, sequence) = (from.u64()?, from.u16()?, from.u64()?);
    if sequence == 0 {
        return Err(WireError::Zero);
    }
    Ok(TransactionId {
        coordinator,
        slot,
        sequence,
    })
}

fn version(from: &mut Reader<'_>) -> Result<Version, WireError> {
    let version = Version(from.u64()?);
    if version > Version::MAX {
        return Err(WireError::Version);
    }
    Ok(version)
}

fn value(from: &mut Reader<'_>) -> Result<Option<Value>, WireError> {
    if !from.flag()? {
        return Ok(None);
    }
    let length = from.u32()?;
    Ok(Some(from.bytes(length as usize)?.into()))
}

pub(crate) fn update(from: &mut Reader<'_>) -> Result<Update, WireError> {
    let (key, version) = (from.key()?, version(from)?);
    Ok(Update {
        key,
        version,
        value: value(from)?,
    })
}

fn item(from: &mut Reader<'_>) -> Result<Item, WireError> {
    let (value, at) = (value(from)?, version(from)?);
    let raised = match from.flag()? {
        true => Some(Raised {
            header: Address(from.u64()?),
            from: version(from)?,
            to: version(from)?,
        }),
        false => None,
    };
    let (header, item) = (Address(from.u64()?), Address(from.u64()?));
    let capacity = if from.flag()? {
        Some(from.u32()?)
    } else {
        None
    };
    Ok(Item {
        value,
        version: at,
        raised,
        place: Place {
            header,
            item,
            capacity,
        },
    })
}
