//! Long messages: a request that is filled in place, an answer that is made in place, and the limit.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin long
//! ```

use dunlin::{ChannelConfig, Client, Server};
use dunlin_examples::Failure;

const SUM: u16 = 1;
const ZEROS: u16 = 2;
const MIB: usize = 1 << 20;

fn main() -> Result<(), Failure> {
    // ANCHOR: limit
    let channel = ChannelConfig {
        max_message_bytes: 64 * MIB, // what this side takes; the default is 16 MiB
        ..ChannelConfig::default()
    };
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .channel(channel.clone())
        .handle_on_workers(SUM, |request, reply| {
            let sum: u64 = request.payload().iter().map(|&byte| u64::from(byte)).sum();
            reply.write(&sum.to_le_bytes())
        })
        .handle_on_workers(ZEROS, |_, reply| {
            reply.in_place(32 * MIB)?.fill(0); // no copy: this is where it is sent from
            Ok(())
        })
        .serve()?;
    // ANCHOR_END: limit
    // ANCHOR: buffer
    let client = Client::connect(&server.address().to_string())?;
    let mut request = client.buffer(40 * MIB)?; // registered memory, which the server READs by itself
    request.fill(1);
    let sum = client.call_buffer(SUM, request)?;
    println!(
        "{:?}",
        sum.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    );
    // ANCHOR_END: buffer
    if let Err(error) = client.call(ZEROS, &[]) {
        println!("{error}"); // the client's own limit is still 16 MiB
    }
    let client = Client::builder()
        .channel(channel)
        .connect(&server.address().to_string())?;
    println!("{} MiB", client.call(ZEROS, &[])?.len() / MIB);
    Ok(())
}
