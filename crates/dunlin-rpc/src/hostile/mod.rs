//! Hostile peers: they follow the handshake and nothing else, on any device. Shared by the tests of single violations
//! and the conformance suite.
//!
//! A hostile peer has what a handshake gives to every client: a queue pair connected to the server's, and the keys of
//! what it may write. It uses them arbitrarily ([`peer`]), driven by a seed.

pub(crate) mod datagram;
pub(crate) mod pair;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod rb2;
pub(crate) mod ring;
pub(crate) mod sent;

use std::time::Duration;

use dunlin_bootstrap::{dial, Address, DialConfig, OpenReply, OpenRequest, Peer};
use dunlin_verbs::{thread, EndpointAddress};

use crate::channel::Parameters;
use crate::devices::Kinds;
use crate::server::LocalAcceptor;
use crate::{devices, fabric, LocalServer, RunningServer};

/// Handlers of the attacked servers: one that echoes, one with long answers, and one on workers.
pub(crate) const ECHO: u16 = 1;
pub(crate) const LONG: u16 = 2;
pub(crate) const ON_WORKERS: u16 = 3;

/// Longer than anything takes that does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Contained in every payload of the honest clients beside a hostile peer. No hostile peer sends it, so none may ever
/// see it.
pub(crate) const MARKER: [u8; 16] = *b"not for others'!";

/// Whether bytes that a hostile peer has obtained are those of an honest client.
pub(crate) fn has_marker(bytes: &[u8]) -> bool {
    bytes.windows(MARKER.len()).any(|window| window == MARKER)
}

/// Waits until `holds`, in the calling thread's time.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = thread::now();
    while !holds() {
        let waited = thread::now().duration_since(started);
        assert!(waited < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::idle(Duration::from_micros(5), true);
        thread::give_way();
    }
}

/// The source of random choices.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// How peers reach a server.
#[derive(Clone, Debug)]
pub struct Door(Way);

#[derive(Clone, Debug)]
enum Way {
    /// The server's port, and the device to offer; `None` offers all.
    Port(Address, Option<String>),
    Local(LocalAcceptor),
}

impl Door {
    /// The port of a server, to be connected to with this device.
    pub(crate) fn port(server: &RunningServer, device: Option<&str>) -> Self {
        Self(Way::Port(server.address(), device.map(str::to_owned)))
    }

    /// The acceptor of a server without a port.
    pub fn acceptor(server: &LocalServer) -> Self {
        Self(Way::Local(server.acceptor()))
    }

    /// Makes the handshake with parameters that a server accepts.
    pub(crate) fn open(
        &self,
        preset: &str,
        endpoint: EndpointAddress,
        parameters: Parameters,
    ) -> OpenReply {
        let request = |device: &str| OpenRequest {
            device: device.to_owned(),
            preset: preset.to_owned(),
            endpoint,
            parameters,
        };
        match &self.0 {
            Way::Port(address, device) => {
                let towards = devices::towards(address, devices::LOOK_UP).expect("in time");
                let fabrics = fabric::fabrics(device.as_deref(), towards, Kinds::Bare);
                let fabrics = fabrics.expect("the device is there");
                let config = DialConfig {
                    capabilities: fabric::capabilities(&fabrics).expect("a host with a name"),
                    device: device.clone(),
                    ..DialConfig::default()
                };
                let dialed = dial(address, &config).expect("a server");
                dialed.open(request("")).expect("words as a client's")
            }
            // Holds other simulated threads back while the acceptor is locked.
            Way::Local(acceptor) => {
                thread::hold(|| acceptor.open(&request(acceptor.device(false)), Peer::local()))
                    .expect("words as a client's")
            }
        }
    }
}
