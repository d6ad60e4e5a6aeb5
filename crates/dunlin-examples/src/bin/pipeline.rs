//! The most calls from one thread: a pipeline, whose answers come by callback.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin pipeline -- dunlin://127.0.0.1:7411    # a server whose handler 1 echoes
//! ```

use dunlin::Client;
use dunlin_examples::Failure;

const ECHO: u16 = 1;
const CALLS: u64 = 100_000;

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).ok_or("usage: pipeline ADDRESS")?;
    let client = Client::connect(&address)?;
    // ANCHOR: loop
    let mut pipeline = client.pipeline_of(64)?;
    let (mut sent, mut answered, mut wrong) = (0_u64, 0, 0);
    while answered < CALLS {
        while sent < CALLS && pipeline.outstanding() < 64 {
            if !pipeline.submit(ECHO, &sent.to_le_bytes(), sent)? {
                break; // no room: take answers first
            }
            sent += 1;
        }
        answered += pipeline.wait(|tag, answer| {
            wrong += u64::from(!answer.is_ok_and(|bytes| bytes == tag.to_le_bytes()));
        })? as u64;
    }
    println!("{answered} answers, {wrong} wrong");
    // ANCHOR_END: loop
    Ok(())
}
