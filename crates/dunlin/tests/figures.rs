//! What a server shows of itself: to its own process, to clients, and to nobody when it is told so.

use dunlin::{CallError, Client, Preset, ServeError, Server, FIGURES};

const ECHO: u16 = 1;

fn server() -> dunlin::ServerBuilder {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
}

#[test]
fn a_client_sees_the_load_of_the_server() {
    let server = server().max_active_queue_pairs(7).serve().unwrap();
    let address = server.address().to_string();
    let watcher = Client::connect(&address).unwrap();
    let before = watcher.server_figures().unwrap();
    assert_eq!(before.connections(), 1);
    assert_eq!(before.max_active_queue_pairs, 7);
    assert!(before.senders.is_empty());

    let flock = Client::builder().preset(Preset::Flock);
    let flock = flock.connect(&address).unwrap();
    for _ in 0..100 {
        flock.call(ECHO, b"x").unwrap();
    }
    let after = watcher.server_figures().unwrap();
    assert!(after.statistics.requests >= before.statistics.requests + 100);
    assert_eq!(after.connections(), 2);
    assert_eq!(after.handshakes.opened, 2);
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
