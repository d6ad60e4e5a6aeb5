//! The same calls over several presets: one server serves them all at once.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin presets
//! ```

use dunlin::{Client, Preset, Server};
use dunlin_examples::Failure;

const ECHO: u16 = 1;

fn main() -> Result<(), Failure> {
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()?;
    let address = server.address().to_string();
    // ANCHOR: each
    for preset in [
        Preset::Auto,
        Preset::Plain,
        Preset::Flock,
        Preset::Fasst,
        Preset::ScaleRpc,
    ] {
        let client = Client::builder().preset(preset).connect(&address)?;
        let answer = client.call(ECHO, preset.name().as_bytes())?;
        println!(
            "{} over {}",
            String::from_utf8_lossy(&answer),
            client.info().device
        );
    }
    // By name, as in a configuration file.
    let preset: Preset = "flock".parse()?;
    println!(
        "{}",
        Client::builder()
            .preset(preset)
            .lanes(4)
            .connect(&address)?
            .info()
            .preset
    );
    // ANCHOR_END: each
    Ok(())
}
