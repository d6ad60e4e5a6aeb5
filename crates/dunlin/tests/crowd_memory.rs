//! What a connection costs the server in memory, and whether it comes back after waves of connections.
//!
//! `DUNLIN_CROWD` sets the clients of a wave (400), `DUNLIN_WAVES` the waves (4).

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use common::{eventually, number, resident_kib, serve_echo, status, ECHO};
use dunlin::{Client, Pipeline, Preset};
use process::{listen, role, say, Other};

/// What this process has now.
#[derive(Clone, Copy, Debug)]
struct Belongings {
    resident_kib: usize,
    files: usize,
    threads: usize,
}

impl Belongings {
    fn now() -> Self {
        Self {
            resident_kib: resident_kib(),
            files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: status("Threads:"),
        }
    }
}

/// The other process: as many connections as it is told, each of which has made a call; then none.
fn crowd(address: &str) {
    while let Some(count) = listen() {
        let client = Client::builder()
            .preset(Preset::Plain)
            .connect(address)
            .unwrap();
        let lanes: Vec<Pipeline> = (0..count.parse().unwrap())
            .map(|_| {
                let mut lane = client.pipeline().unwrap();
                assert!(lane.submit(ECHO, b"hello", 1).unwrap());
                lane.wait(|_, answer| assert_eq!(answer.unwrap(), b"hello"))
                    .unwrap();
                lane
            })
            .collect();
        say("connected");
        listen();
        drop((lanes, client));
        say("gone");
    }
}

#[test]
fn a_plain_connection_is_small_and_gives_its_memory_back() {
    if let Some((_, address)) = role() {
        return crowd(&address);
    }
    let count = number("DUNLIN_CROWD", 400);
    let server = serve_echo();
    let name = "a_plain_connection_is_small_and_gives_its_memory_back";
    let mut other = Other::start(name, "crowd", &server.address().to_string());
    let mut wave = |count: usize| {
        let before = Belongings::now();
        other.say(&count.to_string());
        assert_eq!(other.hear(), "connected");
        let within = Belongings::now();
        other.say("end");
        assert_eq!(other.hear(), "gone");
        eventually("the connections are gone", || server.connections() == 0);
        (before, within)
    };
    // What the first connection brings for all others.
    wave(1);
    let start = Belongings::now();
    for number in 0..number("DUNLIN_WAVES", 4) {
        let (before, within) = wave(count);
        let each = (within.resident_kib - before.resident_kib) as f64 / count as f64;
        assert!(each <= 160.0, "{each:.1} KiB for each connection");
        eventually("descriptors and threads are given back", || {
            let now = Belongings::now();
            now.files <= start.files + 4 && now.threads <= start.threads
        });
        // What was in use comes back, but for a sixteenth and what a process has lying about; so one wave leaves no
        // more than another.
        let most = start.resident_kib + (within.resident_kib - before.resident_kib) / 16 + 4096;
        eventually("memory is given back", || {
            Belongings::now().resident_kib <= most
        });
        let after = Belongings::now();
        println!("wave {number} of {count}: {each:.1} KiB each; before {before:?}, within {within:?}, after {after:?}");
    }
}
