//! The rate of one core: FaSST's per-core figure and related measurements. Calibration of the price of verbs.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::figure::{Effort, Figure, Findings};
use crate::load::{fan, rate, shared_reads, Direction, Fan, Plan, Window};

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-cores",
    title: "FaSST: rates of one core on Connect-IB",
    says: "2.0 M READ/s when three or more threads share a queue pair, 10.9 with exclusive ones; 2.6 M RPC/s before the optimizations",
    run,
};

fn run(effort: Effort) -> Findings {
    let (host, nic, switch) = (
        effort.host(HostParameters::xeon_e5_v4()),
        effort.nic(NicParameters::connect_ib()),
        effort.switch(SwitchParameters::sx6036()),
    );
    let mut findings = Findings::new(
        "threads that share a queue pair",
        "M READ/s a thread",
        false,
    );
    let reads = |signal_every: usize, pairs: usize| {
        let plan = Plan {
            signal_every,
            ..Plan::reads(32, 64)
        };
        let load = Fan {
            direction: Direction::Outbound,
            machines: 5,
            queue_pairs: pairs,
            threads: 1,
            transport: Transport::ReliableConnection,
            zone_bytes: 4096,
            plan,
        };
        let cluster = fan(effort.seed, load, [&host, &host], &nic, &switch);
        rate(&cluster, &cluster.hosts()[..1], Window::SHORT)[0].mops(|c| c.requests_started)
    };
    let (exclusive, signaled) = (reads(16, 5), reads(1, 5));
    findings.answer(
        "one thread, READ, selective signaling",
        "10.7-10.9",
        exclusive,
        (9.6, 12.0),
        "M/s",
    );
    findings.answer(
        "one thread, READ, all signaled",
        "7.8",
        signaled,
        (6.2, 9.4),
        "M/s",
    );
    let shared: Vec<(f64, f64)> = (1..=4)
        .map(|threads| {
            (
                threads as f64,
                shared_reads(effort.seed, threads, &host, &nic, &switch),
            )
        })
        .collect();
    let three = shared[2].1;
    findings.answer(
        "FS-015",
        "2.0",
        three,
        (1.6, 2.4),
        "M READ/s of one thread of three that share a queue pair",
    );
    findings.answer(
        "FS-003",
        "up to 5.4x",
        exclusive / three,
        (4.5, 6.3),
        "exclusive over shared",
    );
    findings.line("shared", shared);
    findings
}
