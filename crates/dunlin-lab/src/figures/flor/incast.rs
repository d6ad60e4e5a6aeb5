//! Flor Fig. 10, §6: many hosts call one.
//!
//! Declared before the first run: the lossy queue has neither pauses nor DCQCN, as §7.6 says; the server polls on all
//! of its 24 cores, since the paper does not say; a connection over UC has no backups, which would take memory and do
//! nothing; clients begin one after the other during the first 20 ms, and the window begins after 200 ms, since a
//! congestion window halves once per round trip, which takes 4.6 ms with a full buffer. With RC a NIC repeats after 17
//! ms without an answer; there the first 150 ms are counted.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, ClusterBuilder, Counters, HostId, SwitchId};

use super::{cluster_a, share};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Flor, FlorResult, Window};
use crate::parallel::Sweep;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-incast",
    title: "Flor Fig. 10: N hosts of 64 queue pairs ask one at 50 Gb/s, 32 KB, depth 8, neither PFC nor DCQCN",
    says: "the line's rate with any N; packets out of sequence above 50 hosts with chunks of 4 KB, none with 1 KB",
    run,
};

const BYTES: u32 = 32 << 10;
/// Threads of a client, and connections of each.
const EACH: usize = 8;
/// Minimum chunks, with the numbers of client hosts.
const LEAST: [(u32, &[usize]); 2] = [
    (4, &[1, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
    (1, &[1, 10, 30, 50, 70, 90]),
];
/// Numbers of retries with RC.
const RETRIES: [u8; 2] = [1, 2];
const MOST: usize = 90;
/// Out-of-sequence packets begin where their share exceeds this.
const BEGINS: f64 = 1e-4;
const STARTING_NS: u64 = 20_000_000;
/// Factor by which a quick run is shorter.
const QUICK: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Over UC, with this minimum chunk in KB and this many hosts.
    Unreliable(u32, usize),
    /// Over RC, with this many retries and hosts.
    Reliable(u8, usize),
}

/// Results of one point.
#[derive(Clone, Copy, Debug)]
struct Found {
    result: FlorResult,
    /// Gigabits per second on the server's line, including headers and gaps.
    line_gbit_s: f64,
    /// Share of the server's packets that arrived before a missing one.
    out_of_sequence: f64,
    /// The number of these.
    gaps: u64,
    /// Maximum bytes in the switch so far, in MB.
    buffer_mb: f64,
    connections: usize,
}

fn cluster(clients: usize, effort: Effort) -> (Cluster, SwitchId) {
    let mut builder = ClusterBuilder::new(effort.seed);
    let switch = builder.switch(cluster_a::switch(false, effort));
    for _ in 0..=clients {
        let nic = cluster_a::nic(false, effort);
        builder.host(cluster_a::host(effort), nic, switch);
    }
    (builder.build(), switch)
}

impl Point {
    fn clients(self) -> usize {
        match self {
            Self::Unreliable(_, clients) | Self::Reliable(_, clients) => clients,
        }
    }

    fn plan(self, effort: Effort) -> Flor {
        let (deployment, unit, paths, retries) = match self {
            Self::Unreliable(unit, _) => (Deployment::IntraPodUnreliable, unit, 1, RETRIES[1]),
            Self::Reliable(retries, _) => (Deployment::IntraPodReliable, 4, 3, retries),
        };
        Flor {
            threads: EACH,
            connections: EACH,
            server_threads: cluster_a::host(effort).cores as usize,
            unit_bytes: unit << 10,
            receives: 16,
            paths,
            retries,
            starting_ns: STARTING_NS / share(QUICK, effort),
            ..cluster_a::plan(deployment, BYTES)
        }
    }

    /// Over RC, connections are given up as time goes on, so everything is counted from the beginning.
    fn window(self, effort: Effort) -> Window {
        let (warm_ns, measured_ns) = match self {
            Self::Unreliable(..) => (200_000_000, 40_000_000),
            Self::Reliable(..) => (0, 150_000_000),
        };
        Window {
            warm_ns: warm_ns / share(QUICK, effort),
            measured_ns: measured_ns / share(QUICK, effort),
        }
    }

    fn run(self, effort: Effort) -> Found {
        let (cluster, switch) = cluster(self.clients(), effort);
        let hosts = cluster.hosts();
        let server = hosts[0];
        let pairs: Vec<(HostId, HostId)> = hosts[1..].iter().map(|&host| (host, server)).collect();
        let bench = self.plan(effort).start(&cluster, &pairs);
        let window = self.window(effort);
        cluster.run_for(window.warm_ns);
        let count = |host: HostId| cluster.counters(host);
        let sums = |of: fn(&Counters) -> u64| -> u64 {
            hosts[1..].iter().map(|&host| of(&count(host))).sum()
        };
        let both = || (sums(|c| c.wire_bytes), sums(|c| c.packets_sent));
        let (before, sent_before) = (count(server), both());
        let result = bench.measure(Window {
            warm_ns: 0,
            ..window
        });
        let (after, sent_after) = (count(server), both());
        let gaps = after.out_of_sequence - before.out_of_sequence;
        let packets = after.packets_received - before.packets_received;
        let (bytes, sent) = (sent_after.0 - sent_before.0, sent_after.1 - sent_before.1);
        // Arrived bytes: the mean packet size of the clients, times the packets that arrive.
        let arrived = bytes as f64 * packets as f64 / sent.max(1) as f64;
        let buffer = cluster.switch_counters(switch).buffer_bytes_max;
        let connections = bench.connections();
        bench.stop();
        Found {
            result,
            line_gbit_s: arrived * 8.0 / window.measured_ns as f64,
            out_of_sequence: gaps as f64 / packets.max(1) as f64,
            gaps,
            buffer_mb: buffer as f64 / 1e6,
            connections,
        }
    }
}

fn points(quick: bool) -> Vec<Point> {
    if quick {
        return vec![Point::Unreliable(2, 3), Point::Reliable(1, 2)];
    }
    let unreliable = LEAST.iter().flat_map(|&(unit, clients)| {
        let clients = clients.iter();
        clients.map(move |&clients| Point::Unreliable(unit, clients))
    });
    let reliable = RETRIES.map(|retries| Point::Reliable(retries, MOST));
    unreliable.chain(reliable).collect()
}

fn run(effort: Effort) -> Findings {
    let points = points(effort.quick);
    let sweep = Sweep::new(effort.threads, points, |point| point.run(effort));
    let mut findings = Findings::new("hosts that ask", "Gb/s; packets of 1,000; MB", false);
    let mut units: Vec<u32> = Vec::new();
    for (point, _) in sweep.iter() {
        match point {
            Point::Unreliable(unit, _) if !units.contains(unit) => units.push(*unit),
            _ => {}
        }
    }
    for unit in units {
        let line = |value: &dyn Fn(&Found) -> f64| -> Vec<(f64, f64)> {
            let of_unit = sweep.iter().filter_map(|(point, found)| match *point {
                Point::Unreliable(own, clients) if own == unit => {
                    Some((clients as f64, value(found)))
                }
                _ => None,
            });
            of_unit.collect()
        };
        findings.line(
            &format!("{unit} KB, Gb/s of the line"),
            line(&|found| found.line_gbit_s),
        );
        let payload: &dyn Fn(&Found) -> f64 = &|found| found.result.gbit_s;
        findings.line(&format!("{unit} KB, Gb/s of payload"), line(payload));
        findings.line(
            &format!("{unit} KB, out of sequence, of 1,000"),
            line(&|found| found.out_of_sequence * 1e3),
        );
        findings.line(
            &format!("{unit} KB, most in the switch, MB"),
            line(&|found| found.buffer_mb),
        );
    }
    let counts: [(&str, fn(&FlorResult) -> u64); 2] = [
        ("changes to a backup over RC, by retries", |result| {
            result.switches
        }),
        (
            "requests failed and connections lost over RC, by retries",
            |result| result.failed,
        ),
    ];
    for (name, value) in counts {
        let of_reliable = sweep.iter().filter_map(|(point, found)| match *point {
            Point::Reliable(retries, _) => Some((f64::from(retries), value(&found.result) as f64)),
            Point::Unreliable(..) => None,
        });
        findings.line(name, of_reliable.collect());
    }
    if effort.quick {
        return findings;
    }
    let of = |wanted: Point| sweep.of(&wanted);
    let unreliable = sweep
        .iter()
        .filter(|(point, _)| matches!(point, Point::Unreliable(..)));
    let least = unreliable
        .map(|(_, found)| found.line_gbit_s)
        .fold(f64::INFINITY, f64::min);
    let why = "Gb/s of the line, headers and gaps included, the least of all numbers of hosts and both least chunks";
    findings.answer(
        "FR-036",
        "consistently 50 Gbps",
        least,
        (47.0, f64::INFINITY),
        why,
    );
    let numbers = LEAST[0].1.iter();
    let begins = numbers
        .copied()
        .find(|&clients| of(Point::Unreliable(4, clients)).out_of_sequence > BEGINS);
    let why =
        "hosts from which on over one packet in 10,000 is out of sequence, least chunks of 4 KB; 1,000: none up to 90";
    let ours = begins.map_or(1_000.0, |clients| clients as f64);
    findings.answer("FR-037", "larger than 50", ours, (35.0, 65.0), why);
    let why = "packets out of sequence in 40 ms with 90 hosts, chunks of 1 KB at least";
    findings.answer(
        "FR-038",
        "avoided",
        of(Point::Unreliable(1, MOST)).gaps as f64,
        (0.0, 0.0),
        why,
    );
    let why = "connections that ask at once with 90 hosts";
    let degree = of(Point::Unreliable(4, MOST)).connections as f64;
    findings.answer("FR-039", "~6000", degree, (5_760.0, 5_760.0), why);
    let why = "changes to a backup in 150 ms with one retry less those with two, 90 hosts over RC";
    let switches = |retries| of(Point::Reliable(retries, MOST)).result.switches as f64;
    let more = switches(RETRIES[0]) - switches(RETRIES[1]);
    findings.answer(
        "FR-015",
        "too many with one retry",
        more,
        (1.0, f64::INFINITY),
        why,
    );
    findings
}
