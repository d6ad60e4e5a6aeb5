//! A typed service whose messages are read where they stand: a blob is copied once into the map, and once out of it.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin blobs
//! ```

use std::collections::HashMap;
use std::sync::RwLock;

use dunlin_examples::Failure;
use dunlin_service::{Code, Reply, RequestView, Sent, Server, Status};

/// What the build script has made of `proto/blobs.proto`, by `dunlin_build::configure().views()`.
pub mod proto {
    #![allow(missing_docs)]
    dunlin_service::include_proto!("blobs");
}
use proto::blobs_client::BlobsBlockingClient;
use proto::blobs_server::{ViewBlobs, ViewBlobsServer};
use proto::{Blob, BlobView, BlobsGet, BlobsPut, KeptView, Name};

// ANCHOR: service
#[derive(Default)]
struct Shelf(RwLock<HashMap<String, Vec<u8>>>);

fn poisoned<T>(_: T) -> Status {
    Status::internal("another handler has panicked")
}

impl ViewBlobs for Shelf {
    fn put(
        &self,
        request: RequestView<'_, BlobsPut>,
        reply: Reply<'_, BlobsPut>,
    ) -> Result<Sent, Status> {
        // Name and content are parts of the bytes that the client has written.
        let BlobView { name, content } = request.view()?;
        let mut blobs = self.0.write().map_err(poisoned)?;
        blobs.insert(name.to_owned(), content.to_vec());
        Ok(reply.send(&KeptView {
            bytes: content.len() as u64,
        }))
    }

    fn get(
        &self,
        request: RequestView<'_, BlobsGet>,
        reply: Reply<'_, BlobsGet>,
    ) -> Result<Sent, Status> {
        let name = request.view()?.name;
        let blobs = self.0.read().map_err(poisoned)?;
        let content = blobs.get(name).ok_or_else(|| Status::not_found(name))?;
        // Out of the map into the answer, without a message in between.
        Ok(reply.send(&BlobView { name, content }))
    }
}
// ANCHOR_END: service

fn main() -> Result<(), Failure> {
    let server = Server::builder()
        .add_service(ViewBlobsServer::inline(Shelf::default()))
        .start("dunlin://127.0.0.1:0")?;
    let blobs = BlobsBlockingClient::connect(server.address().to_string())?;
    let kept = blobs.put(Blob {
        name: "zeros".into(),
        content: vec![0; 1 << 20],
    })?;
    println!("kept {} bytes", kept.get_ref().bytes);
    let name = |name: &str| Name { name: name.into() };
    println!(
        "got {} bytes",
        blobs.get(name("zeros"))?.get_ref().content.len()
    );
    match blobs.get(name("ones")) {
        Err(status) if status.code() == Code::NotFound => {
            println!("there is no {}", status.message())
        }
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
