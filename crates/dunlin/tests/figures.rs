//! What a server shows of itself: to its own process, to clients, and to nobody when it is told so.

mod common;

use std::time::Duration;

use common::{eventually, ECHO};
use dunlin::{CallError, Client, Preset, ServeError, Server, FIGURES};

fn server() -> dunlin::ServerBuilder {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
}

#[test]
fn a_client_sees_the_load_of_the_server() {
    let server = server().max_active_queue_pairs(7).serve().unwrap();
    let address = server.address().to_string();
    let watcher = Client::builder().preset(Preset::Plain);
    let watcher = watcher.connect(&address).unwrap();
    let before = watcher.server_figures().unwrap();
    assert_eq!(before.connections(), 1);
    assert_eq!(before.max_active_queue_pairs, 7);
    assert!(before.senders.is_empty());

    let flock = Client::builder().preset(Preset::Flock);
    let flock = flock.connect(&address).unwrap();
    for _ in 0..100 {
        flock.call(ECHO, b"x").unwrap();
    }
    // A handshake is counted after its reply has left.
    let mut after = watcher.server_figures().unwrap();
    eventually("both handshakes are counted", || {
        after = watcher.server_figures().unwrap();
        after.handshakes.opened == 2
    });
    assert!(after.statistics.requests >= before.statistics.requests + 100);
    assert_eq!(after.connections(), 2);
    assert_eq!(after.senders.len(), 1);
    assert_eq!(after.active_queue_pairs(), 1);
    assert!(after.resident_bytes > 0);
    // The same is seen from within.
    assert_eq!(server.figures().senders.len(), 1);

    let observer = server.observer();
    assert!(observer.figures().is_some());
    drop((flock, watcher));
    server.shutdown();
    assert!(observer.figures().is_none());
}

#[test]
fn a_client_that_reports_is_seen_and_forgotten() {
    let server = server().serve().unwrap();
    let address = server.address().to_string();
    let each = Duration::from_millis(10);
    let flock = Client::builder().preset(Preset::Flock).lanes(1);
    let flock = flock.reports_figures("web-7", each);
    let flock = flock.connect(&address).unwrap();
    flock.call(ECHO, b"x").unwrap();
    // The reporting thread has a port of its own: two threads on the one lane.
    let mut clients = Vec::new();
    eventually("both threads are reported", || {
        clients = server.figures().clients;
        let handle = clients.first().and_then(|client| client.handle.as_ref());
        handle.is_some_and(|handle| handle.assignment == [0, 0])
    });
    assert_eq!(clients.len(), 1);
    assert_eq!((&*clients[0].name, &*clients[0].preset), ("web-7", "flock"));
    // Its thread ends with it, and so the connection.
    drop(flock);
    eventually("its connections end", || server.connections() == 0);

    let refused = Client::builder().reports_figures("x".repeat(65), each);
    let refused = refused.connect(&address).unwrap_err();
    assert!(refused.to_string().contains("65 bytes"), "{refused}");
}

#[test]
fn a_server_may_keep_its_figures_to_itself() {
    let server = server().shows_figures(false).serve().unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let refused = client.server_figures().unwrap_err();
    assert!(
        matches!(refused, CallError::UnknownHandler(FIGURES)),
        "{refused}"
    );
    // From within they are there.
    assert_eq!(server.figures().connections(), 1);
}

#[test]
fn the_id_of_the_figures_is_the_servers_own() {
    let refused = server().handle(FIGURES, |_, _| Ok(())).serve().unwrap_err();
    assert!(
        matches!(refused, ServeError::ReservedHandler(FIGURES)),
        "{refused}"
    );
}

/// What no connection asked for is counted by its reason, where a client, and whoever runs the server, can see it.
#[test]
fn what_a_device_drops_is_seen() {
    let server = server().device("roce").serve().unwrap();
    let client = Client::builder().device("roce");
    let client = client.connect(&server.address().to_string()).unwrap();
    let strangers = || {
        let figures = client.server_figures().unwrap();
        // Flor over it is a device of its own, and counts no packets.
        let device = figures.devices.iter().find(|device| device.name == "roce");
        let counts = &device.unwrap().packets;
        counts.iter().find(|(name, _)| name == "bad_crc").unwrap().1
    };
    assert_eq!(strangers(), 0, "{:?}", udp_ports());
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let ports = udp_ports();
    assert!(!ports.is_empty());
    for port in ports {
        stranger.send_to(b"no packet", ("127.0.0.1", port)).unwrap();
    }
    eventually("it is counted", || strangers() > 0);
}

/// The UDP ports of this process that are not bound to one address: those of the device.
fn udp_ports() -> Vec<u16> {
    let mine: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let tables = ["/proc/net/udp", "/proc/net/udp6"]
        .map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let sockets = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .map(|line| line.split_whitespace().collect());
    sockets
        .filter(|fields: &Vec<&str>| mine.contains(&format!("socket:[{}]", fields[9])))
        .filter_map(|fields| {
            fields[1]
                .rsplit_once(':')
                .map(|(address, port)| (address.to_owned(), port.to_owned()))
        })
        .filter(|(address, _)| address.bytes().all(|digit| digit == b'0'))
        .map(|(_, port)| u16::from_str_radix(&port, 16).unwrap())
        .collect()
}
