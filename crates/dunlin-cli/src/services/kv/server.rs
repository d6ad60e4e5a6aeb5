//! The server of the key-value service: handlers on the store, which is in a region that clients may READ.

use std::sync::{Arc, OnceLock};

use dunlin::{
    ChannelConfig, HandlerError, HandlerId, Region, RegisteredRegion, Responder, ServerBuilder,
    Upcoming,
};
use dunlin_store::kv::{Key, KvError, KvLayout, OrderedKvStore, Target};

use super::{
    DELETE, ENTRY_BYTES, FULL, GET, LAYOUT, MALFORMED, MAX_KEY_BYTES, PUT, REGION, SCAN,
    SCAN_BYTES, TOO_LONG,
};
use crate::commands::Failure;

/// Number of requests of a batch whose memory is prefetched at once: a core does not wait for more lines than these at
/// a time.
const AHEAD: usize = 64;

/// The capacity of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes for everything.
    pub memory: usize,
    /// Keys that are expected, if that is known.
    pub keys: Option<u64>,
}

/// Assumed bytes of an item if the number of keys is not given.
const ITEM_BYTES: usize = 256;

impl Settings {
    /// The layout of a store of this capacity, with its own seed.
    ///
    /// # Errors
    /// When the memory is too small, or too much.
    pub fn layout(&self) -> Result<KvLayout, Failure> {
        if let Some(keys) = self.keys.filter(|keys| *keys > self.memory as u64) {
            return Err(Failure::usage(format!(
                "--keys {keys}: more keys than the store has bytes ({}); increase --memory",
                self.memory
            )));
        }
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(Failure::new)?;
        let item_bytes = self.keys.map_or(ITEM_BYTES, |keys| {
            (self.memory as u64 / keys.max(1)).max(1) as usize
        });
        let layout = KvLayout::in_memory(
            self.memory,
            item_bytes,
            // One entry of a scan crosses as one message.
            ChannelConfig::default().max_message_bytes - MAX_KEY_BYTES - ENTRY_BYTES,
            u64::from_ne_bytes(seed),
        );
        layout.map_err(Failure::usage)
    }
}

struct Service {
    region: Region,
    layout: KvLayout,
    /// Created on the first request, because the region has memory only once the server serves.
    store: OnceLock<Result<OrderedKvStore<RegisteredRegion>, HandlerError>>,
}

/// Adds the handlers, over an empty store.
///
/// # Errors
/// When the memory is too small, or too much.
pub fn on(server: ServerBuilder, settings: &Settings) -> Result<ServerBuilder, Failure> {
    let layout = settings.layout()?;
    let service = Arc::new(Service {
        region: Region::new(REGION, layout.bytes()),
        layout,
        store: OnceLock::new(),
    });
    let (gets, puts, deletes, scans) = (
        Arc::clone(&service),
        Arc::clone(&service),
        Arc::clone(&service),
        Arc::clone(&service),
    );
    let ahead = Arc::clone(&service);
    Ok(server
        .region(&service.region)
        .prefetch(move |upcoming| ahead.prefetch(upcoming))
        .handle(GET, move |request, reply| {
            gets.get(request.payload(), reply)
        })
        .handle(PUT, move |request, reply| {
            puts.put(request.payload(), reply)
        })
        .handle(DELETE, move |request, reply| {
            let store = deletes.store()?;
            let key = store.store().key(request.payload()).map_err(refused)?;
            reply.write(&[u8::from(store.delete(&key))])
        })
        .handle(SCAN, move |request, reply| {
            scans.scan(request.payload(), reply)
        })
        .handle(LAYOUT, move |_, reply| reply.write(&layout.describe())))
}

impl Service {
    #[inline]
    fn store(&self) -> Result<&OrderedKvStore<RegisteredRegion>, HandlerError> {
        let made = self.store.get_or_init(|| {
            let starting =
                || HandlerError::new(FULL, "the server is still allocating memory for the store");
            let region = self.region.registered().ok_or_else(starting)?;
            OrderedKvStore::create(region, self.layout).map_err(refused)
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn get(&self, key: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
        let store = self.store()?.store();
        let key = store.key(key).map_err(refused)?;
        if !store.get(&key, &mut Answer(reply))? {
            reply.in_place(1)?[0] = 0;
        }
        Ok(())
    }

    fn put(&self, payload: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
        let (key, value) = split_put(payload).ok_or_else(|| {
            HandlerError::new(
                MALFORMED,
                "invalid PUT: expected a length of two bytes, a key of that length, and a value",
            )
        })?;
        let store = self.store()?;
        let key = store.store().key(key).map_err(refused)?;
        let replaced = store.put(&key, value).map_err(refused)?;
        reply.write(&[u8::from(replaced)])
    }

    fn scan(&self, payload: &[u8], reply: &mut Responder<'_>) -> Result<(), HandlerError> {
        let (most, first) = payload.split_first_chunk::<4>().ok_or_else(|| {
            HandlerError::new(
                MALFORMED,
                "invalid SCAN: expected a number of four bytes and a key",
            )
        })?;
        let mut left = u32::from_le_bytes(*most) as usize;
        let store = self.store()?;
        let most_bytes = SCAN_BYTES.min(reply.max_reply_bytes());
        let (mut sent, mut value, mut outcome) = (0, Vec::new(), Ok(()));
        if left == 0 {
            return Ok(());
        }
        store.scan(first, left, |key| {
            let Ok(found) = store.store().get(key, &mut value);
            if !found {
                return true;
            }
            let bytes = ENTRY_BYTES + key.bytes().len() + value.len();
            if sent > 0 && sent + bytes > most_bytes {
                return false;
            }
            sent += bytes;
            left -= 1;
            outcome = write_entry(reply, key.bytes(), &value);
            outcome.is_ok() && left > 0
        });
        outcome
    }

    /// Prefetches the memory that the requests of a batch will access.
    fn prefetch(&self, upcoming: Upcoming<'_>) {
        let Ok(store) = self.store().map(OrderedKvStore::store) else {
            return;
        };
        let mut keys: [Option<Key<'_>>; AHEAD] = [None; AHEAD];
        let named = upcoming.filter_map(|(handler, payload)| key_of(handler, payload));
        let mut count = 0;
        for (place, name) in keys.iter_mut().zip(named) {
            *place = store.key(name).ok();
            if let Some(key) = place {
                store.prefetch_bucket(key);
            }
            count += 1;
        }
        // A single request gains nothing from this.
        if count > 1 {
            keys[..count]
                .iter()
                .flatten()
                .for_each(|key| store.prefetch_item(key));
        }
    }
}

/// A value's place in the response, after the byte that says that there is one.
struct Answer<'a, 'b>(&'a mut Responder<'b>);

impl Target for Answer<'_, '_> {
    type Error = HandlerError;

    #[inline]
    fn room(&mut self, bytes: usize) -> Result<&mut [u8], HandlerError> {
        let response = self.0.in_place(1 + bytes)?;
        response[0] = 1;
        Ok(&mut response[1..])
    }
}

/// The key of a request, if it has one.
fn key_of(handler: HandlerId, payload: &[u8]) -> Option<&[u8]> {
    match handler {
        GET | DELETE => Some(payload),
        PUT => Some(split_put(payload)?.0),
        _ => None,
    }
}

fn split_put(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

fn write_entry(reply: &mut Responder<'_>, key: &[u8], value: &[u8]) -> Result<(), HandlerError> {
    reply.write(&(key.len() as u16).to_le_bytes())?;
    reply.write(&(value.len() as u32).to_le_bytes())?;
    reply.write(key)?;
    reply.write(value)
}

#[cold]
fn refused(error: KvError) -> HandlerError {
    let code = match error {
        KvError::KeyBytes(_) | KvError::ValueBytes { .. } => TOO_LONG,
        _ => FULL,
    };
    HandlerError::new(code, error.to_string())
}
