//! Streams of all kinds over every preset: order, ends, errors, back-pressure, cancellation, deadlines, many at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use crate::common::flow_client::{FlowBlockingClient, FlowClient};
use crate::common::{until, until_async, Note, PATIENCE};
use crate::flowing::{note, start, still, Counted, Flowing};
use dunlin::{Client, Preset};
use dunlin_service::{Channel, Code, Request};
use futures_util::stream::{self, Stream, StreamExt};

/// Notes with numbers from zero on, of many lengths.
fn notes(count: u64) -> impl Stream<Item = Note> + Send + 'static {
    stream::iter((0..count).map(|number| note(number, (number as usize * 97) % 3000)))
}

async fn all_kinds(client: &FlowClient, preset: Preset) {
    // What fails in the middle says which it was.
    println!("{preset}");
    let response = client.count(note(500, 100)).await.unwrap();
    assert_eq!(response.metadata().get("x-count"), Some("500"), "{preset}");
    let mut counted = response.into_inner();
    for number in 0..500 {
        assert_eq!(
            counted.message().await.unwrap().unwrap().number,
            number,
            "{preset}"
        );
    }
    assert_eq!(counted.message().await.unwrap(), None);
    assert_eq!(counted.message().await.unwrap(), None, "and again");
    let sum = client.sum(notes(300)).await.unwrap().into_inner();
    assert_eq!(
        (sum.number, sum.words.as_str()),
        (299 * 300 / 2, "300"),
        "{preset}"
    );
    let back = client.chat(notes(300)).await.unwrap().into_inner();
    let back: Vec<Note> = back.map(Result::unwrap).collect().await;
    assert_eq!(back, notes(300).collect::<Vec<_>>().await, "{preset}");
    // One after the other.
    let (say, said) = futures_channel::mpsc::unbounded();
    let mut back = client.chat(said).await.unwrap().into_inner();
    for number in 0..50 {
        say.unbounded_send(note(number, 10)).unwrap();
        assert_eq!(
            back.message().await.unwrap(),
            Some(note(number, 10)),
            "{preset}"
        );
    }
    drop(say);
    assert_eq!(back.message().await.unwrap(), None);
    // Empty ones.
    assert_eq!(client.sum(notes(0)).await.unwrap().get_ref().words, "0");
    assert_eq!(
        client
            .chat(notes(0))
            .await
            .unwrap()
            .into_inner()
            .count()
            .await,
        0
    );
    assert_eq!(
        client
            .count(note(0, 0))
            .await
            .unwrap()
            .into_inner()
            .count()
            .await,
        0
    );
    // Long messages.
    let mut long = client.count(note(3, 1 << 20)).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(
            long.message().await.unwrap().unwrap().payload.len(),
            1 << 20
        );
    }
    assert_eq!(long.message().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_work_over_every_preset() {
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    for &preset in Preset::ALL {
        let client = Client::builder().preset(preset).deadline(PATIENCE);
        let client = client.connect_async(&address).await.unwrap();
        let client = FlowClient::new(Channel::from_client(client).await.unwrap());
        all_kinds(&client, preset).await;
    }
    until_async("all handlers have ended", || flowing.running() == 0).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_status() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowClient::connect(&address).await.unwrap();
    let status = client
        .count(Note {
            number: 5,
            ..Note::new("no")
        })
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "no notes")
    );
    for (words, code) in [("fail", Code::DataLoss), ("panic", Code::Internal)] {
        let response = client
            .count(Note {
                number: 5,
                ..Note::new(words)
            })
            .await
            .unwrap();
        let mut notes = response.into_inner();
        for number in 0..2 {
            assert_eq!(notes.message().await.unwrap().unwrap().number, number);
        }
        assert_eq!(notes.message().await.unwrap_err().code(), code);
        assert_eq!(notes.message().await.unwrap(), None);
    }
    // The handler ends before the client has said all, which is without end.
    let endless = stream::iter(0..).map(|number| Note {
        number,
        ..Note::new(if number == 10 { "enough" } else { "" })
    });
    let status = client.sum(endless).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let too_long = client.chat(stream::iter([note(0, 5 << 20)])).await;
    let status = match too_long {
        Err(status) => status,
        Ok(response) => response.into_inner().message().await.unwrap_err(),
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    // The channel goes on.
    assert_eq!(client.sum(notes(3)).await.unwrap().get_ref().words, "3");
}

#[tokio::test]
async fn who_does_not_read_holds_the_writer_back() {
    const BYTES: usize = 1000;
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let channel = Channel::connect(&address)
        .await
        .unwrap()
        .stream_window(32 << 10);
    let client = FlowClient::new(channel);
    // The client does not read.
    let mut unread = client
        .count(note(1_000_000, BYTES))
        .await
        .unwrap()
        .into_inner();
    until_async("the server has begun", || {
        flowing.made.load(Ordering::SeqCst) > 20
    })
    .await;
    let made = still(&flowing.made).await;
    assert!(
        made <= (32 << 10) / BYTES + 2,
        "{made} messages were made, which nobody reads"
    );
    // As it reads, more is made.
    for number in 0..1000 {
        assert_eq!(unread.message().await.unwrap().unwrap().number, number);
    }
    drop(unread);
    until_async("its handler has ended", || flowing.running() == 0).await;
    // The server does not read.
    let taken = Arc::<AtomicUsize>::default();
    let mut hanging = client
        .hang(Counted(Arc::clone(&taken), BYTES))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(hanging.message().await.unwrap().unwrap().words, "hello");
    until_async("the client speaks", || taken.load(Ordering::SeqCst) >= 16).await;
    let said = still(&taken).await;
    assert!(said <= (64 << 10) / BYTES + 2, "{said} messages were said");
    drop(hanging);
    until_async("its handler has ended", || flowing.running() == 0).await;
}

#[tokio::test]
async fn a_cancelled_stream_stops_its_handler() {
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let client = FlowClient::connect(&address).await.unwrap();
    // After the first response, by dropping it.
    let mut hanging = client.hang(stream::pending()).await.unwrap().into_inner();
    hanging.message().await.unwrap().unwrap();
    until_async("it runs", || flowing.running() == 1).await;
    drop(hanging);
    until_async("it is stopped", || flowing.running() == 0).await;
    // Before any response.
    let summing = client.clone();
    let task = tokio::spawn(async move { summing.sum(stream::pending()).await });
    until_async("it runs", || flowing.running() == 1).await;
    task.abort();
    until_async("it is stopped", || flowing.running() == 0).await;
    // By its deadline.
    let mut request = Request::new(stream::pending());
    request.set_timeout(Duration::from_secs(3));
    let mut hanging = client.hang(request).await.unwrap().into_inner();
    hanging.message().await.unwrap().unwrap();
    assert_eq!(
        hanging.message().await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    until_async("it is stopped", || flowing.running() == 0).await;
    // With its client.
    let other = FlowClient::connect(&address).await.unwrap();
    let hanging = other.hang(stream::pending()).await.unwrap();
    until_async("it runs", || flowing.running() == 1).await;
    other.clone().blocking();
    drop((hanging, other));
    until_async("it is stopped", || flowing.running() == 0).await;
}

#[test]
fn a_client_whose_runtime_ends_stops_its_handlers() {
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(FlowClient::connect(&address)).unwrap();
    let hanging = runtime.block_on(client.hang(stream::pending())).unwrap();
    until("it runs", || flowing.running() == 1);
    drop(runtime);
    until("it is stopped", || flowing.running() == 0);
    drop(hanging);
}

#[test]
fn streams_of_a_channel_whose_runtime_has_ended_fail() {
    let (_server, address) = start(&Flowing::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(FlowClient::connect(&address)).unwrap();
    drop(runtime);
    let client = client.blocking();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(client.count(note(3, 1)).map(drop)));
    let counted = told.recv_timeout(PATIENCE).expect("it does not hang");
    assert_eq!(counted.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_server_that_ends_ends_its_streams() {
    let flowing = Flowing::default();
    let (server, address) = start(&flowing);
    let client = FlowClient::connect(&address).await.unwrap();
    let mut hanging = client.hang(stream::pending()).await.unwrap().into_inner();
    hanging.message().await.unwrap().unwrap();
    tokio::task::spawn_blocking(|| drop(server)).await.unwrap();
    assert_eq!(
        hanging.message().await.unwrap_err().code(),
        Code::Unavailable
    );
    until_async("its handler has ended", || flowing.running() == 0).await;
}

#[test]
fn the_iterator_of_a_thread_that_waits_may_wait_itself() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowBlockingClient::connect(&address).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (waits, waiting) = mpsc::channel();
        let mut back = client.chat(waiting).unwrap().into_inner();
        // Other streams of the channel do not wait for it.
        let summed = client.sum([note(2, 10), note(3, 10)]).unwrap();
        assert_eq!(summed.into_inner().number, 5);
        for number in 0..20 {
            waits.send(note(number, 10)).unwrap();
            assert_eq!(back.next().unwrap().unwrap(), note(number, 10));
        }
        // Nor are they concerned by one that panics; what it had said so far is not all.
        let faulty = (0..3).map(|number| match number {
            2 => panic!("a bug in an iterator"),
            number => note(number, 10),
        });
        let status = client.sum(faulty).unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status}");
        waits.send(note(20, 10)).unwrap();
        drop(waits);
        assert_eq!(back.next().unwrap().unwrap(), note(20, 10));
        assert!(back.next().is_none());
        tell.send(()).unwrap();
    });
    told.recv_timeout(PATIENCE).expect("it does not hang");
}

#[test]
fn threads_that_wait_have_streams_without_a_runtime() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowBlockingClient::connect(&address).unwrap();
    let counted = client.count(note(100, 10)).unwrap().into_inner();
    let numbers: Vec<u64> = counted.map(|note| note.unwrap().number).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let sum = client
        .sum((0..10).map(|number| note(number, 1)))
        .unwrap()
        .into_inner();
    assert_eq!(sum.number, 45);
    let back = client
        .chat((0..10).map(|number| note(number, 1)))
        .unwrap()
        .into_inner();
    assert_eq!(
        back.map(Result::unwrap).collect::<Vec<_>>(),
        (0..10).map(|n| note(n, 1)).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_streams_are_open_at_once() {
    const STREAMS: usize = 10_000;
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let channel = Channel::connect(&address)
        .await
        .unwrap()
        .stream_window(1 << 10);
    let client = FlowClient::new(channel);
    let mut open = Vec::new();
    for number in 0..STREAMS as u64 {
        let (say, said) = futures_channel::mpsc::unbounded();
        say.unbounded_send(note(number, 1)).unwrap();
        let client = client.clone();
        open.push((say, tokio::spawn(async move { client.chat(said).await })));
    }
    let mut all = Vec::new();
    for (say, opened) in open {
        all.push((say, opened.await.unwrap().unwrap().into_inner()));
    }
    assert_eq!(flowing.running(), STREAMS);
    for (number, (say, back)) in (0..).zip(&mut all) {
        assert_eq!(back.message().await.unwrap(), Some(note(number, 1)));
        say.unbounded_send(note(number + 1, 2)).unwrap();
        assert_eq!(back.message().await.unwrap(), Some(note(number + 1, 2)));
    }
    drop(all);
    until_async("all handlers have ended", || flowing.running() == 0).await;
}
