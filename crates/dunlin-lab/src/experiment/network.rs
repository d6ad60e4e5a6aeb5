//! A network in the file of another simulator: the topology of HPCC's ns-3.
//!
//! The format is `NODES SWITCHES CABLES`, the numbers of the switches, and `NODE NODE RATE DELAY LOSS` for each cable;
//! anything after that many cables is ignored. That simulator reads words, regardless of line ends.

use super::model::Cables;
use super::unit::{Dimension, BANDWIDTH, TIME};

/// Maximum number of switches of a file.
const SWITCHES_MOST: usize = 1024;

/// The network of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Network {
    pub(super) switches: usize,
    /// Cables between switches.
    pub(super) cables: Vec<Cables>,
    /// The hosts by their numbers in the file, each with the index of its switch.
    pub(super) hosts: Vec<(u64, usize)>,
    /// Rate of the hosts' cables.
    pub(super) host_gbit_s: f64,
    /// Delay of all cables.
    pub(super) delay_ns: f64,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NetworkError {
    #[error("line {line}: the {name} is {found}: it must be {must}")]
    Word {
        line: usize,
        name: &'static str,
        found: String,
        must: String,
    },
    #[error("line {line}: {what}")]
    Cable { line: usize, what: String },
    #[error("node {node} has no cable: each host needs one, to a switch")]
    Alone { node: u64 },
    #[error("there are no hosts: some of the nodes must not be switches")]
    NoHost,
}

/// Words with their line numbers.
struct Words<'a> {
    all: std::vec::IntoIter<(&'a str, usize)>,
    line: usize,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let words = text.lines().zip(1..);
        let words = words.flat_map(|(text, line)| text.split_whitespace().map(move |w| (w, line)));
        Self {
            all: words.collect::<Vec<_>>().into_iter(),
            line: 1,
        }
    }

    /// Parses the next word with `read`.
    fn next<T>(
        &mut self,
        name: &'static str,
        must: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, NetworkError> {
        let word = self.all.next();
        self.line = word.map_or(self.line, |(_, line)| line);
        let value = word.and_then(|(word, _)| read(word));
        value.ok_or_else(|| NetworkError::Word {
            line: self.line,
            name,
            found: word.map_or("missing".to_owned(), |(word, _)| format!("{word:?}")),
            must: must.to_owned(),
        })
    }

    fn number(&mut self, name: &'static str, least: u64, most: u64) -> Result<u64, NetworkError> {
        let must = format!("a whole number from {least} to {most}");
        let inside = |number: &u64| (least..=most).contains(number);
        self.next(name, &must, |word| word.parse().ok().filter(inside))
    }

    fn quantity(&mut self, name: &'static str, of: Dimension) -> Result<f64, NetworkError> {
        let least = |value: &f64| *value > 0.0 && value.is_finite();
        self.next(name, &of.words(), |word| of.parse(word).filter(least))
    }
}

/// A cable from the file.
struct Cable {
    line: usize,
    ends: [u64; 2],
    gbit_s: f64,
    delay_ns: f64,
}

/// Parses a file; hosts are ordered by their numbers.
pub(super) fn parse(text: &str, hosts_most: usize) -> Result<Network, NetworkError> {
    let mut words = Words::of(text);
    let most = (hosts_most + SWITCHES_MOST) as u64;
    let nodes = words.number("number of nodes", 2, most)?;
    let switches = words.number("number of switches", 1, nodes.min(SWITCHES_MOST as u64))?;
    let cables = words.number("number of cables", 1, most * 64)?;
    let mut numbers = Vec::new();
    for _ in 0..switches {
        let number = words.number("number of a switch", 0, nodes - 1)?;
        if numbers.contains(&number) {
            let line = words.line;
            let what = format!("switch {number} is listed twice");
            return Err(NetworkError::Cable { line, what });
        }
        numbers.push(number);
    }
    let cables = (0..cables).map(|_| cable(&mut words, nodes));
    assemble(nodes, &numbers, &cables.collect::<Result<Vec<_>, _>>()?)
}

fn cable(words: &mut Words<'_>, nodes: u64) -> Result<Cable, NetworkError> {
    let one = words.number("first node of a cable", 0, nodes - 1)?;
    let line = words.line;
    let other = words.number("second node of a cable", 0, nodes - 1)?;
    let gbit_s = words.quantity("rate of a cable", BANDWIDTH)?;
    let delay_ns = words.quantity("delay of a cable", TIME)?;
    let lossless = "0: cables lose nothing here; [[faults]] of the kind `loss` do";
    words.next("error rate of a cable", lossless, |word| {
        word.parse().ok().filter(|loss: &f64| *loss == 0.0)
    })?;
    Ok(Cable {
        line,
        ends: [one, other],
        gbit_s,
        delay_ns,
    })
}

fn assemble(nodes: u64, switches: &[u64], all: &[Cable]) -> Result<Network, NetworkError> {
    let place = |node: u64| switches.iter().position(|&number| number == node);
    let (mut cables, mut hosts) = (Vec::new(), Vec::<(u64, usize)>::new());
    let mut host_gbit_s = None;
    let delay_ns = all.first().map_or(0.0, |cable| cable.delay_ns);
    for cable in all {
        let wrong = |what: String| {
            Err(NetworkError::Cable {
                line: cable.line,
                what,
            })
        };
        let [one, other] = cable.ends;
        if cable.delay_ns != delay_ns {
            let (this, first) = (cable.delay_ns, delay_ns);
            return wrong(format!(
                "its delay is {this} ns, but the first cable's is {first} ns: all cables must have the same delay"
            ));
        }
        let (host, switch) = match (place(one), place(other)) {
            (Some(one), Some(other)) if one == other => {
                return wrong("a cable connects a switch to itself".to_owned());
            }
            (Some(one), Some(other)) => {
                cables.push(Cables {
                    one,
                    other,
                    count: 1,
                    gbit_s: cable.gbit_s,
                });
                continue;
            }
            (None, Some(switch)) => (one, switch),
            (Some(switch), None) => (other, switch),
            (None, None) => {
                return wrong(format!(
                    "nodes {one} and {other} are both hosts: a host's cable must lead to a switch"
                ));
            }
        };
        if hosts.iter().any(|(number, _)| *number == host) {
            return wrong(format!(
                "node {host} has a second cable: a host can have only one"
            ));
        }
        let rate = *host_gbit_s.get_or_insert(cable.gbit_s);
        if rate != cable.gbit_s {
            let this = cable.gbit_s;
            return wrong(format!(
                "the rate of a host's cable is {this} Gbps, but that of others is {rate}: all must have the same rate"
            ));
        }
        hosts.push((host, switch));
    }
    let Some(host_gbit_s) = host_gbit_s else {
        return Err(NetworkError::NoHost);
    };
    let is_alone =
        |node: &u64| place(*node).is_none() && !hosts.iter().any(|(host, _)| host == node);
    if let Some(node) = (0..nodes).find(is_alone) {
        return Err(NetworkError::Alone { node });
    }
    hosts.sort_unstable();
    Ok(Network {
        switches: switches.len(),
        cables,
        hosts,
        host_gbit_s,
        delay_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str =
        "5 2 4\n0 3 \n1 0 25Gbps 0.001ms 0\n\n2 0 25Gbps 1us 0.0\n4 3 25Gbps 1000ns 0\n\
                         0 3 100Gbps 1us 0\nnode node rate delay loss\n";

    #[test]
    fn a_network_is_read_as_it_is() {
        let network = parse(RIGHT, 100).expect("right");
        assert_eq!((network.switches, network.host_gbit_s), (2, 25.0));
        assert_eq!(network.hosts, [(1, 0), (2, 0), (4, 1)]);
        assert_eq!(network.delay_ns, 1_000.0);
        let [cable] = &network.cables[..] else {
            panic!("{network:?}");
        };
        assert_eq!((cable.one, cable.other, cable.gbit_s), (0, 1, 100.0));
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        for (from, to, message) in [
            (
                "5 2 4",
                "five 2 4",
                "line 1: the number of nodes is \"five\": it must be a whole number from 2",
            ),
            (
                "0 3 \n",
                "0 9 \n",
                "line 2: the number of a switch is \"9\": it must be a whole number from 0 to 4",
            ),
            ("0 3 \n", "0 0 \n", "line 2: switch 0 is listed twice"),
            (
                "2 0 25Gbps",
                "2 0 fast",
                "line 5: the rate of a cable is \"fast\": it must be a bandwidth in Gbps, Mbps",
            ),
            (
                "1us 0.0",
                "1us 0.01",
                "line 5: the error rate of a cable is \"0.01\": it must be 0: cables lose nothing",
            ),
            (
                "1us 0.0",
                "2us 0.0",
                "line 5: its delay is 2000 ns, but the first cable's is 1000 ns",
            ),
            (
                "2 0 25Gbps",
                "2 0 50Gbps",
                "line 5: the rate of a host's cable is 50 Gbps, but that of others is 25",
            ),
            ("4 3 25", "2 3 25", "line 6: node 2 has a second cable"),
            ("4 3 25", "4 1 25", "line 6: nodes 4 and 1 are both hosts"),
            (
                "0 3 100",
                "0 0 100",
                "line 7: a cable connects a switch to itself",
            ),
            ("5 2 4", "6 2 4", "node 5 has no cable"),
            (
                "0 3 100Gbps 1us 0\nnode node rate delay loss\n",
                "",
                "the first node of a cable is missing",
            ),
        ] {
            assert!(RIGHT.contains(from), "{from}");
            let text = RIGHT.replacen(from, to, 1);
            let said = parse(&text, 100).expect_err(to).to_string();
            assert!(said.contains(message), "{to}: {said}");
        }
    }
}
