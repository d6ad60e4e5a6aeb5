//! Servers that change turns in step (ScaleRPC §4.2), on shared memory: one follows the other, clients keep their
//! group, and a server that is not a time server is an error. The benefit is shown in virtual time: `cargo test -p
//! dunlin-sim --test rpc pace`.

use std::time::{Duration, Instant};

use dunlin_rpc::{
    CallError, Client, ConnectError, Grouping, Pace, Peers, Preset, RunningServer, ServeError,
    Server, ServerBuilder,
};

const ECHO: u16 = 2;

fn pace() -> Pace {
    Pace::new(3, Duration::from_micros(200))
}

fn server() -> ServerBuilder {
    Server::unbound()
        .device("shm")
        .grouping(Grouping {
            clients: 2,
            ..Grouping::default()
        })
        .handle(ECHO, |request, reply| reply.write(request.payload()))
}

fn serve(builder: ServerBuilder) -> RunningServer {
    builder.serve_at("dunlin://127.0.0.1:0").unwrap()
}

fn connect(server: &RunningServer) -> Client {
    let client = Client::builder().preset(Preset::ScaleRpc).device("shm");
    client.connect(&server.address().to_string()).unwrap()
}

#[test]
fn clients_of_two_servers_are_served_in_the_same_slots() {
    let first = serve(server().pace(&pace()));
    let followed = pace();
    let follower = server().pace(&followed);
    let second = serve(follower.follow(&first.address().to_string()));
    let patience = Instant::now() + Duration::from_secs(60);
    while followed.synchronizations() < 3 {
        assert!(Instant::now() < patience, "it learns no time");
        std::thread::sleep(Duration::from_millis(5));
    }
    let servers = [&first, &second];
    // More than a group's zones: each still gets its turn.
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let clients = servers.map(connect);
                let mut peers = Peers::new(&clients).unwrap();
                for number in 0..30u64 {
                    for peer in 0..2 {
                        let payload = (thread << 32 | number << 1 | peer).to_le_bytes();
                        assert!(peers.submit(peer as usize, ECHO, &payload, peer).unwrap());
                    }
                    let mut missing = 2;
                    while missing > 0 {
                        peers
                            .wait(|peer, tag, answer| {
                                let right = thread << 32 | number << 1 | peer as u64;
                                assert_eq!(answer.unwrap(), right.to_le_bytes());
                                assert_eq!(tag, peer as u64);
                                missing -= 1;
                            })
                            .unwrap();
                    }
                }
            });
        }
    });
    for server in servers {
        assert!(server.statistics().requests >= 8 * 30);
    }
    // Its turns go on without the time server, and it ends without waiting for it.
    let left = connect(&second);
    assert!(first.shutdown());
    for number in 0..100u32 {
        assert_eq!(
            *left.call(ECHO, &number.to_le_bytes()).unwrap(),
            number.to_le_bytes()
        );
    }
    drop(left);
    assert!(second.shutdown());
}

#[test]
fn a_server_that_tells_no_time_or_another_is_not_followed() {
    let plain = |server: &RunningServer| {
        let client = Client::builder().preset(Preset::Plain).device("shm");
        client.connect(&server.address().to_string()).unwrap()
    };
    let without = serve(server());
    let refused = pace().synchronize(&plain(&without));
    assert!(
        matches!(refused, Err(CallError::UnknownHandler(_))),
        "{refused:?}"
    );
    let other = serve(server().pace(&Pace::new(5, Duration::from_micros(200))));
    let pace = pace();
    match pace.synchronize(&plain(&other)) {
        Err(CallError::Unreadable(why)) => assert!(why.contains("5 groups"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(pace.synchronizations(), 0);
    let right = serve(server().pace(&pace));
    let own = self::pace();
    own.synchronize(&plain(&right)).unwrap();
    assert_eq!(own.synchronizations(), 1);
}

#[test]
fn settings_that_cannot_be_are_refused_with_words() {
    let refused = |builder: ServerBuilder| match builder.serve_at("dunlin://127.0.0.1:0") {
        Err(ServeError::Setting(why)) => why,
        other => panic!("{other:?}"),
    };
    let why = refused(server().follow("dunlin://127.0.0.1:1"));
    assert!(why.contains("pace"), "{why}");
    let why = refused(server().pace(&Pace::new(0, Duration::from_micros(100))));
    assert!(why.contains("0 groups"), "{why}");
    let why = refused(server().pace(&Pace::new(2, Duration::ZERO)));
    assert!(why.contains("slice"), "{why}");
    assert!(server()
        .pace(&pace())
        .follow("http://127.0.0.1:1")
        .serve_at("dunlin://127.0.0.1:0")
        .is_err());

    let three = serve(server().pace(&pace()));
    let client = Client::builder().preset(Preset::ScaleRpc).device("shm");
    match client.group(3).connect(&three.address().to_string()) {
        Err(error @ ConnectError::Bootstrap(_)) => {
            assert!(error.to_string().contains("no such group"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // Servers without a pace have no rotation, so any group will do.
    let alone = serve(server());
    let client = Client::builder().preset(Preset::ScaleRpc).device("shm");
    let client = client
        .group(3)
        .connect(&alone.address().to_string())
        .unwrap();
    assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
}

/// Zones are for one and a half groups: a client that finds none gets a later slot, also if all slots are of one group.
#[test]
fn more_clients_than_zones_all_have_their_turns() {
    for groups in [1, 2] {
        let server = serve(
            server()
                .grouping(Grouping {
                    clients: 1,
                    ..Grouping::default()
                })
                .pace(&Pace::new(groups, Duration::from_micros(100))),
        );
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let server = &server;
                scope.spawn(move || {
                    // All stay until the last has been answered, so no zone becomes free by the end of a client.
                    let client = connect(server);
                    for number in 0..40u64 {
                        let payload = (thread << 32 | number).to_le_bytes();
                        assert_eq!(*client.call(ECHO, &payload).unwrap(), payload);
                    }
                    while server.statistics().requests < 6 * 40 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
        });
    }
}

/// A client that waits for a distant slot is served in it, by a poller that has slept.
#[test]
fn a_slot_that_is_far_away_is_slept_for() {
    let server = serve(server().pace(&Pace::new(4, Duration::from_millis(20))));
    let clients: Vec<_> = (0..4)
        .map(|group| {
            let client = Client::builder().preset(Preset::ScaleRpc).device("shm");
            let client = client.group(group).connect(&server.address().to_string());
            client.unwrap()
        })
        .collect();
    for number in 0..10u32 {
        for client in &clients {
            let payload = number.to_le_bytes();
            assert_eq!(*client.call(ECHO, &payload).unwrap(), payload);
        }
    }
}

#[test]
fn questions_that_would_wait_for_turns_are_refused() {
    let server = serve(server().pace(&pace()));
    match pace().synchronize(&connect(&server)) {
        Err(CallError::Unreadable(why)) => assert!(why.contains("scalerpc"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// Servers with fewer groups than the one that assigned the group still take the client.
#[test]
fn a_thread_may_call_servers_of_different_rotations() {
    let servers =
        [5, 2].map(|groups| serve(server().pace(&Pace::new(groups, Duration::from_micros(100)))));
    let clients = [&servers[0], &servers[1]].map(connect);
    // One of each group of the first.
    let mut all: Vec<_> = (0..5).map(|_| Peers::new(&clients).unwrap()).collect();
    for peers in &mut all {
        for peer in 0..2 {
            assert!(peers.submit(peer, ECHO, b"x", 0).unwrap());
        }
        let mut answers = 0;
        while answers < 2 {
            peers
                .wait(|_, _, answer| {
                    assert_eq!(answer.unwrap(), b"x");
                    answers += 1;
                })
                .unwrap();
        }
    }
}
