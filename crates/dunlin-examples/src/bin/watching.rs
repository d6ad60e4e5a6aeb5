//! A server's own figures: from inside, and from any client.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin watching
//! ```

use dunlin::{Client, Server};
use dunlin_examples::Failure;

const ECHO: u16 = 1;

fn main() -> Result<(), Failure> {
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()?;
    let client = Client::connect(&server.address().to_string())?;
    for _ in 0..1000 {
        client.call(ECHO, b"counted")?;
    }
    // ANCHOR: figures
    let figures = client.server_figures()?; // what `dunlin top` shows; `server.figures()` in the server's process
    let shm = figures.devices.iter().find(|device| device.name == "shm");
    println!(
        "connections over shm: {}",
        shm.map_or(0, |device| device.connections)
    );
    println!(
        "at least 1000 requests: {}",
        figures.statistics.requests >= 1000
    );
    println!("violations: {}", figures.statistics.violations);
    // ANCHOR_END: figures
    Ok(())
}
