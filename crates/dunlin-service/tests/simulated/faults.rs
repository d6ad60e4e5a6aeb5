//! What happens to the hosts of a scene: phases, each with something of its own.

use dunlin_sim::{Cluster, Fault, FaultRule, HostId, Traffic};

use crate::dice::Dice;

/// What was done.
#[derive(Debug, Default)]
pub struct Faults {
    pub crashed: Vec<HostId>,
    /// Queue pairs failed, or the server was started anew.
    pub broke: bool,
    /// Packets may have been lost, or come late, which loses those of UC that are overtaken.
    pub lost_packets: bool,
    pub words: Vec<String>,
}

impl Faults {
    /// Whether a connection may be lost. Packets that are lost for a while do not suffice: no phase lasts as long as
    /// the retries.
    pub fn may_break(&self) -> bool {
        self.broke || !self.crashed.is_empty()
    }
}

pub fn run(cluster: &Cluster, dice: &mut Dice, mut start_anew: impl FnMut(&Faults)) -> Faults {
    let hosts = cluster.hosts();
    let mut faults = Faults::default();
    for _ in 0..dice.between(0, 6) {
        let host = dice.one_of(&hosts);
        let mut guard = None;
        match dice.between(0, 11) {
            0..=5 => {
                let rule = draw_rule(&hosts, dice);
                faults.lost_packets |= !matches!(rule.fault, Fault::Duplicate { .. });
                let words = format!("{:?} {:?} {}", rule.fault, rule.traffic, rule.probability);
                faults.words.push(words);
                guard = Some(cluster.fault(rule));
            }
            6 => {
                faults.words.push(format!("{} cut off", host.number()));
                faults.lost_packets = true;
                guard = Some(cluster.partition(&[host]));
            }
            7 => {
                let factor = dice.between(2, 20);
                let words = format!("{} {factor} times slower", host.number());
                faults.words.push(words);
                cluster.slow_down(host, factor as f64);
            }
            8 => {
                let words = format!("queue pairs of {} fail", host.number());
                faults.words.push(words);
                faults.broke = true;
                cluster.fail_queue_pairs(host);
            }
            9 | 10 => {
                faults.words.push("the server is started anew".to_owned());
                faults.broke = true;
                start_anew(&faults);
            }
            _ if faults.crashed.is_empty() => {
                faults.words.push(format!("{} crashes", host.number()));
                faults.crashed.push(host);
                cluster.crash(host);
            }
            _ => {}
        }
        cluster.run_for(dice.between(1_000, 300_000));
        drop(guard);
        cluster.run_for(dice.between(0, 100_000));
    }
    faults
}

fn draw_rule(hosts: &[HostId], dice: &mut Dice) -> FaultRule {
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
    let mut rule = FaultRule::new(fault, dice.one_of(&[0.001, 0.01, 0.1, 0.5, 1.0]));
    if dice.chance(1, 2) {
        rule = rule.between(dice.one_of(hosts), dice.one_of(hosts));
    }
    rule.traffic = dice.one_of(&[Traffic::All, Traffic::Requests, Traffic::Answers]);
    rule
}
