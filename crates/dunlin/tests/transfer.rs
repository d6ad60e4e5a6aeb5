//! Transfers of any length between memory of a client's and a region of a server's.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use common::{pattern, ECHO};
use dunlin::{CallError, Client, Preset, Region, RunningServer, Server};
use process::{listen, role, say, Other};

const BYTES: usize = 3 << 20;

fn serve(region: &Region) -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .region(region)
        .serve()
        .unwrap()
}

fn connect(server: &RunningServer, preset: Preset) -> Client {
    let address = server.address().to_string();
    Client::builder().preset(preset).connect(&address).unwrap()
}

#[test]
fn all_bytes_arrive_and_come_back() {
    let region = Region::new("memory", BYTES).writable();
    let server = serve(&region);
    for preset in [Preset::Auto, Preset::Plain, Preset::Flock] {
        let client = connect(&server, preset);
        let remote = client.attach("memory").unwrap();
        for (seed, (length, piece, lanes)) in [
            (0, 4096, 1),
            (1, 4096, 3),
            (4095, 4096, 1),
            (4097, 4096, 2),
            (100_003, 1000, 4),
            (BYTES - 7, 128 << 10, 1),
            (BYTES - 7, 64 << 10, 3),
        ]
        .into_iter()
        .enumerate()
        {
            let sent = pattern(length, seed as u64);
            let mut reports = Vec::new();
            let mut transfer = remote.transfer().lanes(lanes).piece_bytes(piece);
            transfer.put(7, &vec![0; length]).unwrap();
            let mut transfer = transfer.progress(|arrived| reports.push(arrived));
            transfer.put(7, &sent).unwrap();
            drop(transfer);
            assert!(reports.is_sorted_by(|one, next| one < next), "{reports:?}");
            assert_eq!(reports.last().copied().unwrap_or(0), length as u64);
            let mut stored = vec![0; length];
            region.memory().unwrap().read(7, &mut stored);
            assert!(stored == sent, "{preset}: {length} bytes were put");
            let mut back = vec![0; length];
            let mut transfer = remote.transfer().lanes(lanes).piece_bytes(piece);
            transfer.get(7, &mut back).unwrap();
            assert!(back == sent, "{preset}: {length} bytes were got");
        }
        // Calls go on meanwhile and after it.
        assert_eq!(&*client.call(ECHO, b"after").unwrap(), b"after");
    }
}

/// A client of a device, whatever else the server has.
fn connect_over(server: &RunningServer, device: &str) -> Client {
    let builder = Client::builder().device(device).preset(Preset::Plain);
    builder.connect(&server.address().to_string()).unwrap()
}

#[test]
fn all_devices_of_a_server_reach_a_region_and_a_transfer_may_use_several() {
    let region = Region::new("memory", BYTES).writable().atomic();
    let server = serve(&region);
    let clients = ["roce", "shm"].map(|device| connect_over(&server, device));
    let remotes = clients
        .each_ref()
        .map(|client| client.attach("memory").unwrap());
    for (index, remote) in remotes.iter().enumerate() {
        remote.write(16 * index as u64, b"written").unwrap();
        assert_eq!(remote.fetch_add(64, 1).unwrap(), index as u64);
    }
    for remote in &remotes {
        assert_eq!(&remote.read(0, 7).unwrap()[..], b"written");
        assert_eq!(&remote.read(16, 7).unwrap()[..], b"written");
    }
    let before = clients.each_ref().map(|client| client.info().device);
    assert_eq!(before, ["roce", "shm"]);
    let mut transfer = remotes[0].transfer().lanes(2).piece_bytes(10_000);
    transfer = transfer.also_by(&remotes[1]).unwrap();
    let sent = pattern(BYTES, 3);
    transfer.put(0, &sent).unwrap();
    let mut stored = vec![0; BYTES];
    region.memory().unwrap().read(0, &mut stored);
    assert!(stored == sent);
    let mut back = vec![0; BYTES];
    transfer.get(0, &mut back).unwrap();
    assert!(back == sent);
}

#[test]
fn other_memory_is_no_second_way() {
    let server = serve(&Region::new("memory", BYTES));
    let other = serve(&Region::new("memory", BYTES + 8));
    let clients = [&server, &other].map(|server| connect(server, Preset::Plain));
    let remotes = clients
        .each_ref()
        .map(|client| client.attach("memory").unwrap());
    let error = remotes[0].transfer().also_by(&remotes[1]).unwrap_err();
    let words = "the server has no region 'memory' on this device (it has 3145736 bytes, and 'memory', which is being \
                 transferred, 3145728)";
    assert_eq!(error.to_string(), words);
}

#[test]
fn what_does_not_fit_or_is_not_granted_is_refused_whole() {
    let region = Region::new("memory", BYTES);
    let server = serve(&region);
    let client = connect(&server, Preset::Plain);
    let remote = client.attach("memory").unwrap();
    let mut into = vec![0; BYTES];
    let error = remote.transfer().get(1, &mut into).unwrap_err();
    assert_eq!((error.arrived, error.total), (0, BYTES as u64));
    assert!(
        matches!(error.cause, CallError::RegionBounds { .. }),
        "{error}"
    );
    let error = remote.transfer().put(0, &into).unwrap_err();
    assert_eq!(error.arrived, 0);
    assert!(
        matches!(error.cause, CallError::RegionRight { .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("0 of 3145728 bytes arrived: "),
        "{error}"
    );
    remote.transfer().get(0, &mut into).unwrap();
}

/// A server that is killed in the middle: the error says how much had arrived.
#[test]
fn a_server_that_dies_ends_a_transfer() {
    if role().is_some() {
        let server = serve(&Region::new("memory", BYTES).writable());
        say(&server.address().to_string());
        while listen().is_some() {}
        return;
    }
    for lanes in [1, 3] {
        let mut server = Other::start("a_server_that_dies_ends_a_transfer", "server", "");
        let address = server.hear();
        let client = Client::builder()
            .preset(Preset::Plain)
            .connect(&address)
            .unwrap();
        let remote = client.attach("memory").unwrap();
        let sent = pattern(BYTES, 1);
        let mut reported = 0;
        let error = remote
            .transfer()
            .lanes(lanes)
            .piece_bytes(4096)
            .progress(|arrived| {
                reported = arrived;
                if arrived > 1 << 20 {
                    server.kill();
                    // It is known here, too, before the next piece is sent.
                    while client.call(ECHO, b"there?").is_ok() {}
                }
            })
            .put(0, &sent)
            .unwrap_err();
        assert_eq!(error.total, BYTES as u64);
        assert!(
            error.arrived > 1 << 20 && error.arrived < error.total,
            "{error}"
        );
        assert!(error.arrived >= reported, "{reported}: {error}");
        assert!(
            matches!(error.cause, CallError::ConnectionLost { .. }),
            "{error}"
        );
    }
}
