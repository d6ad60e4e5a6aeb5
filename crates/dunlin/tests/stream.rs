//! Streams and rings by address: between processes, and what goes wrong on the way.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dunlin::ring::{Design, Received, RingBuilder, RingConfig, RingError, SendError};
use dunlin::{BootstrapError, Client, MeetError, Secret, Server, Stream};
use dunlin_shm::{ShmConfig, ShmDevice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ANYWHERE: &str = "dunlin://127.0.0.1:0";
/// A hang is a failure.
const LONGEST: Duration = Duration::from_secs(60);

fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.parent().unwrap().parent().unwrap().join("examples");
    Command::new(folder.join(name))
}

/// A process that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_to_end(mut command: Command) -> String {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LONGEST {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let (words, errors) = (output.stdout, output.stderr);
    let words = String::from_utf8_lossy(&words).into_owned();
    let errors = String::from_utf8_lossy(&errors);
    assert!(output.status.success(), "{command:?}: {words}{errors}");
    words
}

#[test]
fn grpc_by_tonic_between_two_processes_on_every_device() {
    let mut server = example("tonic");
    server
        .args(["serve", ANYWHERE, "127.0.0.1:0"])
        .stdout(Stdio::piped());
    let mut server = Served(server.spawn().expect("`cargo test` builds the examples"));
    let mut line = String::new();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let [.., rings, tcp] = words[..] else {
        panic!("{line}");
    };
    for device in ["shm", "roce"] {
        let mut client = example("tonic");
        client.args(["call", rings, tcp, "640", device]);
        let said = run_to_end(client);
        assert_eq!(said.matches(&format!("{device}: ")).count(), 2, "{said}");
        assert_eq!(said.matches("tcp: ").count(), 2, "{said}");
    }
}

#[test]
fn http_between_two_processes_that_know_an_address() {
    let mut server = example("http");
    server.args(["serve", ANYWHERE]).stdout(Stdio::piped());
    let mut server = Served(server.spawn().expect("`cargo test` builds the examples"));
    let mut line = String::new();
    let output = server.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();
    // One client after the other, and each ends its connection.
    for _ in 0..3 {
        let mut client = example("http");
        client.args(["get", address, "1000"]);
        let words = run_to_end(client);
        assert!(words.contains("1000 GETs without an error"), "{words}");
    }
}

#[tokio::test]
async fn bytes_go_both_ways_until_both_sides_end() {
    let listener = Stream::bind(ANYWHERE).unwrap();
    let address = listener.address().to_string();
    let client = std::thread::spawn(move || Stream::connect(&address).unwrap());
    let mut server = listener.accept_async().await.unwrap();
    let mut client = client.join().unwrap();
    assert_eq!((client.device(), server.device()), ("shm", "shm"));
    assert!(client.why().contains("same host"));
    let sent: Vec<u8> = (0..1_000_000u32).map(|at| (at * 7) as u8).collect();
    let echo = async {
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        server.write_all(&heard).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let ask = async {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let ((), heard) = tokio::join!(echo, ask);
    assert!(heard == sent);
}

#[test]
fn a_listener_wants_its_secret_and_its_own_kind_of_client() {
    let secret = |text: &str| Secret::new(text).unwrap();
    let right = "a secret that is long enough";
    let builder = Stream::builder().secret(secret(right));
    let listener = builder.clone().bind(ANYWHERE).unwrap();
    let address = listener.address().to_string();
    assert!(matches!(
        Stream::connect(&address).unwrap_err(),
        MeetError::Bootstrap(BootstrapError::SecretRequired { .. })
    ));
    let wrong = Stream::builder().secret(secret("another one, as long as the first"));
    assert!(matches!(
        wrong.connect(&address).unwrap_err(),
        MeetError::Bootstrap(BootstrapError::WrongSecret { .. })
    ));
    builder.connect(&address).unwrap();
    listener.accept().unwrap();

    // A client of the RPC is told what this is, and a stream what a server is.
    let listener = Stream::bind(ANYWHERE).unwrap();
    let error = Client::connect(&listener.address().to_string()).unwrap_err();
    assert!(error.to_string().contains("stream"), "{error}");
    let server = Server::bind(ANYWHERE).unwrap().serve().unwrap();
    let error = Stream::connect(&server.address().to_string()).unwrap_err();
    assert!(matches!(error, MeetError::OtherService { .. }), "{error:?}");
    assert!(
        error.to_string().contains("has no stream, it speaks: "),
        "{error}"
    );
    let error = Stream::builder()
        .device("none")
        .connect(ANYWHERE)
        .unwrap_err();
    assert!(matches!(error, MeetError::Device(_)), "{error}");
}

#[test]
fn rings_meet_by_address_and_disagree_with_words() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let rings = RingBuilder::new(&device, RingConfig::for_records(Design::RB2, 64));
    let consumers = rings.bind_consumers(ANYWHERE).unwrap();
    let address = consumers.address().to_string();
    let mut producer = rings.connect_producer(&address).unwrap();
    let mut consumer = consumers.accept().unwrap();
    for number in 0..2000u64 {
        loop {
            match producer.try_send(&[number as u8; 64]) {
                Ok(()) => break,
                Err(SendError::Full) => {
                    let read = |message: dunlin::ring::Message<'_>| message.u64_at(0);
                    while let Received::Message(_) = consumer.receive(read).unwrap() {}
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    let other = RingBuilder::new(&device, RingConfig::for_records(Design::RB2, 128));
    let error = other.connect_producer(&address).unwrap_err();
    assert!(error.to_string().contains("size of a slot"), "{error}");
    let error = rings.connect_consumer(&address).unwrap_err();
    assert!(error.to_string().contains("which end"), "{error}");

    // The other way round: who listens writes.
    let producers = rings.bind_producers(ANYWHERE).unwrap();
    let address = producers.address().to_string();
    let mut consumer = rings.connect_consumer(&address).unwrap();
    let mut producer = producers.accept().unwrap();
    producer.try_send(&[7; 64]).unwrap();
    producer.flush().unwrap();
    let start = Instant::now();
    while consumer.receive(|_| ()).unwrap() != Received::Message(()) {
        assert!(start.elapsed() < LONGEST);
    }
    drop(producer);
    let error = loop {
        match consumer.receive(|_| ()) {
            Ok(_) => assert!(start.elapsed() < LONGEST),
            Err(error) => break error,
        }
    };
    assert_eq!(error, RingError::PeerLost);
}
