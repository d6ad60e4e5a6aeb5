//! A key-value store in registered memory: the server puts, clients find keys by READs alone.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin table
//! ```

use dunlin::{Client, Region, Server};
use dunlin_examples::Failure;
use dunlin_store::kv::{KvLayout, KvStore, Lookup, Step};

fn main() -> Result<(), Failure> {
    // ANCHOR: store
    // Bytes in all, of a usual item, of the longest value; and a seed for the hash.
    let layout = KvLayout::in_memory(16 << 20, 256, 1 << 20, 7)?;
    let region = Region::new("birds", layout.bytes()); // for READ alone: only the server puts
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .region(&region)
        .serve()?;
    let store = KvStore::create(region.registered().ok_or("no memory yet")?, layout)?;
    store.put(&store.key(b"dunlin")?, b"Calidris alpina")?;
    // ANCHOR_END: store

    // ANCHOR: lookup
    let client = Client::connect(&server.address().to_string())?;
    let remote = client.attach("birds")?;
    let find = |key: &[u8]| -> Result<Option<Vec<u8>>, Failure> {
        let (mut lookup, mut step) = Lookup::new(layout, layout.key(key)?);
        loop {
            step = match step {
                Step::Read { offset, length } => lookup.next(&remote.read(offset as u64, length)?),
                Step::Found(value) => return Ok(Some(value)),
                Step::Absent => return Ok(None),
                // Writers were faster; here there is one more try for each time that happens.
                Step::Disturbed => {
                    let again = Lookup::new(layout, layout.key(key)?);
                    lookup = again.0;
                    again.1
                }
            };
        }
    };
    // ANCHOR_END: lookup
    for key in ["dunlin", "knot"] {
        let found = find(key.as_bytes())?;
        println!("{key}: {:?}", found.as_deref().map(String::from_utf8_lossy));
    }
    Ok(())
}
