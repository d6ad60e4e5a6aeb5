//! Routing between switches: shortest paths, with one of several equal ones chosen by flow.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Link, Port, Switch};
use crate::event::Ps;
use crate::placed::Placed;
use crate::random::mix;

/// Where a host is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uplink {
    pub(crate) switch: u16,
    pub(crate) port: u16,
    /// Propagation delay of the cable.
    pub(crate) propagation: Ps,
}

/// Cables and routes, which do not change while a cluster runs.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Uplink of each host.
    pub(crate) uplinks: Vec<Uplink>,
    /// Ports on shortest paths, for each switch and host.
    routes: Vec<Vec<Vec<u16>>>,
    /// Priorities for which switches pause their senders before they drop, a bit each.
    pub(crate) lossless: u8,
}

impl Paths {
    /// Computes the routes from all hosts and links.
    pub(crate) fn new(switches: &[Switch], uplinks: &[(u16, u16)]) -> Self {
        let routes = (0..switches.len())
            .map(|_| vec![Vec::new(); uplinks.len()])
            .collect();
        let uplink = |&(switch, port): &(u16, u16)| Uplink {
            switch,
            port,
            propagation: switches[usize::from(switch)].parameters.propagation,
        };
        let mut paths = Self {
            uplinks: uplinks.iter().map(uplink).collect(),
            routes,
            lossless: switches
                .first()
                .map_or(0, |switch| switch.parameters.lossless_priorities()),
        };
        for host in 0..uplinks.len() {
            paths.route_to(host, switches);
        }
        paths
    }

    fn route_to(&mut self, host: usize, switches: &[Switch]) {
        let Uplink { switch, port, .. } = self.uplinks[host];
        let home = switch;
        let mut distance = vec![u32::MAX; switches.len()];
        distance[usize::from(home)] = 0;
        let mut waiting = VecDeque::from([home]);
        while let Some(switch) = waiting.pop_front() {
            let next = distance[usize::from(switch)] + 1;
            for port in &switches[usize::from(switch)].ports {
                if let Link::Switch(other, _) = port.link {
                    if distance[usize::from(other)] == u32::MAX {
                        distance[usize::from(other)] = next;
                        waiting.push_back(other);
                    }
                }
            }
        }
        for (switch, routes) in self.routes.iter_mut().enumerate() {
            let towards = |port: &Port| match port.link {
                Link::Switch(other, _) => {
                    distance[usize::from(other)] != u32::MAX
                        && distance[usize::from(other)] < distance[switch]
                }
                Link::Host(_) => false,
            };
            let ports = switches[switch].ports.iter().zip(0..);
            routes[host] = if switch == usize::from(home) {
                vec![port]
            } else {
                ports
                    .filter(|(port, _)| towards(port))
                    .map(|(_, number)| number)
                    .collect()
            };
        }
    }

    /// Whether there is a path from one host to another.
    pub(crate) fn reaches(&self, from: u16, to: u16) -> bool {
        let switch = self.uplinks[usize::from(from)].switch;
        from == to || !self.routes[usize::from(switch)][usize::from(to)].is_empty()
    }
}

/// The switches of a part, and the paths between all switches.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) switches: Placed<Switch>,
    pub(crate) paths: Arc<Paths>,
}

impl Network {
    /// The port by which a packet of a flow leaves a switch towards a host; `None` if there is no path.
    #[inline]
    pub(crate) fn route(&self, switch: u16, host: u16, flow: u64) -> Option<u16> {
        let ports = &self.paths.routes[usize::from(switch)][usize::from(host)];
        match ports.len() {
            0 => None,
            1 => Some(ports[0]),
            count => {
                let salt = self.switches[usize::from(switch)].salt;
                Some(ports[(mix(flow ^ salt) % count as u64) as usize])
            }
        }
    }
}
