//! The flows requested by the tables of a file, checked.

use super::super::check::{self, Values};
use super::super::mistake::Mistake;
use super::super::model::{numbers, Hosts};
use super::super::network::Network;
use super::super::tree::Table;
use super::super::Around;
use super::keys::LONGEST;
use super::list::{self, Form, Listed};

/// A group of flows.
#[derive(Clone, Debug)]
pub(in super::super) struct Flows {
    pub(in super::super) name: String,
    /// Bytes of each WRITE except the last of a flow.
    pub(super) message_bytes: u64,
    /// Maximum number of outstanding WRITEs of a flow.
    pub(super) outstanding: usize,
    pub(in super::super) flows: Vec<Flow>,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Flow {
    /// Numbers of hosts.
    pub(in super::super) from: usize,
    pub(in super::super) to: usize,
    pub(in super::super) bytes: u64,
    /// Time since the beginning of the load.
    pub(in super::super) start_ns: u64,
}

/// Maximum number of flows of an experiment: each has a queue pair at both ends, and room for its completions.
const FLOWS_MOST: usize = 4096;
/// Maximum size of a flow, and latest beginning.
const BYTES_MOST: u64 = LONGEST as u64;
const START_MOST_NS: f64 = 1e12;

/// Keys of flows that are listed in a file, and of others.
const OF_FILE: [&str; 4] = ["form", "hosts", "first", "zero"];
const OF_TABLE: [&str; 5] = ["senders", "receivers", "size", "start", "count"];

/// Reads the tables of flows. In lists for a network of the same simulator, nodes are its hosts.
pub(in super::super) fn read(
    root: &Table,
    around: &Around,
    (hosts, network): (&[Hosts], Option<&Network>),
) -> Result<Vec<Flows>, Mistake> {
    let mut all = Vec::<Flows>::new();
    for (number, group) in check::all(root, "flows")?.iter().enumerate() {
        let name = group.text("name").unwrap_or_else(|| number.to_string());
        if all.iter().any(|other| other.name == name) {
            return Err(group.wrong("name", &format!("{name:?}"), "another group has this name"));
        }
        let flows = match group.text("file") {
            Some(file) => listed(group, &file, around, (hosts, network))?,
            None => each_to_each(group, hosts)?,
        };
        all.push(Flows {
            name,
            message_bytes: group.count("message"),
            outstanding: group.count("outstanding") as usize,
            flows,
        });
        let count: usize = all.iter().map(|group| group.flows.len()).sum();
        if count > FLOWS_MOST {
            let key = if group.has("file") { "file" } else { "count" };
            let must = format!("with it there are {count} flows, {FLOWS_MOST} at most");
            return Err(group.wrong(key, "too many", must));
        }
    }
    Ok(all)
}

fn refuse(group: &Values<'_>, keys: &[&str], why: &str) -> Result<(), Mistake> {
    match keys.iter().find(|key| group.has(key)) {
        Some(key) => Err(group.wrong(key, "there", why)),
        None => Ok(()),
    }
}

/// From each sender to each receiver.
fn each_to_each(group: &Values<'_>, hosts: &[Hosts]) -> Result<Vec<Flow>, Mistake> {
    refuse(group, &OF_FILE, "it is for flows from a `file`")?;
    for key in ["senders", "receivers", "size"] {
        if !group.has(key) {
            let words = format!("[[flows]] needs `{key}`, or a `file` with flows");
            return Err(Mistake::new(group.place(key), words));
        }
    }
    let (senders, receivers) = (
        numbers(group, "senders", hosts)?,
        numbers(group, "receivers", hosts)?,
    );
    let (count, bytes, start_ns) = (
        group.count("count"),
        group.count("size"),
        group.count("start"),
    );
    let mut flows = Vec::new();
    for &from in &senders {
        for &to in receivers.iter().filter(|&&to| to != from) {
            let flow = Flow {
                from,
                to,
                bytes,
                start_ns,
            };
            // The caller reports when there are too many.
            let left = (FLOWS_MOST + 1).saturating_sub(flows.len()) as u64;
            flows.extend((0..count.min(left)).map(|_| flow));
        }
    }
    match flows.is_empty() {
        true => Err(group.wrong("receivers", "the sender itself", "no flow is left")),
        false => Ok(flows),
    }
}

/// Reads the flows of a file.
fn listed(
    group: &Values<'_>,
    file: &str,
    around: &Around,
    (hosts, network): (&[Hosts], Option<&Network>),
) -> Result<Vec<Flow>, Mistake> {
    refuse(group, &OF_TABLE, "a flow of a `file` has its own")?;
    let found = format!("{file:?}");
    let text = std::fs::read_to_string(around.folder.join(file));
    let text = text.map_err(|error| group.wrong("file", &found, error))?;
    let form = Form::named(&group.text("form").unwrap_or_default());
    let flows = list::parse(&text, form).map_err(|error| group.wrong("file", &found, error))?;
    let count: usize = hosts.iter().map(|group| group.count).sum();
    let meant = match group.has("hosts") {
        true => numbers(group, "hosts", hosts)?,
        false => (0..count).collect(),
    };
    let first = group.count("first");
    let zero_ns = group.number("zero").unwrap_or_default();
    let flow = |listed: &Listed| {
        let line = listed.line;
        let by_network = network.filter(|_| !group.has("hosts") && !group.has("first"));
        let host = |node: u64| {
            if let Some(network) = by_network {
                let found = network.hosts.iter().position(|(number, _)| *number == node);
                return found.ok_or_else(|| {
                    format!("line {line}: node {node} is not a host of the topology's file")
                });
            }
            let place = node.checked_sub(first).map(|place| place as usize);
            let host = place.and_then(|place| meant.get(place).copied());
            host.ok_or_else(|| {
                let last = first + meant.len() as u64 - 1;
                format!("line {line}: no such node {node}: hosts are {first} to {last}")
            })
        };
        let (from, to) = (host(listed.from)?, host(listed.to)?);
        if from == to {
            return Err(format!("line {line}: a flow from a host to itself"));
        }
        if !(1..=BYTES_MOST).contains(&listed.bytes) {
            return Err(format!(
                "line {line}: the length of a flow must be from 1 to {BYTES_MOST} bytes, not {}",
                listed.bytes
            ));
        }
        let start_ns = (listed.start_ns - zero_ns).round();
        if !(0.0..=START_MOST_NS).contains(&start_ns) {
            return Err(format!(
                "line {line}: the flow begins {start_ns} ns after `zero`: it must be 0 to {START_MOST_NS}"
            ));
        }
        Ok(Flow {
            from,
            to,
            bytes: listed.bytes,
            start_ns: start_ns as u64,
        })
    };
    let flows: Result<Vec<Flow>, String> = flows.iter().map(flow).collect();
    let flows = flows.map_err(|why| group.wrong("file", &found, why))?;
    match flows.is_empty() {
        true => Err(group.wrong("file", &found, "there is no flow in it")),
        false => Ok(flows),
    }
}
