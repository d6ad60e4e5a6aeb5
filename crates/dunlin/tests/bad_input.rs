//! Bad input through the public door: each a clear error, and a good client beside it that notices nothing.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{eventually, pattern, ECHO};
use dunlin::{
    BootstrapError, CallError, ChannelConfig, Client, ConnectError, RunningServer, Secret,
    ServeError, Server,
};

fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

/// Host and port of a server, for sockets.
fn host_and_port(server: &RunningServer) -> String {
    let address = server.address().to_string();
    address.trim_start_matches("dunlin://").to_string()
}

/// Asserts that `words` has every one of `keys`.
fn says(words: &impl ToString, keys: &[&str]) {
    let words = words.to_string();
    for key in keys {
        assert!(words.contains(key), "'{key}' is missing in: {words}");
    }
}

/// Stops the good client also when an assertion fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `bad` while a good client calls all the time, and checks that each of its calls is answered.
fn beside_a_good_client(server: &RunningServer, client: &Client, bad: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) || calls < 100 {
                let payload = pattern([16, 300, 9000][calls as usize % 3], calls);
                assert!(*client.call(ECHO, &payload).unwrap() == *payload);
                calls += 1;
            }
        });
        let stopper = Stopper(&stop);
        bad();
        drop(stopper);
        good.join().unwrap();
    });
    assert_eq!(server.statistics().violations, 0);
}

fn echo(server: dunlin::ServerBuilder) -> RunningServer {
    server
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

#[test]
fn bad_calls() {
    let config = ChannelConfig {
        max_message_bytes: 50_000,
        ..Default::default()
    };
    let server = echo(
        Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .channel(config),
    );
    let address = server.address().to_string();
    let good = Client::connect(&address).unwrap();
    let bad = Client::connect(&address).unwrap();
    beside_a_good_client(&server, &good, || {
        for size in [0, 100, 40_000] {
            let error = bad.call(999, &pattern(size, 1)).unwrap_err();
            assert!(matches!(error, CallError::UnknownHandler(999)), "{error:?}");
            says(&error, &["no handler", "999"]);
            let future = bad.call_async(65_533, &pattern(size, 1));
            let error = futures_executor::block_on(future).unwrap_err();
            says(&error, &["no handler", "65533"]);
        }
        // The client learned the server's limit when it connected.
        let error = bad.call(ECHO, &[0; 50_001]).unwrap_err();
        says(&error, &["50001", "50000", "max_message_bytes"]);
        let error = bad.buffer(50_001).unwrap_err();
        says(&error, &["50001", "max_message_bytes"]);
        let future = bad.call_async(ECHO, &[0; 50_001]);
        let error = futures_executor::block_on(future).unwrap_err();
        says(&error, &["50001", "max_message_bytes"]);
        let mut pipeline = bad.pipeline().unwrap();
        let error = pipeline.submit(ECHO, &[0; 50_001], 1).unwrap_err();
        says(&error, &["50001", "max_message_bytes"]);
        assert_eq!(pipeline.outstanding(), 0);
        let answers = bad.batch().call(ECHO, &[0; 50_001]).call(ECHO, b"short");
        let answers = answers.send().unwrap();
        says(answers[0].as_ref().unwrap_err(), &["50001"]);
        assert_eq!(&**answers[1].as_ref().unwrap(), b"short");
        assert!(*bad.call(ECHO, &[7; 50_000]).unwrap() == [7; 50_000]);
    });
}

#[test]
fn bad_secrets() {
    let right = "correct horse battery staple";
    let builder = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = echo(builder.secret(secret(right)));
    let address = server.address().to_string();
    let good = Client::builder()
        .secret(secret(right))
        .connect(&address)
        .unwrap();
    beside_a_good_client(&server, &good, || {
        let wrong = Client::builder().secret(secret("incorrect horse battery"));
        let error = wrong.connect(&address).unwrap_err();
        assert!(
            matches!(
                error,
                ConnectError::Bootstrap(BootstrapError::WrongSecret { .. })
            ),
            "{error:?}"
        );
        says(&error, &["secret", "secret differs"]);
        assert!(!format!("{error:?}").contains("horse"), "{error:?}");
        let error = Client::connect(&address).unwrap_err();
        says(&error, &["requires a secret"]);
    });
    let open = echo(Server::bind("dunlin://127.0.0.1:0").unwrap());
    let insisting = Client::builder().secret(secret(right));
    let error = insisting.connect(&open.address().to_string()).unwrap_err();
    says(&error, &["secret", "server", "has no secret"]);
}

#[test]
fn strangers_at_the_port() {
    let server = echo(
        Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handshake_timeout(Duration::from_secs(2)),
    );
    let place = host_and_port(&server);
    let good = Client::connect(&server.address().to_string()).unwrap();
    beside_a_good_client(&server, &good, || {
        let silent = TcpStream::connect(&place).unwrap();
        for round in 0..50u64 {
            let mut stream = TcpStream::connect(&place).unwrap();
            let mut bytes = pattern(1 + round as usize * 100, round);
            if round % 3 == 0 {
                // A length that is believable, then noise.
                bytes[..1].fill(60);
                bytes.splice(1..1, [0, 0, 0]);
            }
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 2000, "{} bytes for noise", answer.len());
        }
        // One that connects and says nothing is shown the door, and others come in meanwhile.
        let beside = Client::connect(&server.address().to_string()).unwrap();
        assert_eq!(&*beside.call(ECHO, b"in").unwrap(), b"in");
        let patience = Some(Duration::from_secs(20));
        silent.set_read_timeout(patience).unwrap();
        let mut rest = Vec::new();
        let closed = (&silent).read_to_end(&mut rest);
        assert!(
            !matches!(&closed, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "a silent client is kept: {closed:?}"
        );
    });
    let counts = server.handshakes();
    println!("{counts:?}");
    // The good client with a lane for each of its threads, and the one beside it.
    assert_eq!(server.statistics().accepted, 3);
}

#[test]
fn servers_that_are_none() {
    let meet = |answer: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("dunlin://{}", listener.local_addr().unwrap());
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(answer);
        });
        let client = Client::builder().connect_timeout(Duration::from_secs(20));
        let error = client.connect(&address).unwrap_err();
        other.join().unwrap();
        error
    };
    says(
        &meet(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        &["not a Dunlin server"],
    );
    says(
        &meet(b"\x0a\0\0\0\x89DUNLIN\0\x09\x01"),
        &["version 7 ", "version 265", "same release"],
    );
    says(&meet(b""), &["closed the connection"]);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("dunlin://{}", silent.local_addr().unwrap());
    let client = Client::builder().connect_timeout(Duration::from_millis(200));
    says(
        &client.connect(&address).unwrap_err(),
        &["no response", "200ms"],
    );
    drop(silent);
    let error = Client::connect(&address).unwrap_err();
    says(&error, &["no server listens", "check host and port"]);
}

#[test]
fn settings_that_cannot_be() {
    let server = echo(Server::bind("dunlin://127.0.0.1:0").unwrap());
    let address = server.address().to_string();
    let good = Client::connect(&address).unwrap();
    beside_a_good_client(&server, &good, || {
        let error = Server::bind(&address).unwrap().serve().unwrap_err();
        assert!(
            matches!(
                error,
                ServeError::Bootstrap(BootstrapError::AddressInUse { .. })
            ),
            "{error:?}"
        );
        says(&error, &["in use"]);
        let asked = Client::builder().device("mlx5_7").connect(&address);
        let error = asked.unwrap_err();
        assert!(matches!(error, ConnectError::NoDevice { .. }), "{error:?}");
        says(&error, &["mlx5_7", "on this host", "shm"]);
        let builder = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let error = builder.device("mlx5_7").serve().unwrap_err();
        says(&error, &["mlx5_7", "on this host", "shm"]);
        for wrong in ["", "dunlin://", "http://127.0.0.1:1", "dunlin://a:b:c"] {
            assert!(Client::connect(wrong).is_err(), "{wrong}");
            assert!(Server::bind(wrong).is_err(), "{wrong}");
        }
        let tiny = ChannelConfig {
            ring_bytes: 64,
            ..Default::default()
        };
        let error = Client::builder().channel(tiny.clone()).connect(&address);
        says(&error.unwrap_err(), &["ring_bytes", "64"]);
        let error = Server::bind("dunlin://127.0.0.1:0").unwrap().channel(tiny);
        says(&error.serve().unwrap_err(), &["ring_bytes", "64"]);
        let error = Server::bind("dunlin://127.0.0.1:0").unwrap().pollers(0);
        says(&error.serve().unwrap_err(), &["pollers", "0"]);
        let twice = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let twice = twice.handle(5, |_, _| Ok(())).handle(5, |_, _| Ok(()));
        says(&twice.serve().unwrap_err(), &["handler 5", "twice"]);
    });
}

#[test]
fn more_connections_than_allowed() {
    let server = echo(
        Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .max_connections(3),
    );
    let address = server.address().to_string();
    let good = Client::connect(&address).unwrap();
    beside_a_good_client(&server, &good, || {
        eventually("the good client has its lanes", || {
            server.connections() == 2
        });
        let second = Client::connect(&address).unwrap();
        let error = Client::connect(&address).unwrap_err();
        says(&error, &["max_connections", "3"]);
        assert_eq!(&*second.call(ECHO, b"second").unwrap(), b"second");
        drop(second);
    });
    eventually("there is room again", || Client::connect(&address).is_ok());
}
