//! What a grant lets a client do: a hostile one, which is a process of its own that looks at all memory that it has
//! mapped.

mod common;
mod hostile;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::time::{Duration, Instant};

use common::{pattern, serve_echo, ECHO};
use dunlin::{Client, Preset};
use process::{role, say, Other};

/// Payloads: of a packet or a block, and one that the server fetches.
const LENGTHS: [usize; 3] = [64, 1500, 100_000];
/// Seeds of what the two clients send.
const VICTIM: u64 = 0x5ec2e7;
const SPY: u64 = 0x59b;

fn connect(address: &str, preset: Preset) -> Client {
    let builder = Client::builder().preset(preset);
    builder
        .deadline(Duration::from_secs(20))
        .connect(address)
        .unwrap()
}

fn call(client: &Client, seed: u64) {
    for length in LENGTHS {
        let payload = pattern(length, seed);
        assert!(*client.call(ECHO, &payload).unwrap() == *payload);
    }
}

#[test]
fn the_other_process() {
    let Some((role, argument)) = role() else {
        return;
    };
    if role == "spy" {
        spy(&argument);
    }
}

/// An honest client but for its curiosity.
fn spy(argument: &str) {
    let (address, preset) = argument.split_once(' ').unwrap();
    let client = connect(address, preset.parse().unwrap());
    let (secret, own) = (pattern(32, VICTIM), pattern(32, SPY));
    say("connected");
    let mut saw_own = false;
    let mut saw_secret = false;
    let mut line = process::listen();
    while let Some(word) = line.take() {
        match word.as_str() {
            "look" => {
                call(&client, SPY);
                saw_own |= hostile::can_read(&own);
                saw_secret |= hostile::can_read(&secret);
                say("looked");
            }
            _ => say(&format!("{saw_own} {saw_secret}")),
        }
        line = process::listen();
    }
}

#[test]
fn no_client_reads_the_requests_of_another() {
    let mut read = Vec::new();
    for &preset in Preset::ALL {
        let server = serve_echo();
        let address = server.address().to_string();
        let argument = format!("{address} {preset}");
        let mut spy = Other::start("the_other_process", "spy", &argument);
        assert_eq!(spy.hear(), "connected");
        let victim = connect(&address, preset);
        let looks = Instant::now();
        let mut rounds = 0;
        while rounds < 5 || looks.elapsed() < Duration::from_millis(200) {
            call(&victim, VICTIM);
            spy.say("look");
            // Requests are out while it looks.
            call(&victim, VICTIM);
            assert_eq!(spy.hear(), "looked");
            rounds += 1;
        }
        spy.say("report");
        let report = spy.hear();
        let (own, secret) = report.split_once(' ').unwrap();
        assert_eq!(own, "true", "{preset}: it looks in the wrong places");
        if secret == "true" {
            read.push(preset);
        }
    }
    assert!(
        read.is_empty(),
        "a client reads the requests of others with {read:?}"
    );
}
