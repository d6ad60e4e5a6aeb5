//! A server with a shared secret, and clients with the right one, another one and none.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin secret
//! ```

use dunlin::{Client, Secret, Server};
use dunlin_examples::Failure;

const ECHO: u16 = 1;

fn main() -> Result<(), Failure> {
    // ANCHOR: secret
    let secret = Secret::new(*b"32 random bytes, read from a file")?;
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .secret(secret.clone())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()?;
    let address = server.address().to_string();

    let client = Client::builder().secret(secret).connect(&address)?;
    println!(
        "{}",
        String::from_utf8_lossy(&client.call(ECHO, b"come in")?)
    );

    let other = Client::builder()
        .secret(Secret::new(*b"a guess")?)
        .connect(&address);
    println!("{}", other.err().ok_or("a guess was enough")?);
    let none = Client::connect(&address);
    println!("{}", none.err().ok_or("nothing was enough")?);
    // ANCHOR_END: secret
    Ok(())
}
