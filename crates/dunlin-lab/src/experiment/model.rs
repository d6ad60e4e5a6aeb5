//! One point of an experiment, checked: what a cluster is built from and what its clients do.

use std::time::Duration;

use dunlin::{Grouping, Preset};
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use super::check::{self, Values};
use super::column::{self, Column, Groups};
use super::fault::{self, Fault};
use super::flows::{self, Flows};
use super::mistake::{instead, Mistake, Place};
use super::network::{self, Network};
use super::parameters::{self, Change};
use super::tree::Table;
use super::verbs::{self, Verbs};
use super::Around;

/// A point.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) switch: SwitchParameters,
    pub(super) switches: usize,
    /// Cables between switches.
    pub(super) cables: Vec<Cables>,
    pub(super) hosts: Vec<Hosts>,
    /// `None` where there are only flows or verbs.
    pub(super) server: Option<Server>,
    pub(super) clients: Vec<Clients>,
    pub(super) flows: Vec<Flows>,
    pub(super) verbs: Vec<Verbs>,
    pub(super) faults: Vec<Fault>,
    pub(super) run: Run,
    pub(super) columns: Vec<Column>,
    pub(super) every_ns: Option<u64>,
}

/// Cables between two switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cables {
    pub(super) one: usize,
    pub(super) other: usize,
    pub(super) count: usize,
    pub(super) gbit_s: f64,
}

/// A group of hosts.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    pub(super) name: String,
    pub(super) count: usize,
    pub(super) nic: NicParameters,
    pub(super) cpu: HostParameters,
    /// The switch of each host.
    pub(super) switches: Vec<usize>,
}

/// The server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Index of its host.
    pub(super) host: usize,
    pub(super) pollers: usize,
    pub(super) handler_ns: u64,
    pub(super) most_active: usize,
    pub(super) grouping: Grouping,
    /// Maximum number of responses per datagram.
    pub(super) datagram_messages: usize,
}

/// A group of clients.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    pub(super) name: String,
    /// Indices of their hosts.
    pub(super) hosts: Vec<usize>,
    pub(super) processes: usize,
    pub(super) threads: usize,
    pub(super) preset: Preset,
    pub(super) lanes: usize,
    pub(super) dispatcher: bool,
    pub(super) outstanding: usize,
    /// Whether calls that are due together are sent together.
    pub(super) together: bool,
    pub(super) request_bytes: usize,
    /// One thread in this many has requests of this size instead.
    pub(super) large: Option<(usize, usize)>,
    pub(super) response_bytes: usize,
    pub(super) think: Duration,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) deadline: Duration,
    pub(super) loss_timeout: Duration,
    /// Maximum number of requests per datagram.
    pub(super) datagram_messages: usize,
}

impl Clients {
    /// Number of threads of all of them.
    pub(super) fn all_threads(&self) -> usize {
        self.hosts.len() * self.processes * self.threads
    }

    /// Request size of this thread of a process.
    pub(super) fn request_of(&self, thread: usize) -> usize {
        match self.large {
            Some((one_in, bytes)) if thread % one_in == one_in - 1 => bytes,
            _ => self.request_bytes,
        }
    }
}

/// An open loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    /// Mean interval between two calls of a thread.
    pub(super) gap_ns: f64,
    /// Whether intervals are random; otherwise calls are evenly spaced.
    pub(super) random: bool,
}

/// Durations and seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) seed: u64,
    /// Duration of a low rate at the beginning; with `None`, threads stand by until all have connected.
    pub(super) paced_ns: Option<u64>,
    pub(super) warm_ns: u64,
    pub(super) measured_ns: u64,
    /// Windows are repeated until the rate changes by less than this share.
    pub(super) settled: Option<f64>,
    /// Maximum number of windows.
    pub(super) windows: usize,
    pub(super) repeats: usize,
}

/// Maximum number of hosts of a cluster, and of client threads: each has a stack in memory.
const HOSTS_MOST: usize = 4096;
const THREADS_MOST: usize = 16_384;
/// Maximum number of pieces of a time series.
const PIECES: u64 = 10_000;

impl Point {
    /// Reads a tree.
    pub(super) fn read(root: &Table, around: &Around) -> Result<Self, Mistake> {
        let topology = check::one(root, "topology")?;
        let mut changes = parameters::changes(root)?;
        let network = network(root, &topology, around)?;
        let switches = match &network {
            Some(network) => {
                // The file's own changes take precedence.
                let of_network = [
                    Change::new("nic", "link_gbit_s", network.host_gbit_s),
                    Change::new("switch", "propagation_ns", network.delay_ns),
                ];
                changes.splice(0..0, of_network);
                network.switches
            }
            None => topology.count("switches") as usize,
        };
        let mut hosts = Vec::<Hosts>::new();
        for group in check::all(root, "topology.hosts")? {
            let hosts_of = Hosts::read(&group, around, (switches, network.as_ref()), &changes)?;
            if hosts.iter().any(|other| other.name == hosts_of.name) {
                let found = format!("\"{}\"", hosts_of.name);
                return Err(group.wrong("name", &found, "another group has this name"));
            }
            hosts.push(hosts_of);
            let count: usize = hosts.iter().map(|group| group.count).sum();
            if count > HOSTS_MOST {
                let must = format!("with it there are {count} hosts, {HOSTS_MOST} at most");
                return Err(group.wrong("count", &group.count("count").to_string(), must));
            }
        }
        parameters::agree_on_mtu(&mut hosts, &changes);
        let flows = flows::read(root, around, (&hosts, network.as_ref()))?;
        let verbs = verbs::read(root, &hosts)?;
        // With flows or verbs, calls are optional.
        let calls = root.get("server").is_some() || root.get("clients").is_some();
        let server = match calls || (flows.is_empty() && verbs.is_empty()) {
            true => Some(Server::read(
                &check::one_of_needed(root, "server")?,
                &hosts,
            )?),
            false => None,
        };
        let mut clients = Vec::<Clients>::new();
        for (number, group) in check::all(root, "clients")?.iter().enumerate() {
            let clients_of = Clients::read(group, number, &hosts)?;
            if clients.iter().any(|other| other.name == clients_of.name) {
                let found = format!("\"{}\"", clients_of.name);
                return Err(group.wrong("name", &found, "another group has this name"));
            }
            clients.push(clients_of);
            let count: usize = clients.iter().map(Clients::all_threads).sum();
            if count > THREADS_MOST {
                let must = format!("with it clients have {count} threads, {THREADS_MOST} at most");
                return Err(group.wrong("threads", &group.count("threads").to_string(), must));
            }
        }
        if server.is_some() && clients.is_empty() {
            return Err(Mistake::new(
                Place::Nowhere,
                "there is no table [[clients]]",
            ));
        }
        let run = check::one(root, "run")?;
        let run = Run {
            seed: run.count("seed"),
            warm_ns: run.count("warm_up"),
            measured_ns: run.count("duration"),
            paced_ns: run.number("paced").map(|ns| ns.round() as u64),
            settled: run.number("settle"),
            windows: run.count("windows") as usize,
            repeats: run.count("repeats") as usize,
        };
        let print = check::one(root, "print")?;
        let every_ns = print.number("every").map(|ns| ns.round() as u64);
        if every_ns.is_some_and(|every| run.measured_ns.div_ceil(every) > PIECES) {
            let found = format!("{} ns", every_ns.unwrap_or(0));
            let must = format!("that is more than {PIECES} pieces of the duration");
            return Err(print.wrong("every", &found, must));
        }
        let groups = Groups {
            clients: clients.iter().map(|group| group.name.as_str()).collect(),
            flows: flows.iter().map(|group| group.name.as_str()).collect(),
            verbs: verbs.iter().map(|group| group.name.as_str()).collect(),
            hosts: hosts.iter().map(|group| group.name.as_str()).collect(),
        };
        let column = |text: &String| {
            column::find(text, &groups)
                .map_err(|why| print.wrong("columns", &format!("{text:?}"), why))
        };
        let mut texts = print.texts("columns");
        if texts.is_empty() {
            texts = groups.usual_columns();
        }
        Ok(Self {
            columns: texts.iter().map(column).collect::<Result<_, _>>()?,
            every_ns,
            switch: parameters::switch(&topology, around, &changes)?,
            switches,
            cables: match network {
                Some(network) => network.cables,
                None => cables(root, &topology, switches)?,
            },
            server,
            faults: fault::read(root, &hosts)?,
            hosts,
            clients,
            flows,
            verbs,
            run,
        })
    }
}

/// The network from another simulator's file, if one is named. It defines all hosts and cables.
fn network(
    root: &Table,
    topology: &Values<'_>,
    around: &Around,
) -> Result<Option<Network>, Mistake> {
    let Some(file) = topology.text("ns3") else {
        return Ok(None);
    };
    let of_file = "it is for a network without a file: `topology.ns3` has it";
    if let Some(key) = ["switches", "links", "link_rate"]
        .iter()
        .find(|key| topology.has(key))
    {
        return Err(topology.wrong(key, "there", of_file));
    }
    if let Some(table) = check::all(root, "topology.cables")?.first() {
        return Err(table.wrong("switches", "there", of_file));
    }
    let groups = check::all(root, "topology.hosts")?;
    if let [_, second, ..] = &groups[..] {
        let must = "with `topology.ns3` one table says what all hosts are";
        return Err(second.wrong("name", "of a second group", must));
    }
    for group in &groups {
        if let Some(key) = ["count", "switch"].iter().find(|key| group.has(key)) {
            return Err(group.wrong(key, "there", of_file));
        }
    }
    let wrong = |why: String| topology.wrong("ns3", &format!("{file:?}"), why);
    let text = std::fs::read_to_string(around.folder.join(&file));
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let network = network::parse(&text, HOSTS_MOST).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(network))
}

/// The cables of their tables, or else those of a row.
fn cables(root: &Table, topology: &Values<'_>, switches: usize) -> Result<Vec<Cables>, Mistake> {
    let tables = check::all(root, "topology.cables")?;
    if tables.is_empty() {
        let between = |one| Cables {
            one,
            other: one + 1,
            count: topology.count("links") as usize,
            gbit_s: topology.number("link_rate").unwrap_or_default(),
        };
        return Ok((0..switches - 1).map(between).collect());
    }
    if let Some(key) = ["links", "link_rate"].iter().find(|key| topology.has(key)) {
        let must = "it is of a row of switches, and with [[topology.cables]] there is none";
        return Err(topology.wrong(key, "there", must));
    }
    let mut all = Vec::new();
    for table in &tables {
        let numbers = table.counts("switches");
        let wrong = |must: String| {
            let found = format!("{numbers:?}");
            Err(table.wrong("switches", &found, must))
        };
        if numbers.iter().any(|&number| number >= switches as u64) {
            return wrong(format!("there are {switches} switches, from 0"));
        }
        let (one, others) = (numbers[0], &numbers[1..]);
        if others.contains(&one) {
            return wrong("a cable is between two switches".to_owned());
        }
        all.extend(others.iter().map(|&other| Cables {
            one: one as usize,
            other: other as usize,
            count: table.count("count") as usize,
            gbit_s: table.number("rate").unwrap_or_default(),
        }));
    }
    Ok(all)
}

impl Hosts {
    fn read(
        group: &Values<'_>,
        around: &Around,
        (switches, network): (usize, Option<&Network>),
        changes: &[Change],
    ) -> Result<Self, Mistake> {
        let switch = group.count("switch") as usize;
        if switch >= switches {
            let must = format!("there are {switches} switches, from 0");
            return Err(group.wrong("switch", &switch.to_string(), must));
        }
        let name = group.text("name").unwrap_or_default();
        if name.contains('.') {
            return Err(group.wrong("name", &format!("{name:?}"), "a name has no dot"));
        }
        let switches = match network {
            Some(network) => network.hosts.iter().map(|(_, switch)| *switch).collect(),
            None => vec![switch; group.count("count") as usize],
        };
        Ok(Self {
            name,
            count: switches.len(),
            nic: parameters::nic(group, around, changes)?,
            cpu: parameters::cpu(group, around, changes)?,
            switches,
        })
    }
}

impl Server {
    fn read(server: &Values<'_>, hosts: &[Hosts]) -> Result<Self, Mistake> {
        let host = numbers(server, "host", hosts)?[0];
        let pollers = server.count("pollers") as usize;
        let cores = cores_of(host, hosts);
        if pollers > cores {
            let must = format!("its host has {cores} cores");
            return Err(server.wrong("pollers", &pollers.to_string(), must));
        }
        Ok(Self {
            host,
            pollers,
            handler_ns: server.count("handler"),
            most_active: server.count("max_active") as usize,
            grouping: Grouping {
                clients: server.count("group") as usize,
                slice: Duration::from_nanos(server.count("slice")),
                by_priority: false,
                warm_up_beside: server.flag("warm_up_beside"),
            },
            datagram_messages: server.count("datagram_messages") as usize,
        })
    }
}

impl Clients {
    fn read(group: &Values<'_>, number: usize, hosts: &[Hosts]) -> Result<Self, Mistake> {
        let threads = group.count("threads") as usize;
        let preset = group.text("preset").unwrap_or_default();
        let mut clients = Self {
            name: group.text("name").unwrap_or_else(|| number.to_string()),
            hosts: numbers(group, "hosts", hosts)?,
            processes: group.count("processes") as usize,
            threads,
            preset: preset.parse().expect("one of the words of this key"),
            lanes: group
                .number("lanes")
                .map_or(threads.min(256), |lanes| lanes as usize),
            dispatcher: group.flag("dispatcher"),
            outstanding: group.count("outstanding") as usize,
            together: group.flag("together"),
            request_bytes: group.count("request") as usize,
            large: None,
            response_bytes: group.count("response") as usize,
            think: Duration::from_nanos(group.count("think")),
            arrivals: None,
            deadline: Duration::from_nanos(group.count("deadline")),
            loss_timeout: Duration::from_nanos(group.count("loss_timeout")),
            datagram_messages: group.count("datagram_messages") as usize,
        };
        if let Some(bytes) = group.number("large") {
            clients.large = Some((group.count("large_every") as usize, bytes as usize));
        } else if group.has("large_every") {
            let found = group.count("large_every").to_string();
            return Err(group.wrong(
                "large_every",
                &found,
                "it is for long requests: give `large`",
            ));
        }
        if let Some(rate) = group.number("rate") {
            if group.has("think") {
                let found = format!("{:?}", clients.think);
                let must = "calls of an open loop (`rate`) do not wait for answers: leave one out";
                return Err(group.wrong("think", &found, must));
            }
            clients.arrivals = Some(Arrivals {
                gap_ns: clients.all_threads() as f64 * 1e9 / rate,
                random: group.text("arrivals").as_deref() == Some("poisson"),
            });
        } else if group.has("arrivals") {
            let found = format!("{:?}", group.text("arrivals").unwrap_or_default());
            return Err(group.wrong("arrivals", &found, "it is for an open loop: give a `rate`"));
        }
        Ok(clients)
    }
}

/// Indices of the hosts that a key names, in the cluster's order.
pub(super) fn numbers(
    values: &Values<'_>,
    key: &str,
    hosts: &[Hosts],
) -> Result<Vec<usize>, Mistake> {
    let mut all = Vec::new();
    for text in values.texts(key) {
        let (name, which) = match text.split_once('.') {
            Some((name, which)) => (name, Some(which)),
            None => (text.as_str(), None),
        };
        let place = hosts.iter().position(|group| group.name == name);
        let Some(place) = place else {
            let names: Vec<&str> = hosts.iter().map(|group| group.name.as_str()).collect();
            let must = format!("no group of hosts{}", instead(name, &names));
            return Err(values.wrong(key, &format!("{text:?}"), must));
        };
        let first: usize = hosts[..place].iter().map(|group| group.count).sum();
        let count = hosts[place].count;
        match which.map(|which| which.parse().ok().filter(|&which: &usize| which < count)) {
            None => all.extend(first..first + count),
            Some(Some(which)) => all.push(first + which),
            Some(None) => {
                let must = format!("the group has the hosts {name}.0 to {name}.{}", count - 1);
                return Err(values.wrong(key, &format!("{text:?}"), must));
            }
        }
    }
    Ok(all)
}

/// The group of a host.
fn group_of(host: usize, hosts: &[Hosts]) -> &Hosts {
    let mut all = hosts
        .iter()
        .flat_map(|group| (0..group.count).map(move |_| group));
    all.nth(host).expect("the number of a host")
}

/// Number of cores of a host.
pub(super) fn cores_of(host: usize, hosts: &[Hosts]) -> usize {
    group_of(host, hosts).cpu.cores as usize
}

/// The NIC of a host.
pub(super) fn nic_of(host: usize, hosts: &[Hosts]) -> &NicParameters {
    &group_of(host, hosts).nic
}
