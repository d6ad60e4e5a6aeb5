//! The faults of a hunt: phases with random rules, each removed at the end of its phase.

use dunlin_sim::{Fault, FaultRule, HostId, RuleGuard, Traffic};

use super::terrain::Terrain;
use crate::dice::Dice;

/// What was done to the cluster.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) crashed: Vec<HostId>,
    /// Queue pairs that were made to fail, of those that there were.
    pub(super) failed: Vec<(HostId, u32)>,
    /// Packets may have been lost on their way.
    pub(super) lost_packets: bool,
    /// Packets may overtake each other, which loses those of UC that are overtaken.
    pub(super) late_packets: bool,
    /// Packets may arrive twice.
    pub(super) double_packets: bool,
    pub(super) words: Vec<String>,
}

impl Faults {
    /// Whether this queue pair has ended. Packets that are lost, late or double do not suffice for that: no phase lasts
    /// as long as the retries.
    pub(super) fn ended(&self, pair: (HostId, u32)) -> bool {
        self.crashed.contains(&pair.0) || self.failed.contains(&pair)
    }

    /// Whether any queue pair of this host has ended.
    pub(super) fn hit(&self, host: HostId) -> bool {
        self.crashed.contains(&host) || self.failed.iter().any(|pair| pair.0 == host)
    }
}

/// `victim` chooses a queue pair that could fail.
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
                faults.lost_packets |= matches!(rule.fault, Fault::Drop);
                faults.late_packets |= matches!(rule.fault, Fault::Delay { .. });
                faults.double_packets |= matches!(rule.fault, Fault::Duplicate { .. });
                faults.words.push(format!(
                    "{:?} {:?} {:.2}",
                    rule.fault, rule.traffic, rule.probability
                ));
                guards.push(cluster.fault(rule));
            }
            6 => {
                faults.words.push(format!("{host:?} cut off"));
                faults.lost_packets = true;
                guards.push(cluster.partition(&[host]));
            }
            7 => {
                let factor = dice.between(2, 20);
                faults.words.push(format!("{host:?} {factor} times slower"));
                cluster.slow_down(host, factor as f64);
            }
            8 => {
                if let Some((host, number)) = victim(dice) {
                    // It may have gone, or there may never have been one: that is no cause of anything.
                    let fails = match cluster.fail_queue_pair(host, number) {
                        true => {
                            faults.failed.push((host, number));
                            "fails"
                        }
                        false => "is not there",
                    };
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
