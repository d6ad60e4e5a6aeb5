//! ScaleRPC Fig. 12: groups by priority compared with static groups, with clients of different frequency.
//!
//! The paper draws each client's pause before its next request from a Gaussian distribution of sigma 0.8 and 1, and
//! does not say in which unit or around which mean. Declared here: the pause of a client is |N(0, sigma)| times 20 µs,
//! so that the busiest never pause and the idlest send about twice in a slice.

use dunlin::{Grouping, Preset};

use super::{crowd, run as point, System, CLIENT_MACHINES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::Crowd;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-priority",
    title: "ScaleRPC Fig. 12: dynamic and static groups of 120 clients of different frequency",
    says: "groups by priority gain 9 % with sigma 0.8 and 10 % with sigma 1",
    run,
};

const CLIENTS: usize = 120;
/// Sigma 1 in nanoseconds.
const UNIT_NS: f64 = 20_000.0;

/// Pauses at the quantiles of |N(0, sigma)|, in a scrambled order.
fn pauses(sigma: f64) -> Vec<u64> {
    let quantile = |number: usize| {
        // The inverse of the error function by bisection.
        let wanted = (number as f64 + 0.5) / CLIENTS as f64;
        let (mut low, mut high) = (0.0f64, 5.0f64);
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            match half_normal_below(middle) < wanted {
                true => low = middle,
                false => high = middle,
            }
        }
        (low * sigma * UNIT_NS) as u64
    };
    // 49 and 120 are coprime.
    (0..CLIENTS).map(|i| quantile(i * 49 % CLIENTS)).collect()
}

/// Share of |N(0, 1)| below `x`, by Simpson's rule.
fn half_normal_below(x: f64) -> f64 {
    let steps = 200;
    let density = |t: f64| (2.0 / std::f64::consts::PI).sqrt() * (-t * t / 2.0).exp();
    let step = x / steps as f64;
    let weight = |i: usize| match i {
        0 => 1.0,
        i if i == steps => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=steps)
        .map(|i| weight(i) * density(i as f64 * step))
        .sum();
    sum * step / 3.0
}

fn run(effort: Effort) -> Findings {
    let sigmas = [0.8, 1.0];
    let points: Vec<(f64, bool)> = sigmas
        .iter()
        .flat_map(|&s| [(s, false), (s, true)])
        .collect();
    let found = parallel::map(effort.threads, &points, |&(sigma, by_priority)| {
        let plain = crowd(System::of_users(Preset::ScaleRpc), CLIENTS, 1);
        let plan = Crowd {
            grouping: Grouping {
                by_priority,
                ..plain.grouping
            },
            pauses_ns: pauses(sigma),
            ..plain
        };
        point(&plan, CLIENT_MACHINES, effort).mops
    });
    let mut findings = Findings::new("sigma", "M RPC/s", false);
    for (name, dynamic) in [("static", false), ("dynamic", true)] {
        let points = points
            .iter()
            .zip(&found)
            .filter(|(point, _)| point.1 == dynamic);
        findings.line(name, points.map(|(point, &mops)| (point.0, mops)).collect());
    }
    if effort.quick {
        return findings;
    }
    let why = "groups by priority over groups that stay, less one";
    findings.answer(
        "SR-046",
        "+9%",
        found[1] / found[0] - 1.0,
        (0.04, 0.15),
        why,
    );
    findings.answer(
        "SR-047",
        "+10%",
        found[3] / found[2] - 1.0,
        (0.05, 0.16),
        why,
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_those_of_the_distribution() {
        let mut all = pauses(1.0);
        all.sort_unstable();
        // The median of |N(0, 1)| is 0.6745.
        let median = (all[59] + all[60]) as f64 / 2.0 / UNIT_NS;
        assert!((median - 0.6745).abs() < 0.01, "{median}");
    }
}
