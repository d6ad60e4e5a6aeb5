//! Clients of tasks that stay on one thread: what travels, and what happens where there is no place or no time.

use std::future::Future;
use std::time::Duration;

use crate::common::probe_client::{ProbeClient, ProbeLocalClient};
use crate::common::probe_server::ProbeServer;
use crate::common::{Note, PATIENCE};
use crate::unary::{start, with_user, Prober};
use dunlin::{ChannelConfig, Client, LocalDriver, Preset};
use dunlin_service::{Channel, Code, Request, Server, Status};
use tokio::task::LocalSet;

const HOUR: u64 = 3_600_000;

/// A tokio runtime of one thread.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, future)
}

fn local(channel: &Channel) -> (ProbeLocalClient, LocalDriver) {
    let (local, driver) = channel.local().unwrap();
    (ProbeLocalClient::new(local), driver)
}

fn numbered(number: u64) -> Note {
    Note {
        number,
        ..Note::default()
    }
}

#[test]
fn everything_travels_over_every_preset() {
    let (_server, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    for &preset in Preset::ALL {
        let client = Client::builder().preset(preset).deadline(PATIENCE);
        let channel = Channel::from_client_blocking(client.connect(&address).unwrap()).unwrap();
        let (client, driver) = local(&channel);
        run(async move {
            let driver = tokio::task::spawn_local(driver);
            for length in [0, 100, 100_000] {
                let note = Note {
                    words: "kiek".into(),
                    number: u64::MAX,
                    payload: vec![7; length],
                };
                let answer = client.echo(with_user(note.clone())).await.unwrap();
                assert_eq!(
                    answer.metadata().get("x-greeted"),
                    Some("ada"),
                    "{preset} {length}"
                );
                assert_eq!(answer.into_inner(), note, "{preset} {length}");
            }
            let refused = Note {
                number: 5,
                ..Note::new("no")
            };
            let status = client.fail(refused).await.unwrap_err();
            assert_eq!(
                (status.code(), status.message()),
                (Code::NotFound, "no"),
                "{preset}"
            );
            assert_eq!(status.metadata().get("x-why"), Some("asked for"));
            // It ends with the last of its clients.
            drop(client);
            driver.await.unwrap().unwrap();
        });
    }
}

#[test]
fn more_calls_than_places_wait_for_one() {
    let (_server, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    let channel = Channel::connect_blocking(&address).unwrap();
    let (client, driver) = local(&channel);
    run(async move {
        tokio::task::spawn_local(driver);
        let tasks: Vec<_> = (0..3000)
            .map(|number| {
                let client = client.clone();
                tokio::task::spawn_local(async move { client.echo(numbered(number)).await })
            })
            .collect();
        for (number, task) in (0..).zip(tasks) {
            assert_eq!(task.await.unwrap().unwrap().get_ref().number, number);
        }
    });
}

/// Calls that may take long have all places: who has less time waits no longer than that for one.
#[test]
fn a_call_without_a_place_ends_in_its_time() {
    const PLACES: usize = 4;
    // Handlers that sleep need one.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let (_server, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    drop(entered);
    let places = ChannelConfig {
        max_outstanding: PLACES,
        ..ChannelConfig::default()
    };
    let client = Client::builder().channel(places).deadline(60 * PATIENCE);
    let channel = Channel::from_client_blocking(client.connect(&address).unwrap()).unwrap();
    let hurried = || {
        let mut request = Request::new(Note::new("hello"));
        request.set_timeout(Duration::from_millis(20));
        request
    };
    let is_over = |status: Status| assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let shared = ProbeClient::new(channel.clone());
    let (client, driver) = local(&channel);
    run(async move {
        tokio::task::spawn_local(driver);
        let long: Vec<_> = (0..PLACES)
            .map(|_| {
                let (client, shared) = (client.clone(), shared.clone());
                tokio::task::spawn_local(async move {
                    tokio::join!(client.sleep(numbered(HOUR)), shared.sleep(numbered(HOUR)))
                })
            })
            .collect();
        // They are out before the others are made.
        tokio::task::yield_now().await;
        let ended = tokio::time::timeout(PATIENCE, async {
            is_over(client.echo(hurried()).await.unwrap_err());
            is_over(shared.echo(hurried()).await.unwrap_err());
        });
        ended.await.expect("in time");
        for call in long {
            call.abort();
        }
        // Calls that were given up hold no place.
        assert_eq!(
            client
                .echo(Note::new("hello"))
                .await
                .unwrap()
                .get_ref()
                .words,
            "hello"
        );
        assert_eq!(
            shared
                .echo(Note::new("hello"))
                .await
                .unwrap()
                .get_ref()
                .words,
            "hello"
        );
    });
}
