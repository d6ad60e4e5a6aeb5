//! A peer whose process is killed while nobody has anything outstanding, over a network: whoever waits hears of it.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::process::{listen, role, say, Other};
use common::{from_hex, receive, roce, send, to_hex, wait_for, PATIENCE};
use dunlin_ring::{
    stream_config, Consumer, Offer, Producer, RingConfig, RingError, SendError, Stream,
    StreamOffer, UnconnectedConsumer, UnconnectedProducer, UnconnectedStream,
};
use dunlin_roce::RoceDevice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longer than it takes a wait to become a sleep, and to probe.
const A_WHILE: Duration = Duration::from_millis(1500);

fn stream(exchange: impl FnOnce(String) -> String) -> Stream<RoceDevice> {
    let stream = UnconnectedStream::new(&roce(), &stream_config()).unwrap();
    let theirs = exchange(to_hex(&stream.offer().encode()));
    let theirs = StreamOffer::decode(&from_hex(&theirs));
    stream.connect(&theirs).unwrap()
}

fn producer(exchange: impl FnOnce(String) -> String) -> Producer<RoceDevice> {
    let producer = UnconnectedProducer::new(&roce(), &RingConfig::default()).unwrap();
    let theirs = exchange(to_hex(&producer.offer().encode()));
    let theirs = Offer::decode(&from_hex(&theirs));
    producer.connect(&theirs).unwrap()
}

fn consumer(exchange: impl FnOnce(String) -> String) -> Consumer<RoceDevice> {
    let consumer = UnconnectedConsumer::new(&roce(), &RingConfig::default()).unwrap();
    let theirs = exchange(to_hex(&consumer.offer().encode()));
    let theirs = Offer::decode(&from_hex(&theirs));
    consumer.connect(&theirs).unwrap()
}

/// What the other process does, until it is killed.
fn play(what: &str) {
    let exchange = |ours: String| {
        say(&ours);
        listen().unwrap()
    };
    match what {
        "greet" | "leave" => {
            let mut stream = stream(exchange);
            block_on(async {
                stream.write_all(b"hello").await.unwrap();
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).await.unwrap();
            });
            if what == "leave" {
                drop(stream);
            }
            say("ready");
            listen();
        }
        "produce" => {
            let mut producer = producer(exchange);
            send(&mut producer, b"hello").unwrap();
            producer.flush().unwrap();
            listen();
        }
        "consume" => {
            let mut consumer = consumer(exchange);
            receive(&mut consumer).unwrap();
            say("ready");
            listen();
        }
        other => panic!("{other}"),
    }
}

fn exchange_with(other: &mut Other) -> impl FnOnce(String) -> String + '_ {
    |ours| {
        let theirs = other.hear();
        other.say(&ours);
        theirs
    }
}

fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

/// A stream to another process, each side of which has heard the other.
async fn met(name: &str, what: &str) -> (Other, Stream<RoceDevice>) {
    let mut other = Other::start(name, what, "");
    let mut stream = stream(exchange_with(&mut other));
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.write_all(&greeting).await.unwrap();
    assert_eq!(other.hear(), "ready");
    (other, stream)
}

#[test]
fn a_stream_that_waits_for_bytes_is_reset() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    block_on(async {
        let (mut other, mut stream) = met("a_stream_that_waits_for_bytes_is_reset", "greet").await;
        let mut byte = [0];
        let early = timeout(A_WHILE, stream.read(&mut byte)).await;
        assert!(early.is_err(), "a peer that lives is no error: {early:?}");
        other.kill();
        let read = timeout(PATIENCE, stream.read(&mut byte)).await;
        let error = read.expect("it waits in vain").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
}

#[test]
fn a_stream_that_waits_for_room_is_a_broken_pipe() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    block_on(async {
        let (mut other, mut stream) =
            met("a_stream_that_waits_for_room_is_a_broken_pipe", "greet").await;
        while let Ok(written) = timeout(A_WHILE, stream.write(&[7; 4096])).await {
            written.unwrap();
        }
        other.kill();
        let written = timeout(PATIENCE, stream.write(&[7; 4096])).await;
        let error = written.expect("it waits in vain").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
}

#[test]
fn bytes_that_did_not_arrive_are_an_error_of_shutdown() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    block_on(async {
        let name = "bytes_that_did_not_arrive_are_an_error_of_shutdown";
        let (mut other, mut stream) = met(name, "greet").await;
        other.kill();
        stream.write_all(b"nobody reads this").await.unwrap();
        let ended = timeout(PATIENCE, stream.shutdown()).await;
        let error = ended.expect("it waits in vain").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        assert!(stream.shutdown().await.is_err(), "an error lasts");
    });
}

#[test]
fn a_peer_that_has_read_everything_and_left_needs_no_end() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    block_on(async {
        let name = "a_peer_that_has_read_everything_and_left_needs_no_end";
        let (_other, mut stream) = met(name, "leave").await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
        let ended = timeout(PATIENCE, stream.shutdown()).await;
        ended.expect("it waits in vain").unwrap();
    });
}

#[test]
fn a_consumer_that_probes_hears_that_its_producer_is_gone() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    let name = "a_consumer_that_probes_hears_that_its_producer_is_gone";
    let mut other = Other::start(name, "produce", "");
    let mut consumer = consumer(exchange_with(&mut other));
    assert_eq!(receive(&mut consumer).unwrap().unwrap(), b"hello");
    for _ in 0..3 {
        consumer.probe().unwrap();
        assert!(consumer.receive(|_| ()).is_ok());
    }
    other.kill();
    let error = wait_for(|| {
        let _ = consumer.probe();
        consumer.receive(|_| ()).err()
    });
    assert_eq!(error, RingError::PeerLost);
}

#[test]
fn a_producer_that_probes_hears_that_its_consumer_is_gone() {
    if let Some((role, _)) = role() {
        return play(&role);
    }
    let name = "a_producer_that_probes_hears_that_its_consumer_is_gone";
    let mut other = Other::start(name, "consume", "");
    let mut producer = producer(exchange_with(&mut other));
    send(&mut producer, b"hello").unwrap();
    producer.flush().unwrap();
    assert_eq!(other.hear(), "ready");
    while producer.try_send(b"hello") != Err(SendError::Full) {}
    for _ in 0..3 {
        producer.probe().unwrap();
        producer.poll().unwrap();
    }
    other.kill();
    let error = wait_for(|| {
        let _ = producer.probe();
        producer.poll().err()
    });
    assert_eq!(error, RingError::PeerLost);
}
