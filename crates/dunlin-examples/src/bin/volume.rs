//! A volume of blocks from a program, without an export.
//!
//! ```sh
//! # `dunlin serve blocks` at each
//! cargo run -p dunlin-examples --bin volume -- dunlin://127.0.0.1:7601 dunlin://127.0.0.1:7602 dunlin://127.0.0.1:7603
//! ```

use std::time::Duration;

use dunlin_examples::Failure;
use dunlin_volume::client::Operation;
use dunlin_volume::{Volume, VolumeOptions, BLOCK_BYTES};

fn main() -> Result<(), Failure> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    // ANCHOR: use
    let options = VolumeOptions::default();
    dunlin_volume::create("ledger", 64 << 20, &servers, &options)?;
    let mut volume = Volume::open("ledger", &servers, &options)?;

    // One after another: each call returns when the block is on all copies.
    volume.write_at(0, &[b'a'; BLOCK_BYTES])?;
    volume.write_at(4096, &[b'b'; BLOCK_BYTES])?;
    volume.trim(0, 4096)?;
    let two = volume.read_at(0, 2 * BLOCK_BYTES)?;
    println!("{} {}", two[0], two[4096]);

    // Many at once, from one thread.
    let (mut begun, mut ended) = (0, 0);
    while ended < 1000 {
        let offset = begun * 4096;
        let block = [begun as u8; BLOCK_BYTES];
        if begun < 1000 && volume.begin(Operation::Write(&block), offset, begun)? {
            begun += 1;
            continue;
        }
        match volume.poll() {
            Some(done) => {
                done.result?;
                ended += 1;
            }
            None => volume.wait(&[], Duration::from_millis(20))?,
        }
    }
    println!("{ended} blocks");

    // Who opens a volume is its only user: whoever had it before is refused.
    let second = Volume::open("ledger", &servers, &options)?;
    if let Err(error) = volume.write_at(0, &[0; BLOCK_BYTES]) {
        println!("{error}");
    }
    drop(second);
    // ANCHOR_END: use
    Ok(())
}
