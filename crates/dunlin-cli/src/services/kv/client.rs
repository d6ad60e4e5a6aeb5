//! The client of the key-value service, for `dunlin kv`.

use dunlin::{CallError, Client};
use dunlin_store::kv::{KvLayout, Lookup, Step};

use super::{entries, scan_request_into, GET, LAYOUT, REGION, SCAN};

/// A key and its value, as a client receives them.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Number of times that a lookup by READs restarts, because the chain was changed, before the server is asked.
const LOOKUPS: usize = 16;

/// The value of `key`.
///
/// # Errors
/// The error of the call.
pub fn get_value(client: &Client, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
    let reply = client.call(GET, key)?;
    Ok(match reply.split_first() {
        Some((1, value)) => Some(value.to_vec()),
        _ => None,
    })
}

/// The value of `key`, READ from the server's memory without its processor. If writers interfere repeatedly, the server
/// is asked after all.
///
/// # Errors
/// The error of a call or a READ.
pub fn get_by_reads(client: &Client, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
    let described = client.call(LAYOUT, &[])?;
    let layout = described.first_chunk().map(KvLayout::parse);
    let Some(Ok(layout)) = layout else {
        return get_value(client, key);
    };
    let Ok(key) = layout.key(key) else {
        return get_value(client, key);
    };
    let region = client.attach(REGION)?;
    for _ in 0..LOOKUPS {
        let (mut lookup, mut step) = Lookup::new(layout, key);
        loop {
            match step {
                Step::Read { offset, length } => match region.read(offset as u64, length) {
                    Ok(bytes) => step = lookup.next(&bytes),
                    // An item is longer than its value, which may be as long as a message.
                    Err(CallError::TooLong { .. }) => return get_value(client, key.bytes()),
                    Err(error) => return Err(error),
                },
                Step::Found(value) => return Ok(Some(value)),
                Step::Absent => return Ok(None),
                Step::Disturbed => break,
            }
        }
    }
    get_value(client, key.bytes())
}

/// Entries in the order of their keys, from `first` on, at most `most`, fetched in as many calls as needed.
///
/// # Errors
/// The error of a call.
pub fn scan_entries(client: &Client, first: &[u8], most: u32) -> Result<Vec<Entry>, CallError> {
    let (mut all, mut payload, mut from) = (Vec::<Entry>::new(), Vec::new(), first.to_vec());
    while all.len() < most as usize {
        scan_request_into(&mut payload, &from, most - all.len() as u32);
        let before = all.len();
        let reply = client.call(SCAN, &payload)?;
        all.extend(entries(&reply).map(|(key, value)| (key.to_vec(), value.to_vec())));
        let Some((last, _)) = all.get(before..).and_then(<[_]>::last) else {
            break;
        };
        // The smallest key after it.
        from.clone_from(last);
        from.push(0);
    }
    Ok(all)
}
