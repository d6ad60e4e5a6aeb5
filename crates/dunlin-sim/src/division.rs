//! The division of a cluster into parts that are simulated by several real threads, and how far these may run ahead of
//! each other.

use crate::event::{is_switch, number_of, Ps};
use crate::network::{Paths, Switch};
use crate::world::Host;

/// Weight of a host relative to a port of a switch: a packet takes one or two events of a switch and a dozen of its
/// hosts.
const HOST_WEIGHT: usize = 8;

/// Assigns hosts and switches to parts.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) parts: usize,
    /// Run the parts at once even where that is slower.
    pub(crate) always: bool,
    pub(crate) hosts: Vec<u16>,
    pub(crate) switches: Vec<u16>,
    /// Minimum time from creating or forwarding a packet to its arrival at the next host or switch.
    pub(crate) packets: Ps,
    /// The same for a pause.
    pub(crate) pauses: Ps,
}

impl Division {
    pub(crate) fn new(
        (parts, always): (usize, bool),
        hosts: &[Host],
        switches: &[Switch],
        paths: &Paths,
    ) -> Self {
        let parts = parts.clamp(1, hosts.len().max(1));
        let mut weights = vec![0; parts];
        let mut place = |weight: usize| {
            let lightest = (0..parts).min_by_key(|&part| weights[part]).unwrap_or(0);
            weights[lightest] += weight;
            lightest as u16
        };
        let switches_of = switches.iter().map(|switch| place(switch.ports.len()));
        let switches_of = switches_of.collect();
        let hosts_of = hosts.iter().map(|_| place(HOST_WEIGHT)).collect();
        let (packets, pauses) = lookahead(hosts, switches, paths);
        Self {
            parts,
            always,
            hosts: hosts_of,
            switches: switches_of,
            packets,
            pauses,
        }
    }

    /// The part of a host.
    #[inline]
    pub(crate) fn of_host(&self, host: u16) -> usize {
        usize::from(self.hosts[usize::from(host)])
    }

    /// The part of a host or switch, by its node number.
    #[inline]
    pub(crate) fn of_node(&self, node: u16) -> usize {
        let parts = match is_switch(node) {
            true => &self.switches,
            false => &self.hosts,
        };
        usize::from(parts[usize::from(number_of(node))])
    }
}

/// Minimum over all cables, also those within a part: what is on its way to a buffer must be known at the start of a
/// window.
fn lookahead(hosts: &[Host], switches: &[Switch], paths: &Paths) -> (Ps, Ps) {
    let from_hosts = hosts.iter().zip(&paths.uplinks).flat_map(|(host, uplink)| {
        let nic = &host.nic.parameters;
        let cable = nic.pipeline + uplink.propagation;
        [cable, nic.pipeline + nic.loopback]
    });
    let from_switches = switches.iter().map(|switch| {
        let p = &switch.parameters;
        p.latency + p.propagation
    });
    let pauses = switches.iter().map(|switch| switch.parameters.propagation);
    let packets = from_hosts.chain(from_switches).min().unwrap_or(0);
    (packets, pauses.min().unwrap_or(0).min(packets))
}
