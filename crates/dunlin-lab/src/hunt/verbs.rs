//! The verbs of a hunt: flows of messages, READs and atomics over all transports.

use std::sync::{Arc, Mutex};

use super::chaos;
use super::check;
use super::flow::{Flow, Log};
use super::terrain::Terrain;
use super::{Seen, SETTLE_NS};
use crate::dice::Dice;

pub(super) fn run(terrain: &Terrain, dice: &mut Dice) -> Seen {
    let count = dice.between(1, 8);
    let flows: Vec<Flow> = (0..count)
        .map(|number| Flow::draw(number as usize, terrain, dice))
        .collect();
    let logs: Vec<Arc<Mutex<Log>>> = flows.iter().map(|flow| flow.start(terrain)).collect();
    let faults = chaos::run(terrain, dice, |dice| {
        flows[dice.next() as usize % flows.len()].queue_pair()
    });
    let names: Vec<String> = flows.iter().map(Flow::name).collect();
    let mut seen = Seen {
        words: names.join(", "),
        ..Seen::default()
    };
    // Every hunt checks at its end whether it does.
    terrain.cluster.settle(SETTLE_NS);
    for (flow, log) in flows.iter().zip(&logs) {
        let log = log.lock().expect("steps do not panic");
        seen.messages.0 += log.posted;
        seen.messages.1 += log.completions.iter().filter(|one| one.1).count();
        let gone = |host| faults.crashed.contains(&host);
        // Flows whose packets may be lost or reordered have only requests.
        let way = faults.unanswered(flow.from, flow.to);
        let around = check::Around {
            sender_gone: gone(flow.from),
            receiver_gone: gone(flow.to),
            pair_failed: flow.queue_pair().is_some_and(|pair| faults.ended(pair)),
            loses: way.loses() || !terrain.lossless,
            late: way.delays(),
            doubles: way.doubles(),
        };
        check::check(flow, &log, around, &mut seen.violations);
    }
    seen.faults = faults;
    seen
}
