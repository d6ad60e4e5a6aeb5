//! A sequencer without a handler: threads draw numbers by FETCH AND ADD, and each number is drawn once.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin sequencer
//! ```

use std::collections::HashSet;
use std::sync::Mutex;

use dunlin::{Client, Region, Server};
use dunlin_examples::Failure;

const THREADS: usize = 4;
const DRAWN: usize = 500;

fn main() -> Result<(), Failure> {
    let next = Region::new("next", 4096).atomic();
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .region(&next)
        .serve()?;
    let address = server.address().to_string();
    // ANCHOR: draw
    let client = Client::connect(&address)?;
    let next = client.attach("next")?;
    let drawn = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..DRAWN {
                    let number = next.fetch_add(0, 1).expect("the server is there");
                    let new = drawn.lock().expect("no panic").insert(number);
                    assert!(new, "{number} was drawn twice");
                }
            });
        }
    });
    // ANCHOR_END: draw
    let drawn = drawn.into_inner()?;
    println!(
        "{} numbers, the greatest is {:?}",
        drawn.len(),
        drawn.iter().max()
    );
    Ok(())
}
