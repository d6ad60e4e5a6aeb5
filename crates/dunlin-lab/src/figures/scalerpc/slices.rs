//! ScaleRPC Fig. 11: the rate as a function of the length of a slice, and of the size of a group.

use std::time::Duration;

use dunlin::{Grouping, Preset};

use super::{crowd, run as point, System, CLIENT_MACHINES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::Crowd;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-slices",
    title: "ScaleRPC Fig. 11: slices of 30 to 250 us with groups of 40, groups of 10 to 70 clients with slices of 100 us; batch 1",
    says: "7.6 M/s at 30 us grow to 8.9 at 250; two groups of 10 make 5.7, and 40 are best",
    run,
};

fn plan(clients: usize, group: usize, slice_us: u64) -> Crowd {
    let plain = crowd(System::of_users(Preset::ScaleRpc), clients, 1);
    Crowd {
        grouping: Grouping {
            clients: group,
            slice: Duration::from_micros(slice_us),
            ..plain.grouping
        },
        ..plain
    }
}

fn run(effort: Effort) -> Findings {
    let slices: &[u64] = if effort.quick {
        &[30, 250]
    } else {
        &[30, 50, 100, 150, 200, 250]
    };
    let groups: &[usize] = if effort.quick {
        &[10, 40]
    } else {
        &[10, 20, 30, 40, 50, 60, 70]
    };
    let mut plans: Vec<Crowd> = slices.iter().map(|&slice| plan(80, 40, slice)).collect();
    plans.extend(groups.iter().map(|&group| plan(2 * group, group, 100)));
    let found = parallel::map(effort.threads, &plans, |plan| {
        point(plan, CLIENT_MACHINES, effort).mops
    });
    let (by_slice, by_group) = found.split_at(slices.len());
    let mut findings = Findings::new("slice in us; clients of a group", "M RPC/s", false);
    let line = |x: Vec<f64>, y: &[f64]| x.into_iter().zip(y.iter().copied()).collect();
    findings.line(
        "slice",
        line(slices.iter().map(|&x| x as f64).collect(), by_slice),
    );
    findings.line(
        "group",
        line(groups.iter().map(|&x| x as f64).collect(), by_group),
    );
    if effort.quick {
        return findings;
    }
    let (short, long) = (by_slice[0], by_slice[by_slice.len() - 1]);
    let why = "M/s with slices of 30 us";
    findings.answer("SR-041", "7.6 Mops", short, (6.46, 8.74), why);
    let why = "rate with slices of 250 us over 30 us";
    findings.answer("SR-042", "1.17x", long / short, (1.08, 1.28), why);
    let of = |group: usize| {
        let place = groups.iter().position(|&other| other == group);
        by_group[place.expect("a point")]
    };
    let why = "M/s of two groups of 10";
    findings.answer("SR-043", "5.7 Mops", of(10), (4.56, 6.84), why);
    let why = "groups of 70 over groups of 40, less one";
    findings.answer(
        "SR-044",
        "slight drop",
        of(70) / of(40) - 1.0,
        (-0.15, -0.02),
        why,
    );
    let best = groups
        .iter()
        .copied()
        .max_by(|&a, &b| of(a).total_cmp(&of(b)));
    let why = "size of a group with the best rate";
    findings.answer("SR-045", "40", best.unwrap_or(0) as f64, (30.0, 50.0), why);
    findings
}
