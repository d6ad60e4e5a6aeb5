//! Servers that change turns together (ScaleRPC §4.2), on shared memory: one follows the other, clients keep their group, and what is not a time
//! server is said to be none. What it is worth is shown in virtual time: `cargo test -p dunlin-sim --test pace`.

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
    // More than a group's zones: each has its turn all the same.
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
