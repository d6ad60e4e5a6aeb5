//! A server distinguishes its connections by their ids, on all devices and kinds of channel.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dunlin_rpc::{Client, Preset, RunningServer, Server};

const CONNECTION: u16 = 1;
const DEVICES: [&str; 2] = ["shm", "roce"];
/// Longer than anything takes on a machine that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server over both devices that tells callers the ids of their connections.
fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(CONNECTION, |request, reply| {
            reply.write(&request.connection().to_le_bytes())
        })
        .serve()
        .unwrap()
}

#[test]
fn no_two_connections_of_a_server_have_one_id() {
    let server = serve();
    let address = server.address().to_string();
    let mut clients = Vec::new();
    let mut ids = BTreeSet::new();
    // Rings, SENDs, pools and datagrams.
    for preset in [
        Preset::Plain,
        Preset::Xrdma,
        Preset::RawWrite,
        Preset::Fasst,
    ] {
        for device in DEVICES {
            let builder = Client::builder().preset(preset).device(device);
            let client = builder.deadline(PATIENCE).connect(&address).unwrap();
            let id = client.call(CONNECTION, b"").unwrap();
            let id = u64::from_le_bytes(id[..].try_into().unwrap());
            assert!(id != 0, "{preset} on {device}: 0 is no connection");
            assert!(
                ids.insert(id),
                "{preset} on {device}: {id} is another's among {ids:?}"
            );
            clients.push(client);
        }
    }
}

/// Reports of clients are kept by connection: those on one device do not replace those on the other.
#[test]
fn clients_on_two_devices_are_both_reported() {
    let server = serve();
    let address = server.address().to_string();
    let each = Duration::from_millis(10);
    let _clients = DEVICES.map(|device| {
        let builder = Client::builder().preset(Preset::Plain).device(device);
        let builder = builder.reports_figures(format!("on {device}"), each);
        builder.connect(&address).unwrap()
    });
    let began = Instant::now();
    loop {
        let clients = server.figures().clients;
        let reported: BTreeSet<&str> = clients.iter().map(|client| &*client.name).collect();
        if reported.len() == DEVICES.len() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "reported: {reported:?}");
        std::thread::sleep(each);
    }
}
