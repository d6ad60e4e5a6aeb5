//! Typed unary calls of one thread that waits for each, to a server of this process, for counting what they take of a
//! core:
//!
//! ```sh
//! cargo build --release --example instructions -p dunlin-service
//! valgrind --tool=callgrind target/release/examples/instructions 20000
//! ```
//!
//! How many calls. What the functions of the channel take by themselves, divided by the calls, is what a typed call has
//! beside the call below it.

use dunlin_service::codec::Raw;
use dunlin_service::{Request, Response, Server, Status};

use relay_client::RelayBlockingClient;
use relay_server::{SyncRelay, SyncRelayServer};

const USAGE: &str = "instructions CALLS";

dunlin_service::service! {
    /// Bytes.
    pub service Relay = "example.Relay" with Raw {
        /// The same bytes.
        rpc echo as Echo(Vec<u8>) -> Vec<u8>;
    }
}

struct Echo;

impl SyncRelay for Echo {
    fn echo(
        &self,
        request: &mut Request<Vec<u8>>,
        reply: &mut Response<Vec<u8>>,
    ) -> Result<(), Status> {
        reply.get_mut().extend_from_slice(request.get_ref());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: u64 = std::env::args().nth(1).ok_or(USAGE)?.parse()?;
    let service = SyncRelayServer::inline(Echo);
    let server = Server::builder()
        .add_service(service)
        .start("dunlin://127.0.0.1:0")?;
    let relay = RelayBlockingClient::connect(server.address().to_string())?;
    let message = vec![7; 64];
    for _ in 0..calls {
        assert_eq!(relay.echo(message.clone())?.into_inner(), message);
    }
    println!("{calls} calls");
    Ok(())
}
