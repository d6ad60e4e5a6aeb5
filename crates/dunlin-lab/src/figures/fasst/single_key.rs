//! FaSST's read-only transactions of one key, O(1,0), as RPC: a key of 8 bytes is requested, 40 bytes and their header
//! are returned, and each request is sent alone, because a transaction has no other. Shows what limits the machines.

use super::{fasst, machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::{AllToAll, AllToAllResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-single-key",
    title: "FaSST: one key, O(1,0), as RPC on ConnectX-3 and Connect-IB",
    says: "ConnectX-3 is limited by its NIC, at 11 M/s; Connect-IB by its cores, because requests have no others to go with",
    run,
};

/// A GET of two memory accesses, index and value, that miss: as in MICA, and as declared for RB²'s database.
const GET_NS: u64 = 180;

fn run(effort: Effort) -> Findings {
    let mut points = Vec::new();
    for bed in [Testbed::Cx3, Testbed::Cib] {
        points.extend(
            System::all_of(&PRESETS)
                .into_iter()
                .map(|system| (bed, system)),
        );
    }
    let found = parallel::map(effort.threads, &points, |&(bed, system)| {
        let plan = AllToAll {
            bytes: 8,
            response_bytes: 48,
            handler_ns: GET_NS,
            ..bed.load(system, effort)
        };
        bed.rpc(machines(effort), &plan, effort)
    });
    let of = |bed: Testbed, system: System| -> &AllToAllResult {
        let place = points.iter().position(|&point| point == (bed, system));
        &found[place.expect("a point")]
    };
    let mut findings = Findings::new("cores of a machine", "M/s a machine", false);
    for (&(bed, system), result) in points.iter().zip(&found) {
        let name = format!("{}, {system}", bed.name());
        findings.line(&name, vec![(bed.cores() as f64, result.mops)]);
    }
    if effort.quick {
        return findings;
    }
    let cib = of(Testbed::Cib, fasst());
    let busy = cib.busy_cores / Testbed::Cib.cores() as f64;
    let why = "share of its 14 cores' time that a machine with Connect-IB was busy, polling in vain included";
    findings.answer("FS-019", "CPU", busy, (0.95, 1.05), why);
    let why = "M/s a machine with ConnectX-3";
    let cx3 = of(Testbed::Cx3, fasst()).mops;
    findings.answer("FS-020", "11 Mrps", cx3, (9.5, 12.5), why);
    let rates = [Testbed::Cx3, Testbed::Cib].map(|bed| {
        let rates = of_users(&PRESETS, |system| of(bed, system).mops);
        (bed.name().to_owned(), rates)
    });
    against_best(&mut findings, "auto, fasst-single-key", &rates);
    findings
}
