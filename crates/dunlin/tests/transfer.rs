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
