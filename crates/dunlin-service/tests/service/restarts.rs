//! Streams of a server that is started anew.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::flow_client::FlowClient;
use crate::common::flow_server::FlowServer;
use crate::common::{until_async, PATIENCE};
use crate::flowing::{note, Flowing};
use crate::wire_v1::{bytes, DIRECTORY, PUSH, QUESTION};
use dunlin::{Client, Execution, OwnedResponder, RunningServer};
use dunlin_service::{Code, Server};
use futures_util::stream;

/// Kind of a frame that opens a stream.
const OPEN: u8 = 1;

/// A server at an address that another may have given back only now.
fn at(address: &str, flowing: &Flowing) -> RunningServer {
    let began = Instant::now();
    loop {
        let services = Server::builder().add_service(FlowServer::new(flowing.clone()));
        match services.start(address) {
            Ok(server) => return server,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// What a server took that keeps its answers: the responders, and whether the push opened a stream.
type Taken = Arc<Mutex<Vec<(OwnedResponder, bool)>>>;

fn opened(taken: &Taken) -> usize {
    let taken = taken.lock().unwrap();
    taken.iter().filter(|(_, opens)| *opens).count()
}

/// A server that is to end before it answers. What it takes is done.
fn silent(flowing: &Flowing) -> (String, RunningServer, Taken) {
    let server = at("dunlin://127.0.0.1:0", flowing);
    let address = server.address().to_string();
    let client = Client::connect(&address).unwrap();
    let directory = client.call(DIRECTORY, &bytes(QUESTION)).unwrap().to_vec();
    drop((client, server));
    let taken = Taken::default();
    let pushes = Arc::clone(&taken);
    let first = dunlin::Server::bind(&address)
        .unwrap()
        .handle(DIRECTORY, move |_, reply| reply.write(&directory))
        .handle_deferred(PUSH, move |request, responder| {
            let opens = request.payload().get(20) == Some(&OPEN);
            pushes.lock().unwrap().push((responder, opens));
        })
        .serve()
        .unwrap();
    (address, first, taken)
}

/// What its client heard no answer to is not done once more by the next server.
#[tokio::test]
async fn a_stream_whose_server_is_started_anew_before_it_answers_is_opened_once() {
    let flowing = Flowing::default();
    let (address, first, taken) = silent(&flowing);
    let client = FlowClient::connect(&address).await.unwrap();
    let again = client.clone();
    let summed = tokio::spawn(async move { again.sum(stream::iter([note(1, 10)])).await });
    until_async("the stream is opened", || opened(&taken) == 1).await;
    drop(first);
    let _second = at(&address, &flowing);
    let status = summed.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(status.execution(), Execution::Unknown);
    assert_eq!(opened(&taken) + flowing.begun(), 1, "once");
    // The channel's next streams are the second's.
    let summed = client.sum(stream::iter([note(2, 10)])).await.unwrap();
    assert_eq!(summed.into_inner().number, 2);
}

/// That nobody listens any more is no reason to say that nothing was executed.
#[tokio::test]
async fn a_stream_whose_server_does_not_come_back_may_have_been_opened() {
    let flowing = Flowing::default();
    let (address, first, taken) = silent(&flowing);
    let client = FlowClient::connect(&address).await.unwrap();
    let summed = tokio::spawn(async move { client.sum(stream::iter([note(1, 10)])).await });
    until_async("the stream is opened", || opened(&taken) == 1).await;
    drop(first);
    let status = summed.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(status.execution(), Execution::Unknown, "{status}");
}
