//! Which switch a packet passes next: shortest paths, and one of several equal ones by flow.

use std::collections::VecDeque;

use super::{Link, Port, Switch};
use crate::random::mix;

/// Switches, cables and routes.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) switches: Vec<Switch>,
    /// Switch and port of each host.
    pub(crate) uplinks: Vec<(u16, u16)>,
    /// For each switch and host the ports on shortest paths.
    routes: Vec<Vec<Vec<u16>>>,
}

impl Network {
    /// Adds a port to a switch and gives its number.
    pub(crate) fn add_port(&mut self, switch: u16, link: Link, gbit_s: f64) -> u16 {
        let ports = &mut self.switches[usize::from(switch)].ports;
        ports.push(Port::new(link, gbit_s));
        (ports.len() - 1) as u16
    }

    /// Computes the routes; all hosts and links are there.
    pub(crate) fn connect(&mut self) {
        let (switches, hosts) = (self.switches.len(), self.uplinks.len());
        self.routes = vec![vec![Vec::new(); hosts]; switches];
        for host in 0..hosts {
            let (home, port) = self.uplinks[host];
            let mut distance = vec![u32::MAX; switches];
            distance[usize::from(home)] = 0;
            let mut waiting = VecDeque::from([home]);
            while let Some(switch) = waiting.pop_front() {
                let next = distance[usize::from(switch)] + 1;
                for port in &self.switches[usize::from(switch)].ports {
                    if let Link::Switch(other, _) = port.link {
                        if distance[usize::from(other)] == u32::MAX {
                            distance[usize::from(other)] = next;
                            waiting.push_back(other);
                        }
                    }
                }
            }
            for switch in 0..switches {
                let towards = |port: &Port| match port.link {
                    Link::Switch(other, _) => {
                        distance[usize::from(other)] != u32::MAX
                            && distance[usize::from(other)] < distance[switch]
                    }
                    Link::Host(_) => false,
                };
                let ports = self.switches[switch].ports.iter().zip(0..);
                self.routes[switch][host] = if switch == usize::from(home) {
                    vec![port]
                } else {
                    ports
                        .filter(|(port, _)| towards(port))
                        .map(|(_, number)| number)
                        .collect()
                };
            }
        }
    }

    /// The port by which a packet of a flow leaves a switch for a host; none when there is no way.
    #[inline]
    pub(crate) fn route(&self, switch: u16, host: u16, flow: u64) -> Option<u16> {
        let ports = &self.routes[usize::from(switch)][usize::from(host)];
        match ports.len() {
            0 => None,
            1 => Some(ports[0]),
            count => {
                let salt = self.switches[usize::from(switch)].salt;
                Some(ports[(mix(flow ^ salt) % count as u64) as usize])
            }
        }
    }

    /// Whether there is a way from one host to another.
    pub(crate) fn reaches(&self, from: u16, to: u16) -> bool {
        from == to
            || self
                .route(self.uplinks[usize::from(from)].0, to, 0)
                .is_some()
    }

    /// Whether switches pause their senders before they drop.
    pub(crate) fn is_lossless(&self) -> bool {
        self.switches
            .first()
            .is_some_and(|switch| switch.parameters.lossless != 0.0)
    }
}
