//! How a cluster is divided into parts that several real threads simulate, and how far those may run ahead of each
//! other.

use crate::event::{is_switch, number_of, Ps};
use crate::network::{Paths, Switch};
use crate::world::Host;

/// What a host weighs where a port of a switch weighs one: a packet is an event or two of a switch and a dozen of its
/// hosts.
const HOST_WEIGHT: usize = 8;

/// Which part has which hosts and switches.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) parts: usize,
    /// Parts run at once also where that is slower.
    pub(crate) always: bool,
    pub(crate) hosts: Vec<u16>,
    pub(crate) switches: Vec<u16>,
    /// From when a packet is made or passed on to when it reaches the next host or switch, at least.
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

    /// The part of a host or switch, by its number as a node.
    #[inline]
    pub(crate) fn of_node(&self, node: u16) -> usize {
        let parts = match is_switch(node) {
            true => &self.switches,
            false => &self.hosts,
        };
        usize::from(parts[usize::from(number_of(node))])
    }
}

/// Over all cables, those within a part too: what is under way to a buffer is to be known at the beginning of a window.
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
