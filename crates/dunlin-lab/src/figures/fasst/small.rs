//! FaSST's comparison on the small cluster: RPC with increasing numbers of requests per batch, and READs, on either
//! testbed.

use super::{fasst, machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::AllToAll;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-small",
    title: "FaSST: RPC and READ on the small cluster, ConnectX-3 and Connect-IB",
    says: "up to 40.9 M RPC/s a machine on Connect-IB; RPC is faster than two READs or more, whatever is asked and answered",
    run,
};

/// Machines that READ from each other.
const READERS: usize = 6;
const BEDS: [Testbed; 2] = [Testbed::Cx3, Testbed::Cib];

/// A point of RPC: testbed, preset, batch, bytes of a response.
type Point = (Testbed, System, usize, usize);

fn run(effort: Effort) -> Findings {
    let batches: &[usize] = if effort.quick { &[2] } else { &[1, 4, 8, 10] };
    let most = *batches.last().expect("some");
    let sizes: &[usize] = if effort.quick { &[32] } else { &[32, 128, 256] };
    let mut points: Vec<Point> = Vec::new();
    for bed in BEDS {
        for system in System::all_of(&PRESETS) {
            points.extend(batches.iter().map(|&batch| (bed, system, batch, 32)));
        }
        let longer = sizes.iter().filter(|&&bytes| bytes > 32);
        points.extend(longer.map(|&bytes| (bed, fasst(), most, bytes)));
    }
    let found = parallel::map(effort.threads, &points, |&(bed, system, batch, bytes)| {
        let plan = AllToAll {
            batch,
            response_bytes: bytes,
            ..bed.load(system, effort)
        };
        bed.rpc(machines(effort), &plan, effort).mops
    });
    let rpc = |point: Point| {
        let place = points.iter().position(|&one| one == point);
        found[place.expect("a point")]
    };
    let reads: Vec<(Testbed, usize)> = BEDS
        .into_iter()
        .flat_map(|bed| sizes.iter().map(move |&bytes| (bed, bytes)))
        .collect();
    let read_rates = parallel::map(effort.threads, &reads, |&(bed, bytes)| {
        let readers = if effort.quick { 3 } else { READERS };
        bed.reads(readers, 1, bytes, effort)
    });
    let mut findings = Findings::new("requests of a batch", "M/s a machine", false);
    for bed in BEDS {
        for system in System::all_of(&PRESETS) {
            let point = |&batch: &usize| (batch as f64, rpc((bed, system, batch, 32)));
            let name = format!("{}, {system}", bed.name());
            findings.line(&name, batches.iter().map(point).collect());
        }
    }
    for (&(bed, bytes), &rate) in reads.iter().zip(&read_rates) {
        let ends = [1.0, most as f64].map(|batch| (batch, rate));
        findings.line(&format!("{}, READ of {bytes} B", bed.name()), ends.to_vec());
    }
    if effort.quick {
        return findings;
    }
    let best = batches
        .iter()
        .map(|&batch| rpc((Testbed::Cib, fasst(), batch, 32)));
    let why = "M RPC/s a machine on Connect-IB, the best batch";
    findings.answer(
        "FS-004",
        "40.9 Mrps",
        best.fold(0.0, f64::max),
        (35.0, 47.0),
        why,
    );
    // For the least favourable size and testbed.
    let ratios = reads.iter().zip(&read_rates).map(|(&(bed, bytes), &rate)| {
        let ratio = rpc((bed, fasst(), most, bytes)) / (rate / 2.0);
        (ratio, format!("{}, {bytes} B", bed.name()))
    });
    let least = ratios.min_by(|a, b| a.0.total_cmp(&b.0)).expect("some");
    let why = format!("RPC over two READs, the least of any size: {}", least.1);
    findings.answer("FS-008 small", "higher", least.0, (1.0, f64::MAX), &why);
    let compared = BEDS
        .into_iter()
        .flat_map(|bed| batches.iter().map(move |&batch| (bed, batch)));
    let rates = compared.map(|(bed, batch)| {
        let rates = of_users(&PRESETS, |system| rpc((bed, system, batch, 32)));
        (format!("{}, batch {batch}", bed.name()), rates)
    });
    against_best(
        &mut findings,
        "auto, fasst-small",
        &rates.collect::<Vec<_>>(),
    );
    findings
}
