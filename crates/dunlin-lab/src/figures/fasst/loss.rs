//! FaSST's loss test, turned round: its 50 PB without a loss cannot be shown, but the fate of calls on a network with
//! losses can.

use dunlin::Preset;
use dunlin_sim::{Fault, FaultRule};

use super::Testbed;
use crate::figure::{Effort, Figure, Findings};
use crate::load::{all_to_all, AllToAll, AllToAllResult, Window};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-loss",
    title: "FaSST: calls on a network that loses packets, Connect-IB",
    says: "no packet of 100 trillion was lost; a lost one shows by a call without progress for one second",
    run,
};

/// Time within which the loss of one packet is detected.
const FOUND_OUT_NS: u64 = 2_000_000_000;

fn run(effort: Effort) -> Findings {
    let shares: &[f64] = if effort.quick {
        &[0.0, 0.01]
    } else {
        &[0.0, 0.0001, 0.001, 0.01]
    };
    let found = parallel::map(effort.threads, shares, |&share| {
        let cluster = Testbed::Cib.cluster(3, effort);
        let _rule = (share > 0.0).then(|| cluster.fault(FaultRule::new(Fault::Drop, share)));
        let window = Window {
            warm_ns: 100_000,
            measured_ns: if effort.quick { 200_000 } else { 2_000_000 },
        };
        let plan = AllToAll::new(Preset::Fasst, 1, 1);
        all_to_all(&cluster, &plan, window)
    });
    let lost = |result: &AllToAllResult| result.failed.0 as f64 / result.all_calls.max(1.0);
    let mut findings = Findings::new("share of packets lost", "share of calls lost", false);
    let points = shares.iter().zip(&found);
    let line = points.map(|(&share, result)| (share, lost(result)));
    findings.line("fasst", line.collect());
    let found_out = {
        let cluster = Testbed::Cib.cluster(2, effort);
        let hosts = cluster.hosts();
        let rule = FaultRule::new(Fault::Drop, 1.0).between(hosts[0], hosts[1]);
        let _rule = cluster.fault(rule.at_most(1));
        let plan = AllToAll {
            askers: 1,
            workers: 1,
            ..AllToAll::new(Preset::Fasst, 1, 1)
        };
        let window = Window {
            warm_ns: 1_000,
            measured_ns: FOUND_OUT_NS,
        };
        all_to_all(&cluster, &plan, window)
    };
    let why = "seconds until the caller of a lost call knows, by default; the timer counts in quarters of a second and is looked at each 0.08 s while nothing comes";
    let seconds = found_out.told_us / 1e6;
    findings.answer(
        "a lost call is told of, fasst-loss",
        "1 s",
        seconds,
        (1.0, 2.0),
        why,
    );
    let why = "calls lost for each packet lost, one packet in 100; a call is two packets, which may bring several";
    let ratio = lost(&found[found.len() - 1]) / shares[shares.len() - 1];
    findings.answer("calls lost, fasst-loss", "2", ratio, (1.0, 3.0), why);
    let why = "calls lost on the network as it is";
    let none = found[0].failed.0 as f64;
    findings.answer("no call lost, fasst-loss", "0", none, (0.0, 0.0), why);
    findings
}
