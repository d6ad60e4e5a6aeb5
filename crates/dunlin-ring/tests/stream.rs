//! The byte stream: what TCP streams do, it does.

mod common;

use std::io::ErrorKind;
use std::pin::Pin;
use std::time::Duration;

use dunlin_ring::{stream_config, Design, RingConfig, Stream, UnconnectedStream};
use dunlin_shm::ShmDevice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn pair_of(config: &RingConfig) -> (Stream<ShmDevice>, Stream<ShmDevice>) {
    let one = UnconnectedStream::new(&common::device(), config).unwrap();
    let other = UnconnectedStream::new(&common::device(), config).unwrap();
    let (first, second) = (one.offer(), other.offer());
    (
        one.connect(&second).unwrap(),
        other.connect(&first).unwrap(),
    )
}

fn pair() -> (Stream<ShmDevice>, Stream<ShmDevice>) {
    pair_of(&stream_config())
}

/// Bytes that follow from a number.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.u8(..)).collect()
}

#[tokio::test]
async fn bytes_arrive_in_order_both_ways_at_once() {
    const LENGTH: usize = 3_000_000;
    for batched in [false, true] {
        let mut config = stream_config();
        if batched {
            config.design = Design::RB2;
        }
        let (one, other) = pair_of(&config);
        let run = |stream: Stream<ShmDevice>, ours: u64, theirs: u64| async move {
            let (mut read, mut write) = tokio::io::split(stream);
            let writing = async move {
                let (data, mut at) = (bytes(LENGTH, ours), 0);
                let mut random = fastrand::Rng::with_seed(ours);
                while at < LENGTH {
                    let end = (at + random.usize(1..50_000)).min(LENGTH);
                    write.write_all(&data[at..end]).await.unwrap();
                    at = end;
                }
                write.shutdown().await.unwrap();
            };
            let reading = async move {
                let mut found = Vec::new();
                read.read_to_end(&mut found).await.unwrap();
                assert!(found == bytes(LENGTH, theirs));
            };
            tokio::join!(writing, reading);
        };
        tokio::join!(run(one, 1, 2), run(other, 2, 1));
    }
}

#[tokio::test]
async fn one_direction_closes_while_the_other_goes_on() {
    let (mut one, mut other) = pair();
    one.write_all(b"last words").await.unwrap();
    one.shutdown().await.unwrap();
    let mut found = Vec::new();
    other.read_to_end(&mut found).await.unwrap();
    assert_eq!(found, b"last words");
    let error = one.write_all(b"more").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    other.write_all(b"an answer").await.unwrap();
    let mut answer = [0; 9];
    one.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"an answer");
}

#[tokio::test]
async fn a_writer_waits_for_its_reader_and_goes_on() {
    let (mut one, mut other) = pair();
    let mut written = 0;
    let chunk = [7; 4096];
    // Until the ring is full and stays so.
    while let Ok(count) = tokio::time::timeout(Duration::from_millis(200), one.write(&chunk)).await
    {
        written += count.unwrap();
        assert!(written < 1 << 20, "backpressure");
    }
    assert!(written > 0);
    let mut found = vec![0; written];
    other.read_exact(&mut found).await.unwrap();
    assert!(found.iter().all(|&byte| byte == 7));
    one.write_all(&chunk).await.unwrap();
    let mut more = [0; 4096];
    other.read_exact(&mut more).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_dropped_has_ended_and_takes_no_more() {
    let (mut one, mut other) = pair();
    one.write_all(b"bye").await.unwrap();
    drop(one);
    let mut found = Vec::new();
    other.read_to_end(&mut found).await.unwrap();
    assert_eq!(found, b"bye");
    let error = loop {
        if let Err(error) = other.write_all(&[0; 1000]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_peer_that_has_read_everything_and_left_needs_no_end() {
    let (mut one, mut other) = pair();
    one.write_all(b"all there is").await.unwrap();
    let mut found = [0; 12];
    other.read_exact(&mut found).await.unwrap();
    drop(other);
    assert_eq!(one.read(&mut found).await.unwrap(), 0);
    one.shutdown().await.unwrap();
    one.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_waits_long_is_woken() {
    let (mut one, mut other) = pair();
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.write_all(b"at last").await.unwrap();
    };
    let mut found = [0; 7];
    let (read, ()) = tokio::join!(one.read_exact(&mut found), later);
    read.unwrap();
    assert_eq!(&found, b"at last");
}

#[test]
fn it_has_the_traits_of_futures_too() {
    use futures_util::io::{AsyncReadExt, AsyncWriteExt};
    let (mut one, mut other) = pair();
    futures_executor::block_on(async {
        AsyncWriteExt::write_all(&mut one, b"futures")
            .await
            .unwrap();
        AsyncWriteExt::close(&mut one).await.unwrap();
        let mut found = Vec::new();
        let mut other = Pin::new(&mut other);
        AsyncReadExt::read_to_end(&mut other, &mut found)
            .await
            .unwrap();
        assert_eq!(found, b"futures");
    });
}

#[test]
fn rings_that_a_stream_cannot_stand_on_are_refused() {
    for config in [
        RingConfig::for_records(Design::RB2, 64),
        RingConfig::for_messages(Design::FARM, 64),
    ] {
        assert!(UnconnectedStream::new(&common::device(), &config).is_err());
    }
}
