//! The faults of a hunt: phases with random rules, each removed at the end of its phase.

use dunlin_sim::{Fault, FaultRule, HostId, RuleGuard, Traffic};

use super::terrain::Terrain;
use crate::dice::Dice;

/// The faults injected into the cluster.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) crashed: Vec<HostId>,
    /// Queue pairs that were made to fail, if they existed.
    pub(super) failed: Vec<Failed>,
    /// Rules by which packets were lost, delayed or duplicated.
    rules: Vec<FaultRule>,
    /// Hosts that were cut off from all others.
    cut_off: Vec<HostId>,
    pub(super) words: Vec<String>,
}

/// A queue pair that was made to fail.
#[derive(Debug)]
pub(super) struct Failed {
    pair: (HostId, u32),
    /// The host at its other end; `None` if it may be any, as for datagrams.
    peer: Option<HostId>,
}

/// Faults of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packets {
    Lost,
    Late,
    Double,
}

impl Packets {
    fn of(fault: Fault) -> Self {
        match fault {
            Fault::Drop => Self::Lost,
            Fault::Delay { .. } => Self::Late,
            Fault::Duplicate { .. } => Self::Double,
        }
    }
}

/// Packets in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    faults: &'a Faults,
    from: HostId,
    to: HostId,
    /// Whether they are neither acknowledged nor answered: faults of acknowledgements and answers do not concern them.
    unanswered: bool,
}

impl Way<'_> {
    fn meets(self, what: Packets) -> bool {
        let on_it = |rule: &FaultRule| {
            rule.from.is_none_or(|host| host == self.from)
                && rule.to.is_none_or(|host| host == self.to)
                && !(self.unanswered && rule.traffic == Traffic::Answers)
        };
        let mut rules = self.faults.rules.iter();
        rules.any(|rule| Packets::of(rule.fault) == what && on_it(rule))
    }

    /// Whether a fault may have lost some of them.
    pub(super) fn loses(self) -> bool {
        let cut = |&host: &HostId| (host == self.from) != (host == self.to);
        self.faults.cut_off.iter().any(cut) || self.meets(Packets::Lost)
    }

    /// Whether they may overtake each other, which makes UC drop those that are overtaken.
    pub(super) fn delays(self) -> bool {
        self.meets(Packets::Late)
    }

    /// Whether they may arrive twice.
    pub(super) fn doubles(self) -> bool {
        self.meets(Packets::Double)
    }
}

impl Faults {
    /// Whether this queue pair has ended. Lost, delayed or duplicated packets do not suffice for that: no phase lasts
    /// as long as the retries.
    pub(super) fn ended(&self, pair: (HostId, u32)) -> bool {
        self.crashed.contains(&pair.0) || self.failed.iter().any(|failed| failed.pair == pair)
    }

    /// Whether any queue pair of this host has ended.
    pub(super) fn hit(&self, host: HostId) -> bool {
        self.crashed.contains(&host) || self.failed.iter().any(|failed| failed.pair.0 == host)
    }

    /// Whether a connection between these hosts may have ended: one of them crashed, or a queue pair of one that may be
    /// the other's failed.
    pub(super) fn ended_between(&self, one: HostId, other: HostId) -> bool {
        let crashed = |host| self.crashed.contains(&host);
        let between = |failed: &Failed| {
            [(one, other), (other, one)]
                .iter()
                .any(|&(at, to)| failed.pair.0 == at && failed.peer.is_none_or(|peer| peer == to))
        };
        crashed(one) || crashed(other) || self.failed.iter().any(between)
    }

    /// Packets of verbs without acknowledgements, in this direction.
    pub(super) fn unanswered(&self, from: HostId, to: HostId) -> Way<'_> {
        Way {
            faults: self,
            from,
            to,
            unanswered: true,
        }
    }

    /// Whether a fault may have lost packets between these hosts, in either direction.
    pub(super) fn loses_between(&self, one: HostId, other: HostId) -> bool {
        self.ways(one, other).into_iter().any(Way::loses)
    }

    /// Whether a fault may have delayed packets between these hosts, in either direction.
    pub(super) fn delays_between(&self, one: HostId, other: HostId) -> bool {
        self.ways(one, other).into_iter().any(Way::delays)
    }

    /// Whether a fault may have lost or delayed any packets.
    pub(super) fn disturbs(&self) -> bool {
        let disturbs = |rule: &FaultRule| Packets::of(rule.fault) != Packets::Double;
        !self.cut_off.is_empty() || self.rules.iter().any(disturbs)
    }

    fn ways(&self, one: HostId, other: HostId) -> [Way<'_>; 2] {
        [(one, other), (other, one)].map(|(from, to)| Way {
            faults: self,
            from,
            to,
            unanswered: false,
        })
    }
}

/// Injects faults; `victim` chooses a queue pair that may fail.
pub(super) fn run(
    terrain: &Terrain,
    dice: &mut Dice,
    victim: impl Fn(&mut Dice) -> Option<(HostId, u32)>,
) -> Faults {
    let mut faults = Faults::default();
    let cluster = &terrain.cluster;
    for _ in 0..dice.between(0, 6) {
        let mut guards: Vec<RuleGuard> = Vec::new();
        let host = terrain.any_host(dice);
        match dice.between(0, 9) {
            0..=5 => {
                let rule = draw_rule(terrain, dice);
                faults.rules.push(rule);
                let mut words = format!(
                    "{:?} {:?} {:.2}",
                    rule.fault, rule.traffic, rule.probability
                );
                if let (Some(from), Some(to)) = (rule.from, rule.to) {
                    words += &format!(" {} -> {}", from.number(), to.number());
                }
                faults.words.push(words);
                guards.push(cluster.fault(rule));
            }
            6 => {
                faults.words.push(format!("{host:?} cut off"));
                faults.cut_off.push(host);
                guards.push(cluster.partition(&[host]));
            }
            7 => {
                let factor = dice.between(2, 20);
                faults.words.push(format!("{host:?} {factor} times slower"));
                cluster.slow_down(host, factor as f64);
            }
            8 => {
                if let Some((host, number)) = victim(dice) {
                    let peer = cluster.peer_of(host, number);
                    // It may be gone, or never have existed: then it is no cause of anything.
                    let there = cluster.fail_queue_pair(host, number);
                    let fails = match (there, peer) {
                        (true, Some(peer)) => format!("to {peer:?} fails"),
                        (true, None) => "fails".to_owned(),
                        (false, _) => "is not there".to_owned(),
                    };
                    if there {
                        let pair = (host, number);
                        faults.failed.push(Failed { pair, peer });
                    }
                    let words = format!("queue pair {number:#x} of {host:?} {fails}");
                    faults.words.push(words);
                }
            }
            _ if faults.crashed.is_empty() => {
                faults.words.push(format!("{host:?} crashes"));
                faults.crashed.push(host);
                cluster.crash(host);
            }
            _ => {}
        }
        cluster.run_for(dice.between(1_000, 300_000));
        drop(guards);
        cluster.run_for(dice.between(0, 50_000));
    }
    faults
}

fn draw_rule(terrain: &Terrain, dice: &mut Dice) -> FaultRule {
    let fault = match dice.between(0, 3) {
        0 | 1 => Fault::Drop,
        2 => Fault::Delay {
            least_ns: dice.between(0, 1_000),
            most_ns: dice.between(1_000, 100_000),
        },
        _ => Fault::Duplicate {
            after_ns: dice.between(0, 50_000),
        },
    };
    let probability = [0.001, 0.01, 0.1, 0.5, 1.0][dice.next() as usize % 5];
    let mut rule = FaultRule::new(fault, probability);
    if dice.chance(1, 2) {
        rule = rule.between(terrain.any_host(dice), terrain.any_host(dice));
    }
    rule.traffic = [Traffic::All, Traffic::Requests, Traffic::Answers][dice.next() as usize % 3];
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_hosts_excuses_no_others() {
        let [a, b, c, d] = {
            let mut builder = dunlin_sim::ClusterBuilder::new(1);
            let switch = builder.switch(dunlin_sim::SwitchParameters::z9264f());
            [(); 4].map(|()| {
                let host = dunlin_sim::HostParameters::xeon_gold_5118();
                builder.host(host, dunlin_sim::NicParameters::connectx_5(), switch)
            })
        };
        let rule = |fault| FaultRule::new(fault, 0.5).between(a, b);
        let mut answers = rule(Fault::Drop);
        answers.traffic = Traffic::Answers;
        let least_ns = 1;
        let faults = Faults {
            rules: vec![
                answers,
                rule(Fault::Delay {
                    least_ns,
                    most_ns: 2,
                }),
            ],
            cut_off: vec![d],
            failed: [(a, Some(c)), (b, None)]
                .map(|(host, peer)| Failed {
                    pair: (host, 1),
                    peer,
                })
                .into(),
            ..Faults::default()
        };
        assert!(faults.loses_between(a, b) && faults.loses_between(b, a));
        assert!(!faults.loses_between(a, c) && !faults.loses_between(b, c));
        assert!(faults.loses_between(a, d) && !faults.loses_between(d, d));
        assert!(faults.delays_between(b, a) && !faults.delays_between(a, d));
        // A host that answers nothing loses no answer, and the delay is in the other direction.
        assert!(!faults.unanswered(a, b).loses());
        assert!(faults.unanswered(a, b).delays() && !faults.unanswered(b, a).delays());
        assert!(!faults.unanswered(a, b).doubles());
        assert!(faults.ended_between(c, a) && !faults.ended_between(a, d));
        // Its peer may be any host.
        assert!(faults.ended_between(a, b) && faults.ended_between(d, b));
        let faults = Faults {
            crashed: vec![c],
            ..Faults::default()
        };
        assert!(faults.ended_between(c, a) && !faults.ended_between(a, b));
    }
}
