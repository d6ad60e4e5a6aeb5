//! The load: requests, and the logical connections that they use.

use std::sync::Arc;

use dunlin_flor::ack::AckTriggers;
use dunlin_flor::chunking::{ChunkingParameters, RttBased};
use dunlin_flor::congestion::{FixedWindow, HardwareControl};
use dunlin_flor::connection::{Deployment, Network};
use dunlin_flor::logical::{LinkConfig, LogicalConnection};
use dunlin_flor::reliability::Hardware;
use dunlin_sim::SimDevice;
use dunlin_verbs::{Device, Transport};

use super::run::{Recorded, Shared};

/// Memory that messages are written to: large enough that repaired ranges can rest without being waited for.
const LANDING_BYTES: usize = 1 << 30;

pub(super) type Link = LogicalConnection<SimDevice>;
pub(super) type Domain = <SimDevice as Device>::ProtectionDomain;

/// Settings of clients and servers.
#[derive(Clone, Copy, Debug)]
pub struct Flor {
    /// Modules and transport.
    pub deployment: Deployment,
    /// A fixed window of this many bytes instead of the deployment's congestion control; zero: none at all.
    pub window_bytes: Option<u64>,
    /// When a receiver acknowledges.
    pub triggers: AckTriggers,
    /// Threads of each client.
    pub threads: usize,
    /// Threads of each server; as many as the client has if zero.
    pub server_threads: usize,
    /// Connections of each thread of a client with each server.
    pub connections: usize,
    /// Requests that each connection keeps outstanding.
    pub depth: usize,
    /// Bytes of a request.
    pub bytes: u32,
    /// Bytes of an answer.
    pub answer_bytes: u32,
    /// Maximum bytes of a chunk; the deployment's default if `None`.
    pub most_chunk_bytes: Option<u32>,
    /// Bytes of a unit: the minimum of a chunk.
    pub unit_bytes: u32,
    /// Bytes that one receive buffer takes.
    pub fragment_bytes: u32,
    /// Receive buffers of a queue pair.
    pub receives: usize,
    /// Whether acknowledgements share the queue pair of the data, which then has as many receive buffers again for
    /// them.
    pub shares_acks: bool,
    /// Queue pairs of a connection, including backups.
    pub paths: usize,
    /// Number of retries of an RC NIC before the queue pair is given up.
    pub retries: u8,
    /// Gigabits per second of the line, which determine the bandwidth-delay product.
    pub line_gbit_s: u64,
    /// Software time for sending a chunk, beyond verbs and copies, in nanoseconds.
    pub chunk_ns: u64,
    /// Share of the packets to servers that their NICs drop.
    pub lost: f64,
    /// Whether all requests that are written to a server's thread land in the same memory: separate memory for
    /// thousands of connections would not fit.
    pub one_landing: bool,
    /// Time in which the threads of clients begin, one after the other, in nanoseconds.
    pub starting_ns: u64,
}

impl Flor {
    /// One thread with one connection and eight outstanding requests, for a deployment of Table 1, on a network without
    /// losses.
    pub fn new(deployment: Deployment, bytes: u32) -> Self {
        Self {
            deployment,
            window_bytes: None,
            triggers: AckTriggers::PAPER,
            threads: 1,
            server_threads: 0,
            connections: 1,
            depth: 8,
            bytes,
            answer_bytes: 64,
            most_chunk_bytes: None,
            unit_bytes: 4 << 10,
            fragment_bytes: 32 << 10,
            receives: 64,
            shares_acks: false,
            paths: 1 + Hardware::BACKUPS,
            retries: Hardware::RETRIES,
            line_gbit_s: 100,
            chunk_ns: 0,
            lost: 0.0,
            one_landing: false,
            starting_ns: 0,
        }
    }

    pub(super) fn of_servers(&self) -> usize {
        match self.server_threads {
            0 => self.threads,
            threads => threads,
        }
    }

    fn end(&self, device: &SimDevice, domain: &Domain, shared: &Arc<Shared>) -> Link {
        let mut config = LinkConfig::new(self.deployment);
        config.network = Network {
            line_bits_per_second: self.line_gbit_s * 1_000_000_000,
            unit_bytes: self.unit_bytes,
            ..config.network
        };
        config.max_landing_bytes = LANDING_BYTES;
        config.shares_acks = self.shares_acks;
        config.receives = match self.shares_acks {
            true => 2 * self.receives,
            false => self.receives,
        };
        config.retries = self.retries;
        config.connection.send_queue = self.receives;
        config.connection.peer_receives = self.receives;
        config.connection.paths = self.paths;
        config.connection.ack_triggers = self.triggers;
        config.connection.max_fragment_bytes = self.fragment_bytes;
        let mut modules = self
            .deployment
            .modules(&config.network)
            .expect("a network with units");
        if let Some(most) = self.most_chunk_bytes {
            let parameters = ChunkingParameters {
                unit_bytes: self.unit_bytes,
                max_bytes: most,
                ..ChunkingParameters::PRODUCTION
            };
            modules.chunking = Box::new(RttBased::new(parameters).expect("a chunk of units"));
        }
        match self.window_bytes {
            None => {}
            Some(0) => modules.congestion = Box::new(HardwareControl),
            Some(bytes) => modules.congestion = Box::new(FixedWindow::new(bytes)),
        }
        if self.deployment.transport() == Transport::UnreliableConnection {
            modules.round_trip = Box::new(Recorded(Arc::clone(shared)));
        }
        LogicalConnection::in_domain(device.clone(), domain.clone(), config, modules, None)
            .expect("a connection")
    }

    /// Connects both ends of a connection.
    pub(super) fn pair(
        &self,
        (client, client_domain): (&SimDevice, &Domain),
        (server, server_domain): (&SimDevice, &Domain),
        shared: &Arc<Shared>,
    ) -> (Link, Link) {
        let mut client = self.end(client, client_domain, shared);
        let mut server = self.end(server, server_domain, shared);
        let addresses = (client.address(), server.address());
        client.connect(&addresses.1, 0, 0).expect("an address");
        server.connect(&addresses.0, 0, 0).expect("an address");
        (client, server)
    }
}
