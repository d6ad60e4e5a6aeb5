//! Measurements of a window of a run, from which columns are computed.

use dunlin_sim::Counters;

use super::flows::Deepest;

/// Calls of one group of clients in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Calls answered.
    pub(super) calls: u64,
    /// Calls that ended with an error.
    pub(super) failed: u64,
    /// Bytes of requests and responses of answered calls.
    pub(super) bytes: u64,
    /// Messages written, and requests in them.
    pub(super) messages: u64,
    pub(super) requests: u64,
    /// Number of processes of the group.
    pub(super) processes: u64,
    /// Latencies in nanoseconds, sorted.
    pub(super) latencies_ns: Vec<u64>,
}

/// Flows of one group in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTally {
    /// Times from start to end of the flows that ended: in nanoseconds, sorted.
    pub(super) times_ns: Vec<u64>,
    /// Flows that have begun by the end of the window and not ended.
    pub(super) unfinished: u64,
    /// Bytes of the flows that ended.
    pub(super) bytes: u64,
}

/// Verbs of one group in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct VerbTally {
    /// Requests completed, or answered if they have answers.
    pub(super) done: u64,
    /// Times from posting to completion of signaled requests, or to the answer: in nanoseconds, sorted.
    pub(super) times_ns: Vec<u64>,
}

impl VerbTally {
    /// Adds the values of the following window.
    pub(super) fn add(&mut self, next: &Self) {
        self.done += next.done;
        self.times_ns.extend(&next.times_ns);
    }
}

impl Tally {
    /// Adds the values of the following window.
    pub(super) fn add(&mut self, next: &Self) {
        self.calls += next.calls;
        self.failed += next.failed;
        self.bytes += next.bytes;
        self.messages += next.messages;
        self.requests += next.requests;
        self.processes = next.processes;
        self.latencies_ns.extend(&next.latencies_ns);
    }
}

impl FlowTally {
    /// Adds the values of the following window.
    pub(super) fn add(&mut self, next: &Self) {
        self.times_ns.extend(&next.times_ns);
        self.bytes += next.bytes;
        self.unfinished = next.unfinished;
    }
}

/// Measurements of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) nanoseconds: u64,
    /// Calls, by group of clients.
    pub(super) clients: Vec<Tally>,
    /// Flows, by group.
    pub(super) flows: Vec<FlowTally>,
    /// Verbs, by group.
    pub(super) verbs: Vec<VerbTally>,
    pub(super) queues: Deepest,
    /// Counters of hosts, by group of hosts.
    pub(super) hosts: Vec<Vec<Counted>>,
    /// Counters of the server's host, and of all hosts together.
    pub(super) server: Counted,
    pub(super) all: Counted,
    pub(super) switches: Switches,
    pub(super) server_cores: usize,
    /// Number of the server's queue pairs active at the end of the window.
    pub(super) active: usize,
}

/// Counters of hosts in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) before: Counters,
    pub(super) after: Counters,
}

impl Counted {
    pub(super) fn of(&self, counter: fn(&Counters) -> u64) -> f64 {
        counter(&self.after).saturating_sub(counter(&self.before)) as f64
    }
}

/// Counters of switches in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    pub(super) drops: u64,
    pub(super) marks: u64,
    pub(super) pauses: u64,
    /// Maximum bytes in the buffer of one of them, since the cluster was created.
    pub(super) most_bytes: u64,
}

/// The quantile `share` of sorted values; `None` if there are none.
fn at_share(sorted: &[u64], share: f64) -> Option<u64> {
    let place = (sorted.len() as f64 * share) as usize;
    let place = place.min(sorted.len().saturating_sub(1));
    sorted.get(place).copied()
}

impl Window {
    pub(super) fn total(&self, of: fn(&Tally) -> u64) -> f64 {
        self.clients.iter().map(of).sum::<u64>() as f64
    }

    pub(super) fn calls(&self) -> f64 {
        self.total(|tally| tally.calls)
    }

    /// Millions of calls per second.
    pub(super) fn rate(&self) -> f64 {
        self.calls() * 1e3 / self.nanoseconds as f64
    }

    /// Millions of calls and verbs per second: a load has settled when this no longer changes.
    pub(super) fn pace(&self) -> f64 {
        self.rate() + self.mops(self.verbs_done())
    }

    /// `count` in millions per second.
    pub(super) fn mops(&self, count: f64) -> f64 {
        count * 1e3 / self.nanoseconds as f64
    }

    pub(super) fn verbs_done(&self) -> f64 {
        self.verbs.iter().map(|tally| tally.done).sum::<u64>() as f64
    }

    /// The quantile `share` of the times of all verbs.
    pub(super) fn verb_time_us(&self, share: f64) -> f64 {
        let all = self.verbs.iter().flat_map(|tally| &tally.times_ns);
        let mut all: Vec<u64> = all.copied().collect();
        all.sort_unstable();
        at_share(&all, share).map_or(f64::NAN, |ns| ns as f64 / 1e3)
    }

    /// The sum of a counter over all hosts.
    pub(super) fn of_hosts(&self, counter: fn(&Counters) -> u64) -> f64 {
        let hosts = self.hosts.iter().flatten();
        hosts.map(|counted| counted.of(counter)).sum()
    }

    /// Requests per message; 1 for presets that do not combine requests. NaN if there were no calls.
    pub(super) fn coalescing(&self) -> f64 {
        match self.total(|tally| tally.messages) {
            0.0 if self.calls() == 0.0 => f64::NAN,
            0.0 => 1.0,
            messages => self.total(|tally| tally.requests) / messages,
        }
    }

    /// `count` per answered call; NaN if there were none.
    pub(super) fn per_call(&self, count: f64) -> f64 {
        match self.calls() {
            0.0 => f64::NAN,
            calls => count / calls,
        }
    }

    /// All latencies, sorted.
    pub(super) fn latencies(&self) -> Vec<u64> {
        let all = self.clients.iter().flat_map(|tally| &tally.latencies_ns);
        let mut all: Vec<u64> = all.copied().collect();
        all.sort_unstable();
        all
    }

    pub(super) fn latency_us(&self, share: f64) -> f64 {
        let latency = at_share(&self.latencies(), share);
        latency.map_or(f64::NAN, |ns| ns as f64 / 1e3)
    }

    /// All times of flows, sorted.
    pub(super) fn flow_times(&self) -> Vec<u64> {
        let all = self.flows.iter().flat_map(|tally| &tally.times_ns);
        let mut all: Vec<u64> = all.copied().collect();
        all.sort_unstable();
        all
    }

    pub(super) fn flow_time_us(&self, share: f64) -> f64 {
        let time = at_share(&self.flow_times(), share);
        time.map_or(f64::NAN, |ns| ns as f64 / 1e3)
    }

    pub(super) fn of_flows(&self, of: fn(&FlowTally) -> u64) -> f64 {
        self.flows.iter().map(of).sum::<u64>() as f64
    }

    pub(super) fn mean_us(&self) -> f64 {
        let all = self.latencies();
        let sum: f64 = all.iter().map(|&ns| ns as f64).sum();
        sum / all.len() as f64 / 1e3
    }

    /// The window with the clients of one group only.
    pub(super) fn of_group(&self, group: usize) -> Self {
        Self {
            clients: self.clients.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// The window with the verbs of one group only.
    pub(super) fn of_verb_group(&self, group: usize) -> Self {
        Self {
            verbs: self.verbs.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// The window with one group of hosts only.
    pub(super) fn of_host_group(&self, group: usize) -> Self {
        Self {
            hosts: self.hosts.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// The window with the flows of one group only.
    pub(super) fn of_flow_group(&self, group: usize) -> Self {
        Self {
            flows: self.flows.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }
}
