//! A typed service of plain Rust types, without a .proto file.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin adder
//! ```

use dunlin_examples::Failure;
use dunlin_service::codec::Postcard;
use dunlin_service::{Code, Request, Response, Server, Status};

// ANCHOR: service
/// What is to be added.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Sum {
    /// The numbers.
    pub numbers: Vec<u32>,
}

dunlin_service::service! {
    /// Adds up.
    pub service Adder = "example.Adder" with Postcard {
        /// The sum of some numbers.
        rpc add as Add(Sum) -> u64;
    }
}

struct Plain;

// A function that fills the reply in place, for a few microseconds on the polling thread.
impl adder_server::SyncAdder for Plain {
    fn add(&self, request: &mut Request<Sum>, reply: &mut Response<u64>) -> Result<(), Status> {
        let numbers = &request.get_ref().numbers;
        if numbers.is_empty() {
            return Err(Status::invalid_argument("nothing to add"));
        }
        *reply.get_mut() = numbers.iter().map(|&number| u64::from(number)).sum();
        Ok(())
    }
}
// ANCHOR_END: service

fn main() -> Result<(), Failure> {
    // ANCHOR: use
    let service = adder_server::SyncAdderServer::inline(Plain);
    let server = Server::builder()
        .add_service(service)
        .start("dunlin://127.0.0.1:0")?;
    let adder = adder_client::AdderBlockingClient::connect(server.address().to_string())?;
    let sum = adder.add(Sum {
        numbers: vec![1, 2, 3],
    })?;
    println!("{}", sum.into_inner());
    if let Err(status) = adder.add(Sum::default()) {
        assert_eq!(status.code(), Code::InvalidArgument);
        println!("{}", status.message());
    }
    // ANCHOR_END: use
    Ok(())
}
