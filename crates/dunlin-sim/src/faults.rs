//! Faults: rules over packets that a test installs and removes while the cluster runs.
//!
//! A rule is in force as long as its [`crate::RuleGuard`] lives. Rules are tried in the order of their installation;
//! the first one that matches and whose probability applies decides. Each rule has its own random generator, so adding
//! one does not change what another does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::{Ps, NS};
use crate::packet::{Kind, Packet};
use crate::random::Random;
use crate::HostId;

/// What happens to a packet selected by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The packet is lost.
    Drop,
    /// The packet is late by a time drawn uniformly from this range, and may be overtaken: delay and reordering.
    Delay {
        /// Minimum, in nanoseconds.
        least_ns: u64,
        /// Maximum, in nanoseconds.
        most_ns: u64,
    },
    /// The packet arrives twice, the second time later.
    Duplicate {
        /// Delay of the second copy, in nanoseconds.
        after_ns: u64,
    },
}

/// The packets that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// All packets.
    #[default]
    All,
    /// Packets that carry requests of a verb.
    Requests,
    /// Acknowledgements, refusals and responses.
    Answers,
}

/// A rule over packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRule {
    /// Sender; any host if `None`.
    pub from: Option<HostId>,
    /// Receiver; any host if `None`.
    pub to: Option<HostId>,
    /// Kind of the packets.
    pub traffic: Traffic,
    /// Share of the matching packets that is selected, from 0 to 1.
    pub probability: f64,
    /// Maximum number of packets selected; no limit if `None`.
    pub limit: Option<u64>,
    /// What happens to them.
    pub fault: Fault,
}

impl FaultRule {
    /// Selects any packet of the cluster with this probability.
    pub fn new(fault: Fault, probability: f64) -> Self {
        Self {
            from: None,
            to: None,
            traffic: Traffic::All,
            probability,
            limit: None,
            fault,
        }
    }

    /// Restricts the rule to packets from `from` to `to`.
    #[must_use]
    pub fn between(mut self, from: HostId, to: HostId) -> Self {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }

    /// Restricts the rule to this many packets.
    #[must_use]
    pub fn at_most(mut self, packets: u64) -> Self {
        self.limit = Some(packets);
        self
    }

    fn matches(&self, packet: &Packet) -> bool {
        let answer = matches!(
            packet.kind,
            Kind::Acknowledge
                | Kind::Refuse(_)
                | Kind::ReadResponse
                | Kind::AtomicResponse
                | Kind::Congestion
        );
        self.limit != Some(0)
            && self.from.is_none_or(|host| host.0 == packet.from)
            && self.to.is_none_or(|host| host.0 == packet.to)
            && match self.traffic {
                Traffic::All => true,
                Traffic::Requests => !answer,
                Traffic::Answers => answer,
            }
    }
}

/// The decision of the rules on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    Delay(Ps),
    Duplicate(Ps),
}

#[derive(Debug)]
struct Installed {
    id: u64,
    rule: FaultRule,
    random: Random,
}

/// The rules in force, of all parts of a cluster.
#[derive(Debug)]
pub(crate) struct Faults {
    rules: Mutex<Rules>,
    /// Whether there are any rules.
    active: AtomicBool,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rules: Mutex::new(Rules {
                rules: Vec::new(),
                partitions: Vec::new(),
                next: 0,
                seed,
            }),
            active: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Changes the rules.
    fn change<T>(&self, change: impl FnOnce(&mut Rules) -> T) -> T {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut rules);
        let active = !rules.rules.is_empty() || !rules.partitions.is_empty();
        self.active.store(active, Ordering::Relaxed);
        result
    }

    pub(crate) fn install(&self, rule: FaultRule) -> u64 {
        self.change(|rules| rules.install(rule))
    }

    /// Partitions the hosts; `side[host]` is the side of a host.
    pub(crate) fn partition(&self, side: Vec<bool>) -> u64 {
        self.change(|rules| {
            rules.next += 1;
            rules.partitions.push((rules.next, side));
            rules.next
        })
    }

    pub(crate) fn remove(&self, id: u64) {
        self.change(|rules| {
            rules.rules.retain(|installed| installed.id != id);
            rules.partitions.retain(|(other, _)| *other != id);
        });
    }

    pub(crate) fn judge(&self, packet: &Packet) -> Verdict {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.judge(packet)
    }
}

#[derive(Debug)]
struct Rules {
    rules: Vec<Installed>,
    /// Partitions by their ids; hosts on different sides do not reach each other.
    partitions: Vec<(u64, Vec<bool>)>,
    next: u64,
    seed: u64,
}

impl Rules {
    fn install(&mut self, rule: FaultRule) -> u64 {
        self.next += 1;
        let random = Random::of(self.seed, "fault", self.next);
        self.rules.push(Installed {
            id: self.next,
            rule,
            random,
        });
        self.next
    }

    fn judge(&mut self, packet: &Packet) -> Verdict {
        let (from, to) = (usize::from(packet.from), usize::from(packet.to));
        if self
            .partitions
            .iter()
            .any(|(_, side)| side[from] != side[to])
        {
            return Verdict::Drop;
        }
        for installed in &mut self.rules {
            let Installed { rule, random, .. } = installed;
            if !rule.matches(packet) || !random.chance(rule.probability) {
                continue;
            }
            if let Some(limit) = &mut rule.limit {
                *limit -= 1;
            }
            return match rule.fault {
                Fault::Drop => Verdict::Drop,
                Fault::Delay { least_ns, most_ns } => {
                    let span = most_ns.saturating_sub(least_ns).saturating_mul(NS);
                    let more = random.below(span.saturating_add(1));
                    Verdict::Delay(least_ns.saturating_mul(NS).saturating_add(more))
                }
                Fault::Duplicate { after_ns } => Verdict::Duplicate(after_ns.saturating_mul(NS)),
            };
        }
        Verdict::Pass
    }
}
