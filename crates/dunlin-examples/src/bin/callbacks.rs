//! A server that calls its clients: it has them forget what they keep, and writes prices into their memory.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin callbacks
//! ```

use std::time::Duration;

use dunlin::{CallableClients, CallbackServer, Client, HandlerError, Region, Server};
use dunlin_examples::Failure;

const SUBSCRIBE: u16 = 1;
const FORGET: u16 = 1;

// ANCHOR: client
/// A client that may be called: it has handlers and memory as a server has, and no port.
struct Subscriber {
    prices: Region,
    client: Client,
    /// The server may call the client until this is dropped.
    serving: CallbackServer,
}

fn subscribe(address: &str, name: &'static str) -> Result<Subscriber, Failure> {
    let client = Client::connect(address)?;
    let prices = Region::new("prices", 4096).writable().notified(16);
    let serving = Server::unbound()
        .handle(FORGET, move |request, _| {
            let what = String::from_utf8_lossy(request.payload());
            println!("{name} forgets {what}");
            Ok(())
        })
        .region(&prices)
        .serve_to(&client)?;
    client.call(SUBSCRIBE, name.as_bytes())?;
    Ok(Subscriber {
        prices,
        client,
        serving,
    })
}
// ANCHOR_END: client

fn main() -> Result<(), Failure> {
    // ANCHOR: server
    let subscribers = CallableClients::new(1000);
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .callable_clients(&subscribers)
        .handle(SUBSCRIBE, |request, _| {
            let caller = request.caller();
            let caller = caller.ok_or_else(|| HandlerError::new(1, "you cannot be called"))?;
            let name = String::from_utf8_lossy(request.payload());
            println!("{name} is subscriber {}", caller.number());
            Ok(())
        })
        .serve()?;
    // ANCHOR_END: server
    let address = server.address().to_string();
    let ada = subscribe(&address, "Ada")?;
    let bob = subscribe(&address, "Bob")?;

    // ANCHOR: call
    for subscriber in subscribers.list() {
        subscriber.client().call(FORGET, b"tea")?;
    }
    // ANCHOR_END: call

    // ANCHOR: notify
    let price: u64 = 4200;
    for subscriber in subscribers.list() {
        let prices = subscriber.client().attach("prices")?;
        prices.write_notify(64, &price.to_le_bytes(), 7)?;
    }
    // ANCHOR_END: notify

    // ANCHOR: hear
    for subscriber in [&ada, &bob] {
        let events = subscriber.prices.notifications().ok_or("it has some")?;
        let event = events.wait(Duration::from_secs(10)).ok_or("in time")?;
        let mut bytes = [0; 8];
        let memory = subscriber.prices.memory().ok_or("it is served")?;
        memory.read(event.offset as usize, &mut bytes);
        println!("value {}: {}", event.value, u64::from_le_bytes(bytes));
    }
    // ANCHOR_END: hear

    // ANCHOR: gone
    let bob_at_the_server = subscribers.list().remove(1);
    drop(bob.serving);
    bob.client.close();
    while !bob_at_the_server.is_gone() {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("there are {} subscribers", subscribers.len());
    // ANCHOR_END: gone
    drop(ada);
    Ok(())
}
