//! FaSST's comparison on the medium cluster: additional queue pairs, or sessions, of each machine represent further
//! machines.

use super::{fasst, machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::AllToAll;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-medium",
    title: "FaSST: RPC and READ on the medium cluster, emulated, ConnectX-3 and Connect-IB",
    says: "READs lose with the queue pairs that more machines need, on Connect-IB more slowly; RPC does not",
    run,
};

const BEDS: [Testbed; 2] = [Testbed::Cx3, Testbed::Cib];

fn run(effort: Effort) -> Findings {
    // The number of machines that each represents.
    let each: &[usize] = if effort.quick { &[1, 4] } else { &[1, 5] };
    let most = *each.last().expect("some");
    let machines = machines(effort);
    let mut points = Vec::new();
    for bed in BEDS {
        for system in System::all_of(&PRESETS) {
            points.extend(each.iter().map(|&each| (bed, system, each)));
        }
    }
    let found = parallel::map(effort.threads, &points, |&(bed, system, each)| {
        let plan = AllToAll {
            sessions: each,
            batch: 8.min(machines - 1),
            ..bed.load(system, effort)
        };
        bed.rpc(machines, &plan, effort).mops
    });
    let reads: Vec<_> = BEDS
        .into_iter()
        .flat_map(|bed| each.iter().map(move |&each| (bed, each)))
        .collect();
    let read_rates = parallel::map(effort.threads, &reads, |&(bed, each)| {
        bed.reads(machines, each, 32, effort)
    });
    let rpc = |bed: Testbed, system: System, each: usize| {
        let place = points
            .iter()
            .position(|&point| point == (bed, system, each));
        found[place.expect("a point")]
    };
    let read = |bed: Testbed, each: usize| {
        let place = reads.iter().position(|&point| point == (bed, each));
        read_rates[place.expect("a point")]
    };
    let mut findings = Findings::new("machines", "M/s a machine", true);
    for bed in BEDS {
        let nodes = |each: usize| (machines * each) as f64;
        for system in System::all_of(&PRESETS) {
            let point = |&each: &usize| (nodes(each), rpc(bed, system, each));
            let name = format!("{}, {system}", bed.name());
            findings.line(&name, each.iter().map(point).collect());
        }
        let point = |&each: &usize| (nodes(each), read(bed, each));
        findings.line(
            &format!("{}, READ", bed.name()),
            each.iter().map(point).collect(),
        );
    }
    let change = |bed| {
        let changes = each
            .iter()
            .map(|&each| rpc(bed, fasst(), each) / rpc(bed, fasst(), 1) - 1.0);
        changes.min_by(f64::total_cmp).expect("some")
    };
    let why = format!(
        "least of the rates of RPC, up to {} machines, over that of {machines}, less one",
        machines * most
    );
    for (id, bed) in [
        ("FS-011 ConnectX-3", BEDS[0]),
        ("FS-011 Connect-IB", BEDS[1]),
    ] {
        findings.answer(id, "not degraded", change(bed), (-0.05, f64::MAX), &why);
    }
    if effort.quick {
        return findings;
    }
    let ratios = reads.iter().zip(&read_rates).map(|(&(bed, each), rate)| {
        (
            rpc(bed, fasst(), each) / (rate / 2.0),
            format!("{}, {} machines", bed.name(), each * machines),
        )
    });
    let least = ratios.min_by(|a, b| a.0.total_cmp(&b.0)).expect("some");
    let why = format!("RPC over two READs, the least of any cluster: {}", least.1);
    findings.answer("FS-008 medium", "higher", least.0, (1.0, f64::MAX), &why);
    let rates = |&(bed, each): &(Testbed, usize)| {
        let rates = of_users(&PRESETS, |system| rpc(bed, system, each));
        (
            format!("{}, {} machines", bed.name(), each * machines),
            rates,
        )
    };
    let compared: Vec<_> = reads.iter().map(rates).collect();
    against_best(&mut findings, "auto, fasst-medium", &compared);
    findings
}
