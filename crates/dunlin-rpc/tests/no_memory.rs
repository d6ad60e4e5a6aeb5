//! A device, or a process, without memory for another long message: that message fails, and the connection remains
//! usable.

#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use dunlin_rpc::{CallError, Client, LocalServer, Preset, Region, Server, ServerBuilder};
use dunlin_shm::{ShmConfig, ShmDevice};
use process::{role, say, Other};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

const ECHO: u16 = 1;
const LONG: u16 = 2;
const BYTES: usize = 8 << 20;

fn server() -> ServerBuilder {
    Server::unbound()
        .region(&Region::new("memory", BYTES).writable())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(LONG, |_, reply| reply.in_place(BYTES).map(drop))
}

fn serve() -> LocalServer {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    server().serve_on(device).unwrap()
}

/// A client whose device has memory for its channels, but for no long message.
fn connect(preset: Preset, server: &LocalServer) -> Client {
    let mut config = ShmConfig::default();
    config.max_registered_bytes = 4 << 20;
    let device = ShmDevice::open(config).unwrap();
    let client = Client::builder().preset(preset).lanes(1);
    client.connect_on(device, &server.acceptor()).unwrap()
}

fn is_no_memory(error: &CallError, was_executed: bool) -> bool {
    matches!(error, CallError::NoMemory { executed, .. } if *executed == was_executed)
}

const PRESETS: [Preset; 4] = [
    Preset::Plain,
    Preset::Flock,
    Preset::ScaleRpc,
    Preset::RawWrite,
];

#[test]
fn a_request_without_memory_is_not_sent_and_ends_nothing_else() {
    let server = serve();
    // A client that leaves is counted.
    let mut clients = Vec::new();
    for preset in PRESETS {
        let client = connect(preset, &server);
        let before = server.statistics();
        let request = vec![1; BYTES];
        for _ in 0..3 {
            let refused = client.call(ECHO, &request).unwrap_err();
            assert!(is_no_memory(&refused, false), "{preset}: {refused:?}");
            let refused = client.buffer(BYTES).unwrap_err();
            assert!(is_no_memory(&refused, false), "{preset}: {refused:?}");
            assert_eq!(&*client.call(ECHO, b"short").unwrap(), b"short");
        }
        let after = server.statistics();
        assert_eq!(after.requests, before.requests + 3);
        assert_eq!(after.closed, before.closed, "{preset}: it went on");
        clients.push(client);
    }
}

#[test]
fn a_response_without_memory_ends_its_own_call_alone() {
    let server = serve();
    // A client that leaves is counted.
    let mut clients = Vec::new();
    for preset in PRESETS {
        let client = connect(preset, &server);
        let closed = server.statistics().closed;
        // More than the unread ones that the server keeps for a client.
        for _ in 0..40 {
            let batch = client
                .batch()
                .call(ECHO, b"a")
                .call(LONG, b"")
                .call(ECHO, b"b");
            let mut answers = batch.send().unwrap();
            assert_eq!(&**answers.pop().unwrap().as_ref().unwrap(), b"b");
            let refused = answers.pop().unwrap().unwrap_err();
            assert!(is_no_memory(&refused, true), "{preset}: {refused:?}");
            assert_eq!(&**answers.pop().unwrap().as_ref().unwrap(), b"a");
        }
        let after = server.statistics();
        assert_eq!(after.closed, closed, "{preset}: it went on");
        clients.push(client);
    }
}

#[test]
fn an_operation_without_memory_ends_alone() {
    let server = serve();
    // A client that leaves is counted.
    let mut clients = Vec::new();
    for preset in [Preset::Plain, Preset::Flock] {
        let client = connect(preset, &server);
        let region = client.attach("memory").unwrap();
        region.write(0, b"bytes of the region").unwrap();
        let closed = server.statistics().closed;
        for _ in 0..3 {
            let batch = client.batch().read(&region, 0, 5);
            let batch = batch.read(&region, 0, BYTES).read(&region, 6, 2);
            let mut answers = batch.send().unwrap();
            assert_eq!(&**answers.pop().unwrap().as_ref().unwrap(), b"of");
            let refused = answers.pop().unwrap().unwrap_err();
            assert!(is_no_memory(&refused, false), "{preset}: {refused:?}");
            assert_eq!(&**answers.pop().unwrap().as_ref().unwrap(), b"bytes");
            let refused = region.write(0, &vec![1; BYTES]).unwrap_err();
            assert!(is_no_memory(&refused, false), "{preset}: {refused:?}");
        }
        let after = server.statistics();
        assert_eq!(after.closed, closed, "{preset}: it went on");
        clients.push(client);
    }
}

/// Limits this process's address space to this many bytes more than it uses.
fn limit_memory(more: u64) {
    let words = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = words.split_whitespace().next().unwrap().parse().unwrap();
    let current = Some(pages * rustix::param::page_size() as u64 + more);
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

/// A client that has memory only for short messages.
#[test]
fn the_other_process() {
    let Some((preset, address)) = role() else {
        return;
    };
    let client = Client::builder().preset(preset.parse().unwrap());
    let client = client.device("shm").connect(&address).unwrap();
    assert_eq!(&*client.call(ECHO, b"before").unwrap(), b"before");
    limit_memory(BYTES as u64 / 2);
    for _ in 0..3 {
        let refused = client.call(LONG, b"").unwrap_err();
        assert!(is_no_memory(&refused, true), "{preset}: {refused:?}");
        assert_eq!(&*client.call(ECHO, b"after").unwrap(), b"after");
    }
    say("it goes on");
}

#[test]
fn a_process_without_memory_for_a_response_goes_on() {
    let server = server().device("shm").serve_at("dunlin://127.0.0.1:0");
    let server = server.unwrap();
    for preset in [Preset::Fasst, Preset::Herd, Preset::Erpc] {
        let address = server.address().to_string();
        let mut client = Other::start("the_other_process", &preset.to_string(), &address);
        assert_eq!(client.hear(), "it goes on", "{preset}");
    }
}
