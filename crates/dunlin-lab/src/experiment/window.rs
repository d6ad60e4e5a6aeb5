//! What a window of a run showed, before columns are made of it.

use dunlin_sim::Counters;

use super::flows::Deepest;

/// What one group of clients did in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// Calls that ended with an error.
    pub(super) failed: u64,
    /// Bytes of requests and responses of those that were answered.
    pub(super) bytes: u64,
    /// Messages that they wrote, and requests in these.
    pub(super) messages: u64,
    pub(super) requests: u64,
    /// Processes of the group.
    pub(super) processes: u64,
    /// In nanoseconds, sorted.
    pub(super) latencies_ns: Vec<u64>,
}

/// What one group of flows did in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTally {
    /// From a flow's start to its end, of those that ended: in nanoseconds, sorted.
    pub(super) times_ns: Vec<u64>,
    /// Flows that have begun until the end of the window and not ended.
    pub(super) unfinished: u64,
    /// Bytes of those that ended.
    pub(super) bytes: u64,
}

/// What one group of verbs did in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct VerbTally {
    /// Requests that are done, or answered where they are.
    pub(super) done: u64,
    /// From posting to completion of those that were signaled, or to the answer: in nanoseconds, sorted.
    pub(super) times_ns: Vec<u64>,
}

impl VerbTally {
    /// Adds what the group did in a window that follows.
    pub(super) fn add(&mut self, next: &Self) {
        self.done += next.done;
        self.times_ns.extend(&next.times_ns);
    }
}

impl Tally {
    /// Adds what the group did in a window that follows.
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
    /// Adds what the group did in a window that follows.
    pub(super) fn add(&mut self, next: &Self) {
        self.times_ns.extend(&next.times_ns);
        self.bytes += next.bytes;
        self.unfinished = next.unfinished;
    }
}

/// What a window showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) nanoseconds: u64,
    /// By group of clients.
    pub(super) clients: Vec<Tally>,
    /// By group of flows.
    pub(super) flows: Vec<FlowTally>,
    /// By group of verbs.
    pub(super) verbs: Vec<VerbTally>,
    pub(super) queues: Deepest,
    /// What hosts counted, by group of hosts.
    pub(super) hosts: Vec<Vec<Counted>>,
    /// What the server's host counted, and all hosts together.
    pub(super) server: Counted,
    pub(super) all: Counted,
    pub(super) switches: Switches,
    pub(super) server_cores: usize,
    /// Queue pairs that the server has active at the end of the window.
    pub(super) active: usize,
}

/// What hosts counted in a window.
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

/// What switches counted in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    pub(super) drops: u64,
    pub(super) marks: u64,
    pub(super) pauses: u64,
    /// Most bytes in the buffer of one of them, since the cluster was made.
    pub(super) most_bytes: u64,
}

/// What this share of sorted values is below; `None`: there are none.
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

    /// Millions of calls a second.
    pub(super) fn rate(&self) -> f64 {
        self.calls() * 1e3 / self.nanoseconds as f64
    }

    /// Millions of calls and verbs a second: whether that still changes says whether a load has settled.
    pub(super) fn pace(&self) -> f64 {
        self.rate() + self.mops(self.verbs_done())
    }

    /// Millions a second of what was counted.
    pub(super) fn mops(&self, count: f64) -> f64 {
        count * 1e3 / self.nanoseconds as f64
    }

    pub(super) fn verbs_done(&self) -> f64 {
        self.verbs.iter().map(|tally| tally.done).sum::<u64>() as f64
    }

    /// Of all verbs.
    pub(super) fn verb_time_us(&self, share: f64) -> f64 {
        let all = self.verbs.iter().flat_map(|tally| &tally.times_ns);
        let mut all: Vec<u64> = all.copied().collect();
        all.sort_unstable();
        at_share(&all, share).map_or(f64::NAN, |ns| ns as f64 / 1e3)
    }

    /// A counter of all hosts that columns are of.
    pub(super) fn of_hosts(&self, counter: fn(&Counters) -> u64) -> f64 {
        let hosts = self.hosts.iter().flatten();
        hosts.map(|counted| counted.of(counter)).sum()
    }

    /// Requests of a message; presets without messages of several have one in each. Nothing of it is known where
    /// nobody called.
    pub(super) fn coalescing(&self) -> f64 {
        match self.total(|tally| tally.messages) {
            0.0 if self.calls() == 0.0 => f64::NAN,
            0.0 => 1.0,
            messages => self.total(|tally| tally.requests) / messages,
        }
    }

    /// So much of each call that was answered; of none it is not known.
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

    /// With the clients of one group alone.
    pub(super) fn of_group(&self, group: usize) -> Self {
        Self {
            clients: self.clients.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// With the verbs of one group alone.
    pub(super) fn of_verb_group(&self, group: usize) -> Self {
        Self {
            verbs: self.verbs.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// With one group of hosts alone.
    pub(super) fn of_host_group(&self, group: usize) -> Self {
        Self {
            hosts: self.hosts.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// With the flows of one group alone.
    pub(super) fn of_flow_group(&self, group: usize) -> Self {
        Self {
            flows: self.flows.get(group).cloned().into_iter().collect(),
            ..self.clone()
        }
    }
}
