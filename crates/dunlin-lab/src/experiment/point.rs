//! Running one point: builds the cluster, starts the clients, applies faults and measures windows.

use dunlin_sim::{Cluster, ClusterBuilder, Counters, HostId, Observer, SwitchId};
use dunlin_verbs::Device;

use super::caller::Seen;
use super::column::Column;
use super::fault::Timeline;
use super::flows::{Deepest, FlowTime, FlowTimes, Queues, Running};
use super::load::{Load, RunError};
use super::model::Point;
use super::verbs;
use super::window::{Counted, FlowTally, Switches, Tally, VerbTally, Window};

/// Columns of the pieces of a duration, each with its end in nanoseconds since time zero.
type Pieces = Vec<(u64, Vec<f64>)>;

/// Results of a run of a point.
#[derive(Debug)]
pub(super) struct Shown {
    /// Values of the columns, over the whole duration.
    pub(super) values: Vec<f64>,
    /// The same for each piece of the duration.
    pub(super) pieces: Pieces,
    /// Results of the flows.
    pub(super) flows: Vec<FlowTime>,
    /// Digest of all events.
    pub(super) digest: u64,
    pub(super) events: u64,
}

/// Runs the point with a seed on this many cores. `observer` observes the time from the clients' beginning to the end
/// of the duration.
pub(super) fn run(
    point: &Point,
    (seed, cores): (u64, usize),
    observer: Option<Box<dyn Observer>>,
) -> Result<Shown, RunError> {
    // Faults and observers see everything in one order, so nothing would run at once.
    let ordered = observer.is_some() || !point.faults.is_empty() || looks_at_queues(point);
    let cores = if ordered { 1 } else { cores };
    let (cluster, switches) = build(point, seed, cores);
    let server = point.server.as_ref();
    let load = server.map(|server| Load::new(&cluster, point, server, seed));
    let load = load.transpose()?;
    let flows = Running::new(&cluster, &point.flows)?;
    let mut timeline = Timeline::new(&cluster, &point.faults);
    match point.run.paced_ns {
        Some(paced_ns) if paced_ns > 0 => cluster.run_for(paced_ns),
        _ => {}
    }
    let mut run = Run {
        point,
        cluster: &cluster,
        switches: &switches,
        load: load.as_ref(),
        flows: FlowTimes::new(&flows, point.flows.len()),
        verbs: None,
        queues: Queues::default(),
        zero_ns: cluster.now_ns(),
    };
    cluster.observe(run.observer(observer));
    if let Some(load) = &load {
        load.begin();
    }
    flows.begin(&cluster);
    run.verbs = Some(verbs::Running::begin(&cluster, &point.verbs, seed));
    run.until(point.run.warm_ns, &mut timeline);
    let (mut window, mut pieces) = run.measure(&mut timeline);
    if let Some(share) = point.run.settled {
        for _ in 1..point.run.windows {
            let (next, more) = run.measure(&mut timeline);
            let change = next.pace() / window.pace() - 1.0;
            window = next;
            pieces.extend(more);
            if change.abs() < share {
                break;
            }
        }
    }
    cluster.observe(None);
    let shown = Shown {
        values: values(point, &window),
        pieces,
        flows: run.flows.all(),
        digest: cluster.digest(),
        events: cluster.events(),
    };
    if let Some(verbs) = &run.verbs {
        verbs.end();
    }
    timeline.end();
    let crashed = std::mem::take(&mut timeline.crashed);
    if let Some(load) = load {
        load.end(&cluster, &crashed);
    }
    Ok(shown)
}

fn values(point: &Point, window: &Window) -> Vec<f64> {
    let columns = point.columns.iter();
    columns.map(|column| column.value(window)).collect()
}

/// Whether a column concerns queues of switches, which have to be observed.
fn looks_at_queues(point: &Point) -> bool {
    point.columns.iter().any(Column::needs_queues)
}

fn build(point: &Point, seed: u64, cores: usize) -> (Cluster, Vec<SwitchId>) {
    let mut builder = ClusterBuilder::new(seed).parts(cores);
    let switches: Vec<SwitchId> = (0..point.switches)
        .map(|_| builder.switch(point.switch.clone()))
        .collect();
    for cables in &point.cables {
        for _ in 0..cables.count {
            builder.link(switches[cables.one], switches[cables.other], cables.gbit_s);
        }
    }
    for group in &point.hosts {
        for &switch in &group.switches {
            builder.host(group.cpu.clone(), group.nic.clone(), switches[switch]);
        }
    }
    (builder.build(), switches)
}

/// A snapshot of the counters.
#[derive(Clone)]
struct Look {
    /// Time since the clients began.
    now_ns: u64,
    /// Number of calls answered and failed, and bytes of those answered, by group.
    calls: Vec<(u64, u64, u64)>,
    /// Messages and requests written, by group.
    sent: Vec<(u64, u64)>,
    /// Number of verbs completed, by group.
    verbs: Vec<u64>,
    counters: Vec<Counters>,
    switches: Switches,
}

struct Run<'a> {
    point: &'a Point,
    cluster: &'a Cluster,
    switches: &'a [SwitchId],
    load: Option<&'a Load>,
    flows: FlowTimes<'a>,
    /// Present from time zero on.
    verbs: Option<verbs::Running>,
    queues: Queues,
    zero_ns: u64,
}

impl Run<'_> {
    /// The requested observer, combined with that of the queues if a column needs it.
    fn observer(&self, asked: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        match (looks_at_queues(self.point), asked) {
            (false, asked) => asked,
            (true, None) => Some(Box::new(self.queues.clone())),
            (true, Some(asked)) => {
                let all: Vec<Box<dyn Observer>> = vec![asked, Box::new(self.queues.clone())];
                Some(Box::new(all))
            }
        }
    }

    fn seen(&self) -> &[std::sync::Arc<Seen>] {
        self.load.map_or(&[], |load| &load.seen)
    }

    fn now_ns(&self) -> u64 {
        self.cluster.now_ns().saturating_sub(self.zero_ns)
    }

    /// Lets time pass until `end_ns`, with the faults that begin and end meanwhile. What was measured in the warm-up
    /// does not count.
    fn until(&mut self, end_ns: u64, timeline: &mut Timeline<'_>) {
        timeline.advance(self.now_ns());
        while self.now_ns() < end_ns {
            let now = self.now_ns();
            let next = timeline.next_ns().map_or(end_ns, |next| next.min(end_ns));
            self.cluster.run_for(next.saturating_sub(now).max(1));
            timeline.advance(self.now_ns());
        }
        if end_ns <= self.point.run.warm_ns {
            self.seen().iter().for_each(|seen| drop(seen.take()));
            let now_ns = self.now_ns();
            drop(self.flows.take(now_ns));
            let counts = self.verb_counts();
            drop(self.verb_tallies(&counts, &counts));
        }
    }

    /// Lets the duration pass; returns its window, and its pieces with their ends.
    fn measure(&mut self, timeline: &mut Timeline<'_>) -> (Window, Pieces) {
        let point = self.point;
        self.queues.start(self.cluster.now_ns());
        let before = self.look();
        let end = before.now_ns + point.run.measured_ns;
        let mut whole = vec![Tally::default(); point.clients.len()];
        let mut whole_flows = vec![FlowTally::default(); point.flows.len()];
        let mut whole_verbs = vec![VerbTally::default(); point.verbs.len()];
        let (mut pieces, mut last) = (Vec::new(), before.clone());
        let every = point.every_ns.unwrap_or(point.run.measured_ns);
        while last.now_ns < end {
            self.until((last.now_ns + every).min(end), timeline);
            let now = self.look();
            let tallies = self.tallies(&last, &now);
            let flows = self.flows.take(now.now_ns);
            let verbs = self.verb_tallies(&last.verbs, &now.verbs);
            for (whole, piece) in whole_verbs.iter_mut().zip(&verbs) {
                whole.add(piece);
            }
            let queues = self.queues.piece(self.cluster.now_ns());
            for (whole, piece) in whole_flows.iter_mut().zip(&flows) {
                whole.add(piece);
            }
            for (whole, piece) in whole.iter_mut().zip(&tallies) {
                whole.add(piece);
            }
            if point.every_ns.is_some() {
                let window = self.window(&last, &now, (tallies, flows, verbs, queues));
                pieces.push((now.now_ns, values(point, &window)));
            }
            last = now;
        }
        for tally in &mut whole {
            tally.latencies_ns.sort_unstable();
        }
        for tally in &mut whole_flows {
            tally.times_ns.sort_unstable();
        }
        let deepest = self.queues.whole(self.cluster.now_ns());
        let window = self.window(&before, &last, (whole, whole_flows, whole_verbs, deepest));
        (window, pieces)
    }

    fn verb_counts(&self) -> Vec<u64> {
        self.verbs
            .as_ref()
            .map_or(Vec::new(), verbs::Running::counts)
    }

    fn verb_tallies(&self, before: &[u64], after: &[u64]) -> Vec<VerbTally> {
        let verbs = self.verbs.as_ref();
        verbs.map_or(Vec::new(), |verbs| verbs.tallies(before, after))
    }

    fn look(&self) -> Look {
        let load = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        let hosts = self.cluster.hosts();
        let mut switches = Switches::default();
        for &switch in self.switches {
            let counted = self.cluster.switch_counters(switch);
            switches.drops += counted.drops;
            switches.marks += counted.marks;
            switches.pauses += counted.pauses;
            switches.most_bytes = switches.most_bytes.max(counted.buffer_bytes_max);
        }
        let seen = self.seen().iter();
        Look {
            now_ns: self.now_ns(),
            calls: seen
                .map(|seen| (load(&seen.calls), load(&seen.failed), load(&seen.bytes)))
                .collect(),
            verbs: self.verb_counts(),
            sent: self.load.map_or(Vec::new(), Load::sent),
            counters: hosts
                .iter()
                .map(|&host| self.cluster.counters(host))
                .collect(),
            switches,
        }
    }

    /// Tallies of the groups between two snapshots; takes the latencies.
    fn tallies(&self, before: &Look, after: &Look) -> Vec<Tally> {
        let groups = self.point.clients.iter().zip(self.seen()).enumerate();
        let tally = groups.map(|(number, (group, seen))| {
            let (then, now) = (before.calls[number], after.calls[number]);
            let mut latencies_ns = seen.take();
            latencies_ns.sort_unstable();
            Tally {
                calls: now.0 - then.0,
                failed: now.1 - then.1,
                bytes: now.2 - then.2,
                messages: after.sent[number].0 - before.sent[number].0,
                requests: after.sent[number].1 - before.sent[number].1,
                processes: (group.hosts.len() * group.processes) as u64,
                latencies_ns,
            }
        });
        tally.collect()
    }

    fn window(
        &self,
        before: &Look,
        after: &Look,
        (clients, flows, verbs, queues): (Vec<Tally>, Vec<FlowTally>, Vec<VerbTally>, Deepest),
    ) -> Window {
        let server = self.point.server.as_ref().map(|server| server.host);
        let counted = |server: usize| Counted {
            before: before.counters[server],
            after: after.counters[server],
        };
        let cores = |server: usize| {
            let host: HostId = self.cluster.hosts()[server];
            self.cluster.device(host).cores()
        };
        let mut numbers = 0..;
        let group = |group: &super::model::Hosts| {
            let numbers = numbers.by_ref().take(group.count);
            numbers.map(counted).collect()
        };
        let hosts = self.point.hosts.iter().map(group).collect();
        Window {
            hosts,
            verbs,
            nanoseconds: after.now_ns - before.now_ns,
            clients,
            flows,
            queues,
            server: server.map(counted).unwrap_or_default(),
            all: Counted {
                before: sum(&before.counters),
                after: sum(&after.counters),
            },
            switches: Switches {
                drops: after.switches.drops - before.switches.drops,
                marks: after.switches.marks - before.switches.marks,
                pauses: after.switches.pauses - before.switches.pauses,
                most_bytes: after.switches.most_bytes,
            },
            server_cores: server.map_or(0, cores),
            active: self.load.map_or(0, Load::active),
        }
    }
}

/// Sum of the counters that columns of all hosts show.
fn sum(all: &[Counters]) -> Counters {
    let mut sum = Counters::default();
    for one in all {
        sum.retransmissions += one.retransmissions;
        sum.timeouts += one.timeouts;
        sum.receiver_drops += one.receiver_drops;
        sum.fault_drops += one.fault_drops;
        sum.pauses_sent += one.pauses_sent;
        sum.congestion_notifications += one.congestion_notifications;
    }
    sum
}
