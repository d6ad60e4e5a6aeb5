//! What a client may do by who it is: here by the user of its process, which the kernel tells over shared memory.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin rights
//! ```

use std::os::unix::fs::MetadataExt;

use dunlin::{Client, Grant, Region, Rights, Server, Who};
use dunlin_examples::Failure;

const PLACE: u16 = 1;
const CANCEL: u16 = 2;

fn main() -> Result<(), Failure> {
    let user = std::fs::metadata("/proc/self")?.uid();
    // ANCHOR: rights
    let rights = Rights::new()
        .allow(
            Who::User(user),
            Grant::new().call_named("/shop.Orders/Place"),
        )
        .allow(
            Who::User(0x7fff_0001),
            Grant::new().call(CANCEL).read("ledger"),
        );
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .device("shm")
        .handle(PLACE, |request, reply| {
            reply.write(format!("{} calls", request.peer()).as_bytes())
        })
        .handle(CANCEL, |_, _| Ok(()))
        .name_handler(PLACE, "/shop.Orders/Place")
        .name_handler(CANCEL, "/shop.Orders/Cancel")
        .region(&Region::new("ledger", 4096))
        .rights(rights)
        .serve()?;

    let client = Client::connect(&server.address().to_string())?;
    let answer = client.call(PLACE, b"")?;
    println!("{}", String::from_utf8_lossy(&answer));
    println!("{}", client.call(CANCEL, b"").err().ok_or("it may")?);
    println!("{}", client.attach("ledger").err().ok_or("it may")?);
    // ANCHOR_END: rights
    Ok(())
}
