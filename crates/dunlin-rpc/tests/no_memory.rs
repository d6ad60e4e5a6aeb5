//! A device without memory for one more long message: that message fails, and the connection goes on.

use dunlin_rpc::{CallError, Client, LocalServer, Preset, Region, Server};
use dunlin_shm::{ShmConfig, ShmDevice};

const ECHO: u16 = 1;
const LONG: u16 = 2;
const BYTES: usize = 8 << 20;

fn serve() -> LocalServer {
    Server::unbound()
        .region(&Region::new("memory", BYTES).writable())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(LONG, |_, reply| reply.in_place(BYTES).map(drop))
        .serve_on(ShmDevice::open(ShmConfig::default()).unwrap())
        .unwrap()
}

/// A client whose device has memory for its channels, and for no long message.
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
    // Whoever leaves is counted.
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
    // Whoever leaves is counted.
    let mut clients = Vec::new();
    for preset in PRESETS {
        let client = connect(preset, &server);
        let closed = server.statistics().closed;
        // More than the server keeps unread ones for a client.
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
    // Whoever leaves is counted.
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
