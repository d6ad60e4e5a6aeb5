//! A route to a server's port that can be made to lead nowhere, or to another server.

// Each test uses only a part.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_rpc::{Client, ClientBuilder, RunningServer};

/// Longer than anything takes that does not wait for a handshake.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the patience of the tests.
pub(super) const NEVER: Duration = Duration::from_secs(300);

/// A route to a server's port that can be made to lead nowhere: connections are accepted, and nothing is answered.
pub(super) struct Way {
    address: SocketAddr,
    held: Arc<Held>,
}

#[derive(Default)]
struct Held {
    holds: AtomicBool,
    /// The delay in each direction, on connections that are accepted from now on.
    delay: Mutex<Duration>,
    /// The port of the server to which it leads.
    target: Mutex<String>,
    /// Connections that lead nowhere.
    taken: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
}

impl Way {
    pub(super) fn to(server: &RunningServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::<Held>::default();
        *held.target.lock().unwrap() = port_of(server);
        let known = Arc::clone(&held);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if known.holds.load(Ordering::SeqCst) {
                    known.streams.lock().unwrap().push(stream);
                    known.taken.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect(&*known.target.lock().unwrap()) else {
                    continue;
                };
                let delay = *known.delay.lock().unwrap();
                copy(
                    stream.try_clone().unwrap(),
                    server.try_clone().unwrap(),
                    delay,
                );
                copy(server, stream, delay);
            }
        });
        Self { address, held }
    }

    pub(super) fn connect(&self, builder: ClientBuilder) -> Client {
        let builder = builder.connect_timeout(NEVER);
        builder.connect(&self.address()).unwrap()
    }

    pub(super) fn address(&self) -> String {
        format!("dunlin://{}", self.address)
    }

    /// Makes it lead to this server from now on.
    pub(super) fn lead_to(&self, server: &RunningServer) {
        *self.held.target.lock().unwrap() = port_of(server);
    }

    /// Sets the delay in each direction from now on.
    pub(super) fn slow_down(&self, delay: Duration) {
        *self.held.delay.lock().unwrap() = delay;
    }

    /// Makes it lead nowhere from now on.
    pub(super) fn hold(&self) {
        self.held.holds.store(true, Ordering::SeqCst);
    }

    pub(super) fn taken(&self) -> usize {
        self.held.taken.load(Ordering::SeqCst)
    }

    pub(super) fn until_taken(&self, count: usize) {
        let started = Instant::now();
        while self.taken() < count {
            assert!(started.elapsed() < PATIENCE, "nobody dials");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        for stream in self.held.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn port_of(server: &RunningServer) -> String {
    let address = server.address().to_string();
    address.trim_start_matches("dunlin://").to_owned()
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            std::thread::sleep(delay);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
