//! A greeter, of the shape of tonic's example `helloworld`:
//!
//! ```sh
//! cargo run -p dunlin-examples --bin helloworld -- serve dunlin://127.0.0.1:7470    # until Ctrl-C
//! cargo run -p dunlin-examples --bin helloworld -- call dunlin://127.0.0.1:7470 Ada
//! ```

// ANCHOR: program
use dunlin_examples::helloworld::greeter_client::GreeterClient;
use dunlin_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use dunlin_examples::helloworld::{HelloReply, HelloRequest};
use dunlin_examples::{serve, Failure};
use dunlin_service::{Request, Response, Server, Status};

#[derive(Default)]
struct MyGreeter;

#[dunlin_service::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(Response::new(HelloReply {
            message: format!("Hello {name}!"),
        }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => {
            let greeter = GreeterServer::new(MyGreeter);
            serve(Server::builder().add_service(greeter), address).await
        }
        ["call", address, name] => {
            let client = GreeterClient::connect(address).await?;
            let request = HelloRequest {
                name: (*name).into(),
            };
            let response = client.say_hello(request).await?;
            println!("{}", response.into_inner().message);
            Ok(())
        }
        _ => Err("usage: helloworld serve ADDRESS | call ADDRESS NAME".into()),
    }
}
// ANCHOR_END: program
