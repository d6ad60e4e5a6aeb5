//! FLOCK Fig. 2(a): 22 clients read 16 bytes from one server over more and more RC queue pairs. Calibration of
//! ConnectX-5.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::figure::{Effort, Figure, Findings};
use crate::load::{fan, rate, Direction, Fan, Plan, Window};
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-2a",
    title: "FLOCK Fig. 2(a): RC READs of 16 B, 22 clients, one ConnectX-5",
    says: "read performance peaks between 176 and 704 queue pairs followed by a sharp drop",
    run,
};

/// READ rate and context miss rate of the server at this many queue pairs.
pub(super) fn point(queue_pairs: usize, effort: Effort) -> (f64, f64) {
    let (host, nic) = (
        effort.host(HostParameters::epyc_7452()),
        effort.nic(NicParameters::connectx_5()),
    );
    let load = Fan {
        direction: Direction::Inbound,
        machines: 22,
        queue_pairs,
        threads: (queue_pairs / 22).clamp(1, 16),
        transport: Transport::ReliableConnection,
        zone_bytes: 4096,
        plan: Plan::reads(16, 8),
    };
    let cluster = fan(
        1,
        load,
        [&host, &host],
        &nic,
        &effort.switch(SwitchParameters::z9264f()),
    );
    let time = if effort.quick { 50_000 } else { 200_000 };
    let server = rate(
        &cluster,
        &cluster.hosts()[..1],
        Window {
            warm_ns: time,
            measured_ns: time,
        },
    )[0];
    let misses =
        server.mops(|c| c.context_misses) / server.mops(|c| c.context_misses + c.context_hits);
    (server.mops(|c| c.requests_answered), misses)
}

fn run(effort: Effort) -> Findings {
    let counts = [22, 44, 88, 176, 352, 704, 1056, 1408, 2112, 2816, 4994];
    let counts: &[usize] = if effort.quick { &counts[3..8] } else { &counts };
    let found = parallel::map(effort.threads, counts, |&count| point(count, effort));
    let mut findings = Findings::new("queue pairs", "M READ/s", true);
    let rates: Vec<(f64, f64)> = counts
        .iter()
        .zip(&found)
        .map(|(&count, point)| (count as f64, point.0))
        .collect();
    let peak = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    let at = |count: usize| {
        counts
            .iter()
            .position(|&c| c == count)
            .map_or(f64::NAN, |place| found[place].0)
    };
    let inside = rates
        .iter()
        .filter(|point| (176.0..=704.0).contains(&point.0));
    let inside = inside.map(|point| point.1).fold(0.0, f64::max) / peak;
    findings.answer(
        "FL-010",
        "176-704 QPs",
        inside,
        (0.99, 1.0),
        "best rate between 176 and 704 queue pairs, of the best of all",
    );
    findings.answer(
        "FL-011",
        "sharp drop beyond 704 QPs",
        1.0 - at(1408) / peak,
        (0.2, 0.8),
        "share lost at 1408 queue pairs",
    );
    findings.answer(
        "FL-031",
        "no thrashing at 368 QPs",
        point(368, effort).1,
        (0.0, 0.02),
        "context misses of lookups",
    );
    if !effort.quick {
        findings.answer(
            "SR-072",
            "-35%..-60% at 5000",
            1.0 - at(4994) / peak,
            (0.35, 0.60),
            "share lost at 4994 queue pairs",
        );
    }
    findings.line("READ", rates);
    findings
}
