//! A trace by OpenTelemetry through a client, a server and the call of its handler to a second server.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin telemetry
//! ```

use dunlin_examples::helloworld::greeter_client::GreeterClient;
use dunlin_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use dunlin_examples::helloworld::{HelloReply, HelloRequest};
use dunlin_examples::Failure;
use dunlin_service::telemetry::Telemetry;
use dunlin_service::{Channel, Request, Response, Server, Status};
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

/// Greets, or has the next greet.
struct Link(Option<GreeterClient>);

#[dunlin_service::async_trait]
impl Greeter for Link {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let request = request.into_inner();
        match &self.0 {
            Some(next) => next.say_hello(request).await,
            None if request.name.is_empty() => Err(Status::internal("nobody to greet")),
            None => Ok(Response::new(HelloReply {
                message: format!("Hello {}!", request.name),
            })),
        }
    }
}

/// The spans below one, with how their calls ended.
fn print(spans: &[SpanData], parent: SpanId, depth: usize) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        let mut attributes = span.attributes.iter();
        let code = attributes.find(|one| one.key.as_str() == "rpc.response.status_code");
        let code = code.map_or_else(String::new, |code| code.value.to_string());
        let kind = format!("{:?}", span.span_kind).to_lowercase();
        println!("{:1$}{kind} {2} {code}", "", depth * 2, span.name);
        print(spans, span.span_context.span_id(), depth + 1);
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // ANCHOR: provider
    // Kept in memory to be printed; others send spans away, as opentelemetry-otlp does.
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    opentelemetry::global::set_tracer_provider(provider);
    // ANCHOR_END: provider

    // ANCHOR: telemetry
    let telemetry = Telemetry::global();
    let back = Server::builder()
        .telemetry(&telemetry)
        .add_service(GreeterServer::new(Link(None)))
        .start("dunlin://127.0.0.1:0")?;
    let channel = Channel::connect(&back.address().to_string()).await?;
    let next = GreeterClient::new(channel.telemetry(&telemetry));
    // ANCHOR_END: telemetry
    let front = Server::builder()
        .telemetry(&telemetry)
        .add_service(GreeterServer::new(Link(Some(next))))
        .start("dunlin://127.0.0.1:0")?;
    let channel = Channel::connect(&front.address().to_string()).await?;
    let client = GreeterClient::new(channel.telemetry(&telemetry));
    for name in ["Ada", ""] {
        let request = HelloRequest { name: name.into() };
        match client.say_hello(request).await {
            Ok(response) => println!("{}", response.into_inner().message),
            Err(status) => println!("{status}"),
        }
        print(&exporter.get_finished_spans()?, SpanId::INVALID, 0);
        exporter.reset();
    }
    Ok(())
}
