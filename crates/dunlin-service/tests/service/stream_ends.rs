//! What ends one stream, and leaves the others of its channel alone.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::flow_client::{FlowBlockingClient, FlowClient};
use crate::common::flow_server::FlowServer;
use crate::common::{until_async, Note, PATIENCE};
use crate::flowing::{note, start, still, Counted, Flowing};
use crate::process::{role, say, Other};
use dunlin::{ChannelConfig, Client, RunningServer};
use dunlin_service::{Channel, Code, Request, Server, Status, Task};
use futures_util::stream::{self, StreamExt};
use rustix::process::{kill_process, Pid, Signal};

#[tokio::test]
async fn a_head_that_is_too_long_ends_its_stream_alone() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowClient::connect(&address).await.unwrap();
    let (say, said) = futures_channel::mpsc::unbounded();
    let mut other = client.chat(said).await.unwrap().into_inner();
    let long = Note {
        number: 3,
        ..Note::new("long head")
    };
    let counted = client.count(long.clone()).await.unwrap_err();
    assert_eq!(counted.code(), Code::ResourceExhausted, "{counted}");
    let summed = client.sum(stream::iter([long])).await.unwrap_err();
    assert_eq!(summed.code(), Code::ResourceExhausted, "{summed}");
    say.unbounded_send(note(1, 10)).unwrap();
    assert_eq!(other.message().await.unwrap(), Some(note(1, 10)));
}

#[tokio::test]
async fn a_stream_of_requests_that_panics_ends_alone() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowClient::connect(&address).await.unwrap();
    let (say, said) = futures_channel::mpsc::unbounded();
    let mut other = client.chat(said).await.unwrap().into_inner();
    let faulty = stream::iter(0..3).map(|number| match number {
        2 => panic!("a bug in a stream of requests"),
        number => note(number, 10),
    });
    let status = client.sum(faulty).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    say.unbounded_send(note(1, 10)).unwrap();
    assert_eq!(other.message().await.unwrap(), Some(note(1, 10)));
    drop(say);
    assert_eq!(other.message().await.unwrap(), None);
}

#[tokio::test]
async fn a_handler_that_stops_reading_lets_its_client_say_all() {
    const NOTES: usize = 1000;
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let client = FlowClient::connect(&address).await.unwrap();
    let taken = Arc::<AtomicUsize>::default();
    let said = Counted(Arc::clone(&taken), 1000).take(NOTES);
    let mut hanging = client.hang(said).await.unwrap().into_inner();
    assert_eq!(hanging.message().await.unwrap().unwrap().words, "hello");
    until_async("it speaks", || taken.load(Ordering::SeqCst) > 45).await;
    assert!(still(&taken).await < NOTES, "nobody reads");
    flowing.deaf.notify_one();
    until_async("all is said", || taken.load(Ordering::SeqCst) == NOTES).await;
}

#[tokio::test]
async fn a_handler_whose_executor_drops_it_ends_its_stream() {
    type Executor = fn(Task);
    // One that never ran, and one that has begun.
    let executors: [Executor; 2] = [drop, |mut task| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
    }];
    for executor in executors {
        let server = Server::builder()
            .executor(executor)
            .add_service(FlowServer::new(Flowing::default()));
        let server = server.start("dunlin://127.0.0.1:0").unwrap();
        let address = server.address().to_string();
        let client = FlowClient::connect(&address).await.unwrap();
        let summed = client.sum(stream::pending());
        let summed = tokio::time::timeout(PATIENCE, summed).await;
        let status = summed.expect("it does not hang").unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

/// A server and a client whose calls have at most so many bytes.
async fn short_of(at_server: usize, at_client: usize) -> (RunningServer, FlowClient) {
    let config = |max_message_bytes| ChannelConfig {
        max_message_bytes,
        ..ChannelConfig::default()
    };
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0").unwrap();
    let services = Server::builder().add_service(FlowServer::new(Flowing::default()));
    let server = services.on(server.channel(config(at_server))).unwrap();
    let server = server.serve().unwrap();
    let address = server.address().to_string();
    let client = Client::builder().channel(config(at_client));
    let client = client.connect_async(&address).await.unwrap();
    let channel = Channel::from_client(client).await.unwrap();
    (server, FlowClient::new(channel))
}

#[tokio::test]
async fn a_message_longer_than_the_other_side_takes_ends_its_stream_alone() {
    const MOST: usize = 10_000;
    let whole = ChannelConfig::default().max_message_bytes;
    for (at_server, at_client) in [(MOST, whole), (whole, MOST)] {
        let (_server, client) = short_of(at_server, at_client).await;
        let (say, said) = futures_channel::mpsc::unbounded();
        let mut other = client.chat(said).await.unwrap().into_inner();
        let long = stream::iter([note(0, 10), note(1, 10), note(2, 2 * MOST), note(3, 10)]);
        let mut heard = 0;
        let ended = async {
            let mut back = client.chat(long).await?.into_inner();
            loop {
                assert_eq!(back.message().await?, Some(note(heard, 10)));
                heard += 1;
            }
        };
        let ended: Result<(), Status> = ended.await;
        let status = ended.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(heard <= 2, "nothing behind what was left out");
        // Very many short ones together are no long one.
        for number in 0..1000 {
            say.unbounded_send(note(number, 500)).unwrap();
        }
        for number in 0..1000 {
            assert_eq!(other.message().await.unwrap(), Some(note(number, 500)));
        }
    }
}

/// Streams of a client that end by their deadlines, one after the other.
const SHORT_STREAMS: u64 = 3;

/// In a process of its own, which stands still now and then.
async fn have_a_long_stream_and_short_ones(address: &str) {
    let client = FlowClient::connect(address).await.unwrap();
    let (speak, said) = futures_channel::mpsc::unbounded();
    let mut long = client.chat(said).await.unwrap().into_inner();
    for number in 0..SHORT_STREAMS {
        // Less than a pull waits for news.
        let mut request = Request::new(stream::pending());
        request.set_timeout(Duration::from_secs(1));
        let ended = async { client.chat(request).await?.into_inner().message().await };
        let status = ended.await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        speak.unbounded_send(note(number, 10)).unwrap();
        assert_eq!(long.message().await.unwrap(), Some(note(number, 10)));
    }
    say("ended well");
}

/// Its client is not there when the pull's time is over, and takes what the server makes of that before it looks at its
/// own clock.
#[tokio::test]
async fn a_stream_whose_deadline_passes_while_its_client_stands_still_ends_alone() {
    if let Some((_, address)) = role() {
        return have_a_long_stream_and_short_ones(&address).await;
    }
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let name =
        "stream_ends::a_stream_whose_deadline_passes_while_its_client_stands_still_ends_alone";
    let mut client = Other::start(name, "client", &address);
    let pid = Pid::from_child(&client.child);
    loop {
        let mut has_ended = false;
        until_async("a short stream is open, or all have ended", || {
            has_ended = client.child.try_wait().unwrap().is_some();
            has_ended || flowing.running() == 2
        })
        .await;
        if has_ended {
            break;
        }
        kill_process(pid, Signal::STOP).unwrap();
        until_async("it stands still", || client.stands_still()).await;
        until_async("the deadline has passed", || flowing.running() < 2).await;
        kill_process(pid, Signal::CONT).unwrap();
    }
    assert_eq!(client.hear(), "ended well");
}

/// The address of the server of a client that is killed.
const TO_BE_KILLED: &str = "DUNLIN_TEST_TO_BE_KILLED";

/// A process of its own, which another test starts.
#[test]
fn a_client_that_is_killed() {
    if let Ok(address) = std::env::var(TO_BE_KILLED) {
        let client = FlowBlockingClient::connect(&address).unwrap();
        let ticks = client.count(Note::new("tick")).unwrap().into_inner();
        ticks.for_each(|tick| drop(tick.unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_a_client_that_is_killed_end_soon() {
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stream_ends::a_client_that_is_killed"])
        .env(TO_BE_KILLED, &address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let made = || flowing.made.load(Ordering::SeqCst);
    until_async("it has heard some", || made() > 20).await;
    client.kill().unwrap();
    client.wait().unwrap();
    // A client that is only silent has half a minute.
    let ended = until_async("its handler has ended", || flowing.running() == 0);
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    ended.expect("the server sees that its client has gone");
}
