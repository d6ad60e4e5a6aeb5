//! The key-value service: an ordered map of byte strings, and its client.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::{CallError, Client, HandlerError, HandlerId, Responder, ServerBuilder};

/// Key -> found (one byte, 0 or 1) and the value.
pub const GET: HandlerId = 10;
/// Key length (two bytes, little endian), key, value -> whether it replaced one (one byte).
pub const PUT: HandlerId = 11;
/// Key -> whether there was one (one byte).
pub const DELETE: HandlerId = 12;
/// Most entries (four bytes), first key -> for each entry: key length (two bytes), value length (four bytes), key,
/// value.
pub const SCAN: HandlerId = 13;

/// Most bytes of a key: what its length field holds.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// Bytes after which a scan ends even though there are more entries.
const SCAN_BYTES: usize = 1 << 20;

/// A malformed request.
const MALFORMED: u32 = 1;

type Entries = BTreeMap<Box<[u8]>, Box<[u8]>>;
type Map = Arc<Mutex<Entries>>;

/// A key and its value, as a client gets them.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Adds the handlers, over an empty map.
pub fn on(server: ServerBuilder) -> ServerBuilder {
    let map = Map::default();
    let (gets, puts, deletes, scans) = (Arc::clone(&map), Arc::clone(&map), Arc::clone(&map), map);
    server
        .handle(GET, move |request, reply| {
            get(&gets, request.payload(), reply)
        })
        .handle(PUT, move |request, reply| {
            put(&puts, request.payload(), reply)
        })
        .handle(DELETE, move |request, reply| {
            let removed = lock(&deletes).remove(request.payload()).is_some();
            reply.write(&[u8::from(removed)])
        })
        .handle(SCAN, move |request, reply| {
            scan(&scans, request.payload(), reply)
        })
}

fn lock(map: &Map) -> std::sync::MutexGuard<'_, Entries> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

fn get(map: &Map, key: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
    match lock(map).get(key) {
        Some(value) => {
            reply.write(&[1])?;
            reply.write(value)
        }
        None => reply.write(&[0]),
    }
}

fn put(map: &Map, payload: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
    let (length, rest) = payload
        .split_first_chunk::<2>()
        .ok_or_else(|| malformed("no key length"))?;
    let (key, value) = rest
        .split_at_checked(usize::from(u16::from_le_bytes(*length)))
        .ok_or_else(|| malformed("the key is shorter than its length"))?;
    let mut map = lock(map);
    let replaced = match map.get_mut(key) {
        Some(place) if place.len() == value.len() => {
            place.copy_from_slice(value);
            true
        }
        Some(place) => {
            *place = value.into();
            true
        }
        None => map.insert(key.into(), value.into()).is_some(),
    };
    reply.write(&[u8::from(replaced)])
}

fn scan(map: &Map, payload: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
    let (most, first) = payload
        .split_first_chunk::<4>()
        .ok_or_else(|| malformed("no number of entries"))?;
    let most = u32::from_le_bytes(*most) as usize;
    let mut sent = 0;
    let map = lock(map);
    let range = map.range::<[u8], _>((Bound::Included(first), Bound::Unbounded));
    for (key, value) in range.take(most) {
        sent += 6 + key.len() + value.len();
        if sent > SCAN_BYTES {
            break;
        }
        reply.write(&(key.len() as u16).to_le_bytes())?;
        reply.write(&(value.len() as u32).to_le_bytes())?;
        reply.write(key)?;
        reply.write(value)?;
    }
    Ok(())
}

fn malformed(what: &str) -> HandlerError {
    HandlerError::new(MALFORMED, what)
}

/// The payload of a PUT.
pub fn put_request(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(2 + key.len() + value.len());
    payload.extend_from_slice(&(key.len().min(MAX_KEY_BYTES) as u16).to_le_bytes());
    payload.extend_from_slice(key);
    payload.extend_from_slice(value);
    payload
}

/// The value of `key`.
pub fn get_value(client: &Client, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
    let reply = client.call(GET, key)?;
    Ok(match reply.split_first() {
        Some((1, value)) => Some(value.to_vec()),
        _ => None,
    })
}

/// Entries in order of their keys, from `first` on.
pub fn scan_entries(client: &Client, first: &[u8], most: u32) -> Result<Vec<Entry>, CallError> {
    let mut payload = most.to_le_bytes().to_vec();
    payload.extend_from_slice(first);
    let reply = client.call(SCAN, &payload)?;
    let mut rest = &reply[..];
    let mut entries = Vec::new();
    while let Some(([a, b, c, d, e, f], after)) = rest.split_first_chunk::<6>() {
        let key_length = usize::from(u16::from_le_bytes([*a, *b]));
        let value_length = u32::from_le_bytes([*c, *d, *e, *f]) as usize;
        let Some((key, after)) = after.split_at_checked(key_length) else {
            break;
        };
        let Some((value, after)) = after.split_at_checked(value_length) else {
            break;
        };
        entries.push((key.to_vec(), value.to_vec()));
        rest = after;
    }
    Ok(entries)
}
