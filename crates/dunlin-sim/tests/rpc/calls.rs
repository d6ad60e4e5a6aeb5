//! A client that makes one call after the other from a simulated host, and its record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_rpc::{Client, ClientBuilder, LocalServer, Pipeline, Server, ServerBuilder};
use dunlin_sim::{Cluster, HostId};
use dunlin_verbs::thread;

pub(crate) const ECHO: u16 = 1;
pub(crate) const MILLISECOND: u64 = 1_000_000;
/// Virtual time longer than a queue pair takes to give up.
const PATIENCE_MS: u64 = 60_000;

/// The builder of a server that echoes.
pub(crate) fn echoing() -> ServerBuilder {
    Server::unbound().handle(ECHO, |request, reply| reply.write(request.payload()))
}

/// Record of a client.
#[derive(Default)]
pub(crate) struct Seen {
    answered: AtomicU64,
    failed: AtomicU64,
    enough: AtomicBool,
    ended: AtomicBool,
}

impl Seen {
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Tells the client to stop, and waits until it has.
    pub(crate) fn end(&self, cluster: &Cluster) {
        self.enough.store(true, Ordering::Relaxed);
        run_until(cluster, "the end", || self.ended.load(Ordering::Relaxed));
    }
}

/// Lets virtual time pass until `reached`.
pub(crate) fn run_until(cluster: &Cluster, what: &str, reached: impl FnMut() -> bool) {
    run_in_steps(cluster, MILLISECOND, what, reached);
}

/// The same in steps of this many nanoseconds.
pub(crate) fn run_in_steps(
    cluster: &Cluster,
    step_ns: u64,
    what: &str,
    mut reached: impl FnMut() -> bool,
) {
    for _ in 0..PATIENCE_MS * MILLISECOND / step_ns {
        if reached() {
            return;
        }
        cluster.run_for(step_ns);
    }
    panic!("not within a minute of virtual time: {what}");
}

/// Makes one call after the other from core 0 of a host until told to stop, with `pause` after each.
pub(crate) fn calling(
    cluster: &Cluster,
    from: HostId,
    server: &LocalServer,
    client: ClientBuilder,
    pause: Duration,
) -> Arc<Seen> {
    let client = client.connect_on(cluster.device(from), &server.acceptor());
    let client: Client = client.expect("a client");
    let seen = Arc::new(Seen::default());
    let log = Arc::clone(&seen);
    cluster.spawn_thread(from, 0, move || {
        let mut number = 0u64;
        while !log.enough.load(Ordering::Relaxed) {
            number += 1;
            match client.call(ECHO, &number.to_le_bytes()) {
                Ok(answer) => {
                    assert_eq!(&answer[..], number.to_le_bytes());
                    log.answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    log.failed.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(100 * pause);
                }
            }
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
        drop(client);
        log.ended.store(true, Ordering::Relaxed);
    });
    seen
}

/// Keeps this many calls outstanding until `stopping` is set, and ends when all are answered; calls `seen` after each
/// answer. With `apart` no two are submitted together, so that coalescing is done by the library.
pub(crate) fn keep_out(
    mut pipeline: Pipeline,
    (out, apart): (usize, bool),
    stopping: &AtomicBool,
    mut seen: impl FnMut(),
) {
    let mut taken = |tag: u64, answer: Result<&[u8], _>| {
        assert_eq!(answer.expect("an answer"), tag.to_le_bytes());
        seen();
    };
    let mut number = 0u64;
    while !stopping.load(Ordering::Relaxed) || pipeline.outstanding() > 0 {
        while !stopping.load(Ordering::Relaxed) && pipeline.outstanding() < out {
            let bytes = number.to_le_bytes();
            if !pipeline.submit(ECHO, &bytes, number).expect("a lane") {
                break;
            }
            number += 1;
            if apart {
                pipeline.poll(&mut taken).expect("a lane");
            }
        }
        pipeline.wait(&mut taken).expect("a lane");
    }
}
