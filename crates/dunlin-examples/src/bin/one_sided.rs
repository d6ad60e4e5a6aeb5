//! Memory of a server, past its processor: READ, WRITE, atomics, and what is refused.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin one_sided
//! ```

use dunlin::{CallError, Client, Region, Server};
use dunlin_examples::Failure;

fn main() -> Result<(), Failure> {
    // ANCHOR: grant
    let rows = Region::new("rows", 1 << 20).writable().atomic();
    let catalog = Region::new("catalog", 4096); // clients may only read it
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .region(&rows)
        .region(&catalog)
        .region(&Region::new("checkpoint", 8 << 20).writable())
        .serve()?;
    catalog
        .memory()
        .ok_or("a region has memory once its server serves")?
        .write(0, b"version 7");
    // ANCHOR_END: grant

    // ANCHOR: use
    let client = Client::connect(&server.address().to_string())?;
    let rows = client.attach("rows")?;
    rows.write(64, b"a row")?;
    println!("{}", String::from_utf8_lossy(&rows.read(64, 5)?));
    println!("before: {}", rows.fetch_add(0, 5)?);
    println!("before: {}", rows.compare_and_swap(0, 5, 100)?); // it was 5, so it is 100 now
    println!("now: {}", rows.fetch_add(0, 0)?);
    // ANCHOR_END: use

    // ANCHOR: refused
    let catalog = client.attach("catalog")?;
    println!("{}", String::from_utf8_lossy(&catalog.read(0, 9)?));
    if let Err(error @ CallError::RegionRight { .. }) = catalog.write(0, b"version 8") {
        println!("{error}");
    }
    if let Err(error @ CallError::RegionBounds { .. }) = catalog.read(4090, 10) {
        println!("{error}");
    }
    // ANCHOR_END: refused

    // ANCHOR: transfer
    let checkpoint = client.attach("checkpoint")?;
    let weights = vec![7; 8 << 20];
    let mut arrived = 0;
    checkpoint
        .transfer()
        .progress(|bytes| arrived = bytes)
        .put(0, &weights)?;
    let mut back = vec![0; weights.len()];
    checkpoint.transfer().lanes(2).get(0, &mut back)?;
    println!(
        "{arrived} bytes arrived, the same came back: {}",
        back == weights
    );
    // ANCHOR_END: transfer

    // ANCHOR: registered
    let mut transfer = checkpoint.transfer();
    let mut buffer = transfer.buffer(weights.len())?;
    transfer.get_into(0, &mut buffer, 0..weights.len())?;
    println!("landed as they were: {}", buffer.bytes()? == weights);
    // ANCHOR_END: registered
    Ok(())
}
