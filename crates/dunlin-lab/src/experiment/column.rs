//! The columns that can be printed for a point: rates, latencies, times of flows, and counters of NICs, hosts and
//! switches.

use super::mistake::instead;
use super::window::Window;

/// The objects that a column covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// All clients, or one group of them, as `name.GROUP`.
    Clients,
    /// All flows, or one group of them.
    Flows,
    /// All verbs, or one group of them.
    Verbs,
    /// All hosts, or one group of them.
    Hosts,
    /// The server's host.
    Server,
    Cluster,
}

/// Names of the groups for which columns can be requested.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups<'a> {
    pub(super) clients: Vec<&'a str>,
    pub(super) flows: Vec<&'a str>,
    pub(super) verbs: Vec<&'a str>,
    pub(super) hosts: Vec<&'a str>,
}

impl Groups<'_> {
    /// The default columns.
    pub(super) fn usual_columns(&self) -> Vec<String> {
        let mut names = Vec::new();
        if !self.clients.is_empty() {
            names.extend(["rate", "p50", "p99", "failed"]);
        }
        if !self.flows.is_empty() {
            names.extend(["fct_p50", "fct_p99", "unfinished"]);
        }
        if !self.verbs.is_empty() {
            names.extend(["verbs", "verbs_p50", "verbs_p99"]);
        }
        names.into_iter().map(str::to_owned).collect()
    }
}

/// Definition of a column.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: Of,
    pub(super) meaning: &'static str,
    value: fn(&Window) -> f64,
}

const fn of_clients(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        name,
        unit,
        of: Of::Clients,
        meaning,
        value,
    }
}

const fn of_flows(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        of: Of::Flows,
        ..of_clients(name, unit, meaning, value)
    }
}

const fn of_verbs(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        of: Of::Verbs,
        ..of_clients(name, unit, meaning, value)
    }
}

const fn of_hosts(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        of: Of::Hosts,
        ..of_clients(name, unit, meaning, value)
    }
}

const fn of_server(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        of: Of::Server,
        ..of_clients(name, unit, meaning, value)
    }
}

const fn of_cluster(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: fn(&Window) -> f64,
) -> Definition {
    Definition {
        of: Of::Cluster,
        ..of_clients(name, unit, meaning, value)
    }
}

/// All columns, in the order of the page.
pub(super) const COLUMNS: &[Definition] = &[
    of_clients(
        "rate",
        "M/s",
        "Millions of calls answered a second.",
        Window::rate,
    ),
    of_clients("calls", "", "Calls answered.", Window::calls),
    of_clients("failed", "", "Calls that ended with an error.", |w| {
        w.total(|tally| tally.failed)
    }),
    of_clients(
        "bandwidth",
        "Gb/s",
        "Bytes of requests and responses of the calls answered.",
        |w| w.total(|tally| tally.bytes) * 8.0 / w.nanoseconds as f64,
    ),
    of_clients("mean", "us", "Mean latency of a call.", Window::mean_us),
    of_clients("p50", "us", "Median latency.", |w| w.latency_us(0.5)),
    of_clients("p90", "us", "90th percentile.", |w| w.latency_us(0.9)),
    of_clients("p99", "us", "99th percentile.", |w| w.latency_us(0.99)),
    of_clients("p999", "us", "99.9th percentile.", |w| w.latency_us(0.999)),
    of_clients("max", "us", "Longest latency.", |w| w.latency_us(1.0)),
    of_clients(
        "coalescing",
        "",
        "Requests in each message that clients wrote; 1 for presets that do not put several into one.",
        Window::coalescing,
    ),
    of_clients("processes", "", "Processes of clients.", |w| {
        w.total(|tally| tally.processes)
    }),
    of_flows("flows", "", "Flows that ended.", |w| {
        w.flow_times().len() as f64
    }),
    of_flows(
        "unfinished",
        "",
        "Flows that have begun and not ended, at the end; those that failed are among them.",
        |w| w.of_flows(|tally| tally.unfinished),
    ),
    of_flows(
        "fct_mean",
        "us",
        "Mean time of the flows that ended, from their start to the completion of their last WRITE.",
        |w| w.flow_times().iter().sum::<u64>() as f64 / w.flow_times().len() as f64 / 1e3,
    ),
    of_flows("fct_p50", "us", "Median of those times.", |w| {
        w.flow_time_us(0.5)
    }),
    of_flows("fct_p95", "us", "95th percentile.", |w| {
        w.flow_time_us(0.95)
    }),
    of_flows("fct_p99", "us", "99th percentile.", |w| {
        w.flow_time_us(0.99)
    }),
    of_flows("fct_max", "us", "Longest of them.", |w| w.flow_time_us(1.0)),
    of_flows("goodput", "Gb/s", "Bytes of the flows that ended.", |w| {
        w.of_flows(|tally| tally.bytes) * 8.0 / w.nanoseconds as f64
    }),
    of_verbs(
        "verbs",
        "M/s",
        "Millions of verbs done a second.",
        |w| w.mops(w.verbs_done()),
    ),
    of_verbs(
        "verbs_p50",
        "us",
        "Median time from posting to the completion that is seen, of signaled verbs, or to the answer.",
        |w| w.verb_time_us(0.5),
    ),
    of_verbs("verbs_p99", "us", "99th percentile.", |w| {
        w.verb_time_us(0.99)
    }),
    of_hosts(
        "nic_started",
        "M/s",
        "Requests that NICs began to carry out.",
        |w| w.mops(w.of_hosts(|c| c.requests_started)),
    ),
    of_hosts(
        "nic_answered",
        "M/s",
        "READs and atomics that NICs answered.",
        |w| w.mops(w.of_hosts(|c| c.requests_answered)),
    ),
    of_hosts(
        "nic_received",
        "M/s",
        "Messages that NICs received: WRITEs, and SENDs that found a RECEIVE.",
        |w| w.mops(w.of_hosts(|c| c.messages_received)),
    ),
    of_hosts(
        "nic_fetched",
        "M/s",
        "Cache lines that NICs read from memory (PCIeRdCur).",
        |w| w.mops(w.of_hosts(|c| c.pcie_read_lines)),
    ),
    of_hosts(
        "nic_context_misses",
        "of 1",
        "Share of the lookups of queue pairs' contexts that NICs did not have in their caches.",
        |w| {
            let misses = w.mops(w.of_hosts(|c| c.context_misses));
            misses / w.mops(w.of_hosts(|c| c.context_misses + c.context_hits))
        },
    ),
    of_hosts(
        "llc_misses",
        "of 1",
        "Share of the lines written by NICs that the processor's cache did not have.",
        |w| {
            let misses = w.mops(w.of_hosts(|c| c.allocating_writes));
            misses / (misses + w.mops(w.of_hosts(|c| c.updating_writes)))
        },
    ),
    of_hosts("busy_cores", "", "Cores that worked, in the mean.", |w| {
        w.mops(w.of_hosts(|c| c.busy_ps)) / 1e6
    }),
    of_server(
        "server_busy",
        "%",
        "Share of the time in which the server host's cores worked.",
        |w| w.server.of(|c| c.busy_ps) / 10.0 / w.nanoseconds as f64 / w.server_cores.max(1) as f64,
    ),
    of_server(
        "server_out",
        "Gb/s",
        "What the server's NIC put on the wire, headers included.",
        |w| w.server.of(|c| c.wire_bytes) * 8.0 / w.nanoseconds as f64,
    ),
    of_server(
        "server_packets",
        "a call",
        "Packets that the server's NIC sent, acknowledgements included.",
        |w| w.per_call(w.server.of(|c| c.packets_sent)),
    ),
    of_server(
        "context_misses",
        "a call",
        "Contexts of queue pairs that the server's NIC did not have in its \
                 cache.",
        |w| w.per_call(w.server.of(|c| c.context_misses)),
    ),
    of_server(
        "pcie_reads",
        "a call",
        "Cache lines that the server's NIC read from memory (PCIeRdCur).",
        |w| w.per_call(w.server.of(|c| c.pcie_read_lines)),
    ),
    of_server(
        "allocating_writes",
        "a call",
        "Lines that the server's NIC wrote and the processor's cache did not \
                 have (PCIeItoM).",
        |w| w.per_call(w.server.of(|c| c.allocating_writes)),
    ),
    of_server(
        "active",
        "",
        "Queue pairs that the server's scheduler has active at the end (FLOCK).",
        |w| w.active as f64,
    ),
    of_cluster(
        "retransmissions",
        "",
        "Times that any NIC went back to an earlier packet.",
        |w| w.all.of(|c| c.retransmissions),
    ),
    of_cluster(
        "timeouts",
        "",
        "Times that a transport timer of any NIC ran out again after a first probe.",
        |w| w.all.of(|c| c.timeouts),
    ),
    of_cluster(
        "receiver_drops",
        "",
        "Datagrams and UC messages dropped because no RECEIVE was posted or a \
                 packet was missing.",
        |w| w.all.of(|c| c.receiver_drops),
    ),
    of_cluster("fault_drops", "", "Packets that faults dropped.", |w| {
        w.all.of(|c| c.fault_drops)
    }),
    of_cluster(
        "nic_pauses",
        "",
        "Times that a NIC paused its switch.",
        |w| w.all.of(|c| c.pauses_sent),
    ),
    of_cluster(
        "notifications",
        "",
        "Congestion notifications that NICs received.",
        |w| w.all.of(|c| c.congestion_notifications),
    ),
    of_cluster(
        "switch_drops",
        "",
        "Packets that switches dropped because their buffer was full.",
        |w| w.switches.drops as f64,
    ),
    of_cluster(
        "switch_marks",
        "",
        "Packets that switches marked (ECN).",
        |w| w.switches.marks as f64,
    ),
    of_cluster(
        "switch_pauses",
        "",
        "Times that a switch paused who sends to it.",
        |w| w.switches.pauses as f64,
    ),
    of_cluster(
        "switch_buffer",
        "KiB",
        "Most that was in the buffer of a switch, warm-up included.",
        |w| w.switches.most_bytes as f64 / 1024.0,
    ),
    of_cluster(
        QUEUE_MOST,
        "KiB",
        "Most that waited at one port of a switch.",
        |w| w.queues.most_bytes as f64 / 1024.0,
    ),
    of_cluster(
        QUEUE_MEAN,
        "KiB",
        "Mean over time of what waited at the port of a switch where that is most.",
        |w| w.queues.mean_bytes / 1024.0,
    ),
];

/// A column for which the queues of switches have to be observed.
const QUEUE_MOST: &str = "queue_max";
const QUEUE_MEAN: &str = "queue_mean";

/// A requested column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its name as requested.
    pub(super) name: String,
    pub(super) definition: &'static Definition,
    group: Option<usize>,
}

impl Column {
    pub(super) fn value(&self, window: &Window) -> f64 {
        match self.group {
            None => (self.definition.value)(window),
            Some(group) => (self.definition.value)(&match self.definition.of {
                Of::Flows => window.of_flow_group(group),
                Of::Verbs => window.of_verb_group(group),
                Of::Hosts => window.of_host_group(group),
                _ => window.of_group(group),
            }),
        }
    }

    /// Whether queues have to be observed for it.
    pub(super) fn needs_queues(&self) -> bool {
        [QUEUE_MOST, QUEUE_MEAN].contains(&self.definition.name)
    }

    /// Its name and unit.
    pub(super) fn heading(&self) -> String {
        match self.definition.unit {
            "" => self.name.clone(),
            unit => format!("{}, {unit}", self.name),
        }
    }
}

/// Finds the column with this name, or describes what is wrong with the name.
pub(super) fn find(text: &str, groups: &Groups<'_>) -> Result<Column, String> {
    let (name, group) = match text.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (text, None),
    };
    let Some(definition) = COLUMNS.iter().find(|column| column.name == name) else {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        return Err(format!("no such column{}", instead(name, &names)));
    };
    let (names, whose) = match definition.of {
        Of::Flows => (&groups.flows, "flows"),
        Of::Verbs => (&groups.verbs, "verbs"),
        Of::Hosts => (&groups.hosts, "hosts"),
        _ => (&groups.clients, "clients"),
    };
    if names.is_empty() && definition.of != Of::Cluster {
        return Err(format!("the experiment has no {whose}"));
    }
    let group = match group {
        None => None,
        Some(_) if matches!(definition.of, Of::Cluster | Of::Server) => {
            return Err("it counts for the cluster, not for a group of clients".to_owned());
        }
        Some(group) => match names.iter().position(|other| *other == group) {
            Some(place) => Some(place),
            None => return Err(format!("no group of {whose}{}", instead(group, names))),
        },
    };
    Ok(Column {
        name: text.to_owned(),
        definition,
        group,
    })
}

#[cfg(test)]
mod tests {
    use super::super::window::{FlowTally, Tally};
    use super::*;

    #[test]
    fn columns_are_of_all_clients_or_of_one_group() {
        let tally = |calls, latencies: &[u64]| Tally {
            calls,
            failed: 1,
            bytes: calls * 128,
            messages: 2,
            requests: calls * 2,
            processes: 4,
            latencies_ns: latencies.to_vec(),
        };
        let flows = |times: &[u64]| FlowTally {
            times_ns: times.to_vec(),
            unfinished: 1,
            bytes: 1_000,
        };
        let window = Window {
            nanoseconds: 1_000,
            clients: vec![tally(2, &[1_000, 2_000]), tally(3, &[3_000, 4_000, 5_000])],
            flows: vec![flows(&[7_000]), flows(&[2_000, 4_000, 9_000])],
            ..Window::default()
        };
        let groups = Groups {
            clients: vec!["one", "two"],
            flows: vec!["few", "many"],
            ..Groups::default()
        };
        let value = |name: &str| find(name, &groups).unwrap().value(&window);
        assert_eq!(value("rate"), 5.0);
        assert_eq!(value("rate.two"), 3.0);
        assert_eq!(value("p50"), 3.0);
        assert_eq!(value("p50.one"), 2.0);
        assert_eq!(value("max.one"), 2.0);
        assert_eq!(value("mean"), 3.0);
        assert_eq!(value("failed"), 2.0);
        assert_eq!((value("coalescing"), value("coalescing.two")), (2.5, 3.0));
        assert_eq!(value("processes"), 8.0);
        assert!(value("bandwidth") > 5.0);
        assert_eq!(value("flows"), 4.0);
        assert_eq!(value("flows.many"), 3.0);
        assert_eq!(value("fct_max.few"), 7.0);
        assert_eq!(value("fct_p50"), 7.0);
        assert_eq!(value("fct_mean"), 5.5);
        assert_eq!(value("unfinished"), 2.0);
        assert_eq!(value("goodput"), 16.0);
        assert_eq!(value("pcie_reads"), 0.0);
        let nobody = Window {
            clients: vec![Tally::default()],
            ..window.clone()
        };
        // A total is not the cost of a call, where there was none.
        for name in ["pcie_reads", "server_packets", "coalescing", "p50"] {
            assert!(
                find(name, &groups).unwrap().value(&nobody).is_nan(),
                "{name}"
            );
        }
    }

    #[test]
    fn columns_of_what_is_not_there_are_refused() {
        let flows = Groups {
            flows: vec!["0"],
            ..Groups::default()
        };
        let clients = Groups {
            clients: vec!["0"],
            ..Groups::default()
        };
        for (name, groups) in [
            ("rate", &flows),
            ("server_busy", &flows),
            ("fct_p50", &clients),
            ("fct_p50.other", &flows),
            ("switch_marks.0", &flows),
        ] {
            assert!(find(name, groups).is_err(), "{name}");
        }
        for groups in [&flows, &clients] {
            assert!(find("switch_pauses", groups).is_ok());
            let usual = groups.usual_columns();
            assert!(usual.iter().all(|name| find(name, groups).is_ok()));
        }
    }
}
