//! Deadlines of calls whose server does not answer what has to be asked or said before the call itself.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::flow_client::FlowClient;
use crate::common::probe_client::ProbeClient;
use crate::common::{Note, PATIENCE};
use crate::wire_v1::{bytes, entry, ANSWERED, DIRECTORY, PUSH};
use dunlin::{Client, OwnedResponder, RunningServer};
use dunlin_service::{Channel, Code, Request, Status};
use futures_util::stream;

const SHORT: Duration = Duration::from_millis(100);

/// A server that says once what it has, and keeps whatever else comes. It has not what it says.
fn silent() -> (RunningServer, String) {
    let kept = Arc::<Mutex<Vec<OwnedResponder>>>::default();
    let pushes = Arc::clone(&kept);
    let asked = AtomicUsize::new(0);
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle_deferred(DIRECTORY, move |_, responder| {
            if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                return kept.lock().unwrap().push(responder);
            }
            let echo = entry("/test.Probe/Echo", 2000, 0);
            let chat = entry("/test.Flow/Chat", 2002, 3);
            responder.reply([bytes(ANSWERED), echo, chat].concat());
        })
        .handle_deferred(PUSH, move |_, responder| {
            pushes.lock().unwrap().push(responder);
        })
        .serve()
        .unwrap();
    let address = server.address().to_string();
    (server, address)
}

/// Of a client that itself waits for longer than the test does.
async fn channel(address: &str) -> Channel {
    let client = Client::builder().deadline(10 * PATIENCE);
    let client = client.connect_async(address).await.unwrap();
    Channel::from_client(client).await.unwrap()
}

async fn is_late<T>(call: impl Future<Output = Result<T, Status>>) {
    let ended = tokio::time::timeout(PATIENCE, call).await;
    let status = ended.expect("its own deadline ends it").err();
    let code = status.map(|status| status.code());
    assert_eq!(code, Some(Code::DeadlineExceeded));
}

fn short<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(SHORT);
    request
}

#[tokio::test]
async fn streams_end_in_time_before_the_server_has_answered_at_all() {
    let (_server, address) = silent();
    let client = FlowClient::new(channel(&address).await);
    is_late(client.chat(short(stream::pending()))).await;
    // One that is to end earlier than those that are open.
    let longer = client.clone();
    let longer = tokio::spawn(async move {
        let mut request = Request::new(stream::pending());
        request.set_timeout(10 * SHORT);
        is_late(longer.chat(request)).await;
    });
    is_late(client.chat(short(stream::pending()))).await;
    is_late(client.chat(short(stream::pending()))).await;
    longer.await.unwrap();
}

#[tokio::test]
async fn the_question_for_a_method_is_a_part_of_the_call_that_asks_it() {
    let (_server, address) = silent();
    let client = ProbeClient::new(channel(&address).await);
    is_late(client.echo(short(Note::new("hello")))).await;
    let (_server, address) = silent();
    let client = ProbeClient::new(channel(&address).await).blocking();
    let blocking = tokio::task::spawn_blocking(move || client.echo(short(Note::new("hello"))));
    is_late(async { blocking.await.unwrap() }).await;
}
