//! Many clients that connect at once, with default settings except timeouts: a thousand threads of a process, a hundred
//! processes, a thousand handshakes; and one that comes, leaves and comes again. All of them connect and are answered.
//! The servers and the hundred processes are this program again.

#[path = "common/again.rs"]
mod again;

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use dunlin_bootstrap::{dial, Capability, DialConfig, HostId, Reach};
use dunlin_rpc::{Client, Preset, Server};

use again::Again;

const ECHO: u16 = 1;
/// A thousand of them take some seconds on two processors, which others may need, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The role of a process: to serve, or to call the server at an address.
const ROLE: &str = "DUNLIN_CROWD_ROLE";

/// Raises the process's limit of file descriptors to the maximum; returns it.
fn descriptors() -> usize {
    use rustix::process::{getrlimit, setrlimit, Resource};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let limit = getrlimit(Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// What the other processes do; nothing in the test program itself.
#[test]
fn another_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    descriptors();
    if role != "serve" {
        return call(&Client::connect(&role).unwrap(), b"from afar");
    }
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    println!("\nserving at {}", server.address());
    // Until the test has ended, in whatever way.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A server in a process of its own, which ends with the test, and its address.
fn serving() -> (Again, String) {
    const SAYS: &str = "serving at ";
    let mut server = Again::new(&[(ROLE, "serve")]);
    let line = server.says(SAYS);
    let address = line.strip_prefix(SAYS).unwrap().to_owned();
    (server, address)
}

fn call(client: &Client, words: &[u8]) {
    assert_eq!(&*client.call(ECHO, words).unwrap(), words);
}

/// Runs this many threads at once, each with what `connect` makes for it; none leaves before all have been answered.
fn threads(count: usize, run: impl Fn(usize, &Barrier) -> Result<(), String> + Sync) {
    let together = Barrier::new(count);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let spawn = |index| {
            let (run, together) = (&run, &together);
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || run(index, together))
                .unwrap()
        };
        let all: Vec<_> = (0..count).map(spawn).collect();
        all.into_iter()
            .filter_map(|one| one.join().unwrap().err())
            .collect()
    });
    assert!(
        failed.is_empty(),
        "{} of {count} failed, the first: {}",
        failed.len(),
        failed[0]
    );
}

fn thousand_threads(preset: Preset, share: bool) {
    // A separate connection needs about three of them.
    let count = (descriptors() / 4).min(1000);
    let (_server, address) = serving();
    let patient = || {
        Client::builder()
            .connect_timeout(PATIENCE)
            .deadline(PATIENCE)
    };
    let connect = || patient().preset(preset).connect(&address);
    let common = share.then(|| connect().unwrap());
    threads(count, |index, together| {
        together.wait();
        let words = index.to_le_bytes();
        let ended = (|| {
            let own = match &common {
                Some(client) => client.clone(),
                None => connect().map_err(|error| error.to_string())?,
            };
            let answer = own.call(ECHO, &words).map_err(|error| error.to_string())?;
            let wrong = || format!("another answer: {:?}", &*answer);
            let right = *answer == words;
            Ok((own, right.then_some(()).ok_or_else(wrong)?))
        })();
        together.wait();
        ended.map(drop)
    });
}

#[test]
fn a_thousand_threads_of_one_client() {
    thousand_threads(Preset::Auto, true);
}

#[test]
fn a_thousand_threads_of_one_client_with_lanes_of_their_own() {
    thousand_threads(Preset::Plain, true);
}

#[test]
fn a_thousand_clients() {
    thousand_threads(Preset::Plain, false);
}

#[test]
fn a_thousand_handshakes() {
    let (_server, address) = serving();
    let address = address.parse().unwrap();
    let config = DialConfig {
        capabilities: vec![Capability {
            device: "shm".to_owned(),
            reach: Reach::SameHost(HostId::of_this_process().unwrap()),
        }],
        timeout: PATIENCE,
        ..DialConfig::default()
    };
    let count = (descriptors() / 4).min(1000);
    threads(count, |_, together| {
        together.wait();
        let dialed = dial(&address, &config).map_err(|error| error.to_string());
        together.wait();
        dialed.map(drop)
    });
}

/// Datagram sessions share a receive queue: what sessions that have left had posted there leaves room for others.
#[test]
fn a_crowd_that_leaves_and_comes_again() {
    const CROWD: usize = 200;
    descriptors();
    let server = Server::unbound()
        .device("shm")
        .pollers(1)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve_at("dunlin://127.0.0.1:0")
        .unwrap();
    let address = server.address().to_string();
    let connect = || {
        let client = Client::builder().preset(Preset::Fasst).device("shm");
        let client = client.connect_timeout(PATIENCE).deadline(PATIENCE);
        client.connect(&address).unwrap()
    };
    let stays = connect();
    call(&stays, b"before them");
    for round in 1..=3 {
        let crowd: Vec<Client> = (0..CROWD).map(|_| connect()).collect();
        crowd.iter().for_each(|client| call(client, b"one of them"));
        drop(crowd);
        let started = Instant::now();
        while server.statistics().closed < (round * CROWD) as u64 {
            assert!(started.elapsed() < PATIENCE, "they have not left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    call(&stays, b"after them");
    let accepted = server.statistics().accepted;
    assert_eq!(accepted, 1 + 3 * CROWD as u64, "somebody connected anew");
}

/// A limit also holds for clients that come at the same moment, and refuses none that has a place.
#[test]
fn as_many_are_let_in_as_there_are_places() {
    const AT_ONCE: usize = 12;
    descriptors();
    for most in [1, 4, AT_ONCE].repeat(4) {
        let server = Server::unbound()
            .device("shm")
            .max_connections(most)
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .serve_at("dunlin://127.0.0.1:0")
            .unwrap();
        let address = server.address().to_string();
        let let_in = AtomicUsize::new(0);
        threads(AT_ONCE, |_, together| {
            let client = Client::builder().preset(Preset::Plain).device("shm");
            let client = client.connect_timeout(PATIENCE).deadline(PATIENCE);
            together.wait();
            let connected = client.connect(&address);
            let_in.fetch_add(usize::from(connected.is_ok()), Ordering::Relaxed);
            // None leaves before all have tried.
            together.wait();
            match connected {
                Ok(client) => call(&client, b"let in"),
                Err(error) if error.to_string().contains("max_connections") => {}
                Err(error) => return Err(error.to_string()),
            }
            Ok(())
        });
        assert_eq!(let_in.into_inner(), most);
    }
}

#[test]
fn a_hundred_processes() {
    let (_server, address) = serving();
    let all: Vec<_> = (0..100).map(|_| Again::new(&[(ROLE, &address)])).collect();
    for mut process in all {
        let words: Result<Vec<String>, _> = process.lines.by_ref().collect();
        let ended = process.child.wait().unwrap();
        assert!(words.is_ok() && ended.success(), "{ended}: {words:?}");
    }
}
