//! The thread that brings copies back, while the volume is not polled, is closed, or loses another copy meanwhile.

mod common;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{block, eventually, in_memory, options, start};
use dunlin::{RunningServer, Server};
use dunlin_volume::client::channel as limits;
use dunlin_volume::server::{BlockServer, LogEnd, Place};
use dunlin_volume::wire::call;
use dunlin_volume::{create, Volume, VolumeOptions};

/// Three servers and a volume, which was opened while the last one was down; that has come back since.
fn opened_without_one() -> (Vec<BlockServer>, (RunningServer, LogEnd), Volume) {
    let (mut servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    servers.remove(2).shutdown();
    let mut volume = Volume::open("birds", &addresses, &options()).unwrap();
    volume.write_at(0, &block(0, 1)).unwrap();
    let back = start(Place::Memory, &addresses[2]).split();
    (servers, back, volume)
}

/// Closes a volume on a thread of its own, and returns whether that ends.
fn is_closed(volume: Volume) -> bool {
    let (closed, is_closed) = channel();
    let thread = std::thread::spawn(move || {
        drop(volume);
        closed.send(()).unwrap();
    });
    let in_time = is_closed.recv_timeout(Duration::from_secs(60)).is_ok();
    if in_time {
        thread.join().unwrap();
    }
    in_time
}

#[test]
fn a_volume_that_is_not_polled_is_closed_while_a_copy_comes_back() {
    let (_servers, (server, _log), volume) = opened_without_one();
    eventually("the copy is connected", || server.connections() > 0);
    // The thread has told the volume of the copy meanwhile, which does not listen.
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_closed(volume), "it is never closed");
}

#[test]
fn a_volume_is_closed_while_a_server_owes_an_answer() {
    let (mut servers, addresses) = in_memory(3);
    create("birds", 1 << 20, &addresses, &options()).unwrap();
    servers.remove(2).shutdown();
    // The deadline of its calls, too: longer than this test waits.
    let patient = VolumeOptions {
        replace_after: Duration::from_secs(600),
        ..options()
    };
    let volume = Volume::open("birds", &addresses, &patient).unwrap();
    let (asked, is_asked) = channel();
    let silent = Server::bind(&addresses[2]).unwrap().channel(limits());
    let silent = silent.handle_deferred(call::DESCRIBE, move |_, responder| {
        let _ = asked.send(responder);
    });
    let silent = silent.serve().unwrap();
    let owed = is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(is_closed(volume), "it waits for the answer");
    drop((owed, silent));
}

#[test]
fn a_volume_that_is_not_polled_takes_no_more_connections() {
    let (_servers, (server, _log), mut volume) = opened_without_one();
    eventually("the copy is connected", || server.connections() > 0);
    // Those of the keeper, and the volume's own that waits for it: however long that is.
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        let connections = server.connections();
        assert!(connections <= 2, "{connections} connections");
        std::thread::sleep(Duration::from_millis(50));
    }
    eventually("the copy is up to date", || {
        volume.poll();
        volume.is_in_sync()
    });
    volume.write_at(0, &block(0, 2)).unwrap();
}
