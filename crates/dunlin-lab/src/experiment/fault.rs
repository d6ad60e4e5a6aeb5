//! Faults of an experiment: which packets and hosts they affect, and when.

use dunlin_sim::{Cluster, FaultRule, HostId, RuleGuard, Traffic};

use super::check::{self, Values};
use super::mistake::Mistake;
use super::model::{numbers, Hosts};
use super::tree::Table;

/// A fault with its time, relative to the beginning of the clients.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    from_ns: u64,
    /// `None` if it does not end.
    to_ns: Option<u64>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Packets {
        fault: dunlin_sim::Fault,
        share: f64,
        sender: Option<usize>,
        receiver: Option<usize>,
        traffic: Traffic,
    },
    Slow(Vec<usize>, f64),
    Crash(Vec<usize>),
    Partition(Vec<usize>),
    NoDma(Vec<usize>),
    SlowDma(Vec<usize>, f64),
}

/// Keys that only some kinds have.
const OF_PACKETS: [&str; 4] = ["share", "sender", "receiver", "traffic"];

/// Reads the faults of a file.
pub(super) fn read(root: &Table, hosts: &[Hosts]) -> Result<Vec<Fault>, Mistake> {
    let faults = check::all(root, "faults")?;
    faults.iter().map(|values| fault(values, hosts)).collect()
}

fn fault(values: &Values<'_>, hosts: &[Hosts]) -> Result<Fault, Mistake> {
    let kind = values.text("kind").unwrap_or_default();
    let own: &[&str] = match kind.as_str() {
        "loss" => &[],
        "delay" => &["least", "most"],
        "duplicate" => &["after"],
        "slow" => &["hosts", "factor"],
        "slow-dma" => &["hosts", "share"],
        _ => &["hosts"],
    };
    let of_packets = matches!(kind.as_str(), "loss" | "delay" | "duplicate");
    let others = ["least", "most", "after", "hosts", "factor"];
    let others = others.iter().chain(&OF_PACKETS);
    for key in others.filter(|key| values.has(key)) {
        if !(own.contains(key) || of_packets && OF_PACKETS.contains(key)) {
            let words = format!("a fault of the kind \"{kind}\" does not have it");
            return Err(values.wrong(key, "there", words));
        }
    }
    let fault = match kind.as_str() {
        "loss" => Some(dunlin_sim::Fault::Drop),
        "delay" => Some(delay(values)?),
        "duplicate" => Some(dunlin_sim::Fault::Duplicate {
            after_ns: values.count("after"),
        }),
        _ => None,
    };
    let what = match fault {
        Some(fault) => What::Packets {
            fault,
            share: values.number("share").unwrap_or(1.0),
            sender: one_host(values, "sender", hosts)?,
            receiver: one_host(values, "receiver", hosts)?,
            traffic: match values.text("traffic").unwrap_or_default().as_str() {
                "requests" => Traffic::Requests,
                "answers" => Traffic::Answers,
                _ => Traffic::All,
            },
        },
        None if !values.has("hosts") => {
            let words = format!("a fault of the kind \"{kind}\" needs `hosts`");
            return Err(Mistake::new(values.place("kind"), words));
        }
        None => {
            let hosts = numbers(values, "hosts", hosts)?;
            match kind.as_str() {
                "slow" => What::Slow(hosts, values.number("factor").unwrap_or(1.0)),
                "crash" => What::Crash(hosts),
                "no-dma" => What::NoDma(hosts),
                "slow-dma" => What::SlowDma(hosts, values.number("share").unwrap_or(1.0)),
                _ => What::Partition(hosts),
            }
        }
    };
    let from_ns = values.count("from");
    let to_ns = values.number("to").map(|ns| ns.round() as u64);
    if to_ns.is_some_and(|to| to <= from_ns) {
        let found = format!("{} ns", to_ns.unwrap_or(0));
        let must = format!("a fault ends after it begins ({from_ns} ns)");
        return Err(values.wrong("to", &found, must));
    }
    if to_ns.is_some() && kind == "crash" {
        return Err(values.wrong("to", "there", "a host that has crashed stays so"));
    }
    if to_ns.is_none() && kind == "no-dma" {
        let words = "a fault of the kind \"no-dma\" needs `to`".to_owned();
        return Err(Mistake::new(values.place("kind"), words));
    }
    Ok(Fault {
        from_ns,
        to_ns,
        what,
    })
}

fn delay(values: &Values<'_>) -> Result<dunlin_sim::Fault, Mistake> {
    let (least_ns, most_ns) = (values.count("least"), values.count("most"));
    if most_ns < least_ns {
        let must = format!("the least delay is {least_ns} ns");
        return Err(values.wrong("most", &format!("{most_ns} ns"), must));
    }
    Ok(dunlin_sim::Fault::Delay { least_ns, most_ns })
}

fn one_host(values: &Values<'_>, key: &str, hosts: &[Hosts]) -> Result<Option<usize>, Mistake> {
    match numbers(values, key, hosts)?.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        [_, ..] => {
            let text = values.text(key).unwrap_or_default();
            let must = format!("that is several hosts; one of them is \"{text}.0\"");
            Err(values.wrong(key, &format!("{text:?}"), must))
        }
    }
}

/// Begins and ends faults while a cluster runs.
#[derive(Debug)]
pub(super) struct Timeline<'a> {
    cluster: &'a Cluster,
    hosts: Vec<HostId>,
    /// Faults that are waiting to begin, and active ones with the guard that keeps each in force.
    waiting: Vec<&'a Fault>,
    active: Vec<(&'a Fault, Option<RuleGuard>)>,
    /// Hosts that have crashed.
    pub(super) crashed: Vec<usize>,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(cluster: &'a Cluster, faults: &'a [Fault]) -> Self {
        Self {
            cluster,
            hosts: cluster.hosts(),
            waiting: faults.iter().collect(),
            active: Vec::new(),
            crashed: Vec::new(),
        }
    }

    /// Time at which the next fault begins or ends.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let begins = self.waiting.iter().map(|fault| fault.from_ns);
        let ends = self.active.iter().filter_map(|(fault, _)| fault.to_ns);
        begins.chain(ends).min()
    }

    /// Ends and begins the faults that are due.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let is_over = |fault: &Fault| fault.to_ns.is_some_and(|to| to <= now_ns);
        let active = std::mem::take(&mut self.active).into_iter();
        let (over, active) = active.partition(|(fault, _)| is_over(fault));
        self.active = active;
        self.ended(over);
        let waiting = std::mem::take(&mut self.waiting);
        let (due, later) = waiting
            .into_iter()
            .partition(|fault| fault.from_ns <= now_ns);
        self.waiting = later;
        let due: Vec<&Fault> = due;
        for fault in due {
            let guard = self.begin(fault);
            self.active.push((fault, guard));
            self.slow(fault);
        }
    }

    fn begin(&mut self, fault: &Fault) -> Option<RuleGuard> {
        let host = |number: &usize| self.hosts[*number];
        match &fault.what {
            What::Packets {
                fault,
                share,
                sender,
                receiver,
                traffic,
            } => {
                let mut rule = FaultRule::new(*fault, *share);
                rule.from = sender.as_ref().map(host);
                rule.to = receiver.as_ref().map(host);
                rule.traffic = *traffic;
                Some(self.cluster.fault(rule))
            }
            What::Partition(side) => {
                let side: Vec<HostId> = side.iter().map(host).collect();
                Some(self.cluster.partition(&side))
            }
            What::Slow(..) | What::SlowDma(..) => None,
            What::NoDma(stalled) => {
                let lasts_ns = fault.to_ns.unwrap_or(fault.from_ns) - fault.from_ns;
                stalled
                    .iter()
                    .for_each(|stalled| self.cluster.stall_dma(host(stalled), lasts_ns));
                None
            }
            What::Crash(dead) => {
                dead.iter().for_each(|dead| self.cluster.crash(host(dead)));
                self.crashed.extend(dead);
                None
            }
        }
    }

    /// Ends all faults that can be ended.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        let active = std::mem::take(&mut self.active);
        self.ended(active);
    }

    /// Called when these are no longer active.
    fn ended(&self, over: Vec<(&Fault, Option<RuleGuard>)>) {
        over.iter().for_each(|(fault, _)| self.slow(fault));
    }

    /// Slows the hosts of this fault down as much as the active faults together require: of several the strongest
    /// counts, so the end of one leaves the others in force.
    fn slow(&self, changed: &Fault) {
        let active = || self.active.iter().map(|(fault, _)| &fault.what);
        match &changed.what {
            What::Slow(hosts, _) => {
                for host in hosts {
                    let factors = active().filter_map(|what| match what {
                        What::Slow(slow, factor) => slow.contains(host).then_some(*factor),
                        _ => None,
                    });
                    let factor = factors.fold(1.0, f64::max);
                    self.cluster.slow_down(self.hosts[*host], factor);
                }
            }
            What::SlowDma(hosts, _) => {
                for host in hosts {
                    let shares = active().filter_map(|what| match what {
                        What::SlowDma(slow, share) => slow.contains(host).then_some(*share),
                        _ => None,
                    });
                    let share = shares.fold(1.0, f64::min);
                    self.cluster.limit_dma(self.hosts[*host], share);
                }
            }
            _ => {}
        }
    }
}
