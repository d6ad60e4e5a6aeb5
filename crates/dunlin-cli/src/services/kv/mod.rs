//! The key-value service and its messages.

pub mod client;
pub mod server;

use dunlin::HandlerId;

pub use client::{get_by_reads, get_value, scan_entries, Entry};
pub use dunlin_store::kv::MAX_KEY_BYTES;
pub use server::{on, Settings};

/// Key -> found (one byte, 0 or 1) and the value.
pub const GET: HandlerId = 10;
/// Key length (two bytes, little endian), key, value -> whether it replaced one (one byte).
pub const PUT: HandlerId = 11;
/// Key -> whether there was one (one byte).
pub const DELETE: HandlerId = 12;
/// Most entries (four bytes), first key -> for each entry: key length (two bytes), value length (four bytes), key,
/// value. None when there are no more; else as many as fit, at least one.
pub const SCAN: HandlerId = 13;
/// Nothing -> the layout of the store in the region [`REGION`], for those who READ it.
pub const LAYOUT: HandlerId = 14;

/// Bytes of an entry in a SCAN's response in addition to its key and its value.
pub const ENTRY_BYTES: usize = 6;
/// Maximum bytes of a SCAN's response, unless its only entry is longer.
pub const SCAN_BYTES: usize = 1 << 20;

/// The region that contains the store.
pub const REGION: &str = "kv";

/// A malformed request.
pub const MALFORMED: u32 = 1;
/// The store is full.
pub const FULL: u32 = 2;
/// A key or a value that is too long.
pub const TOO_LONG: u32 = 3;

/// Writes the payload of a PUT; a key beyond [`MAX_KEY_BYTES`] is rejected by the server.
pub fn put_request_into(payload: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    payload.clear();
    payload.extend_from_slice(&(key.len().min(usize::from(u16::MAX)) as u16).to_le_bytes());
    payload.extend_from_slice(key);
    payload.extend_from_slice(value);
}

/// The payload of a PUT.
pub fn put_request(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(2 + key.len() + value.len());
    put_request_into(&mut payload, key, value);
    payload
}

/// The payload of a SCAN.
pub fn scan_request_into(payload: &mut Vec<u8>, first: &[u8], most: u32) {
    payload.clear();
    payload.extend_from_slice(&most.to_le_bytes());
    payload.extend_from_slice(first);
}

/// The entries of a SCAN's answer; they end where it is malformed.
pub fn entries(mut answer: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, d, e, f], rest) = answer.split_first_chunk::<ENTRY_BYTES>()?;
        let key_bytes = usize::from(u16::from_le_bytes([*a, *b]));
        let value_bytes = u32::from_le_bytes([*c, *d, *e, *f]) as usize;
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        answer = rest;
        Some((key, value))
    })
}
