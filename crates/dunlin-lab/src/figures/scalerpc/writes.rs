//! ScaleRPC Fig. 1(b) and 3(a): outbound and inbound RC WRITE of one ConnectX-3 with 10 to 800 clients, and PCIe reads.
//!
//! Outbound WRITE is the cross-paper check: the context cache comes from FaSST's sweeps alone.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::figure::{Effort, Figure, Findings};
use crate::load::{fan, rate, Direction, Fan, Plan, Rate, Window};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-1b",
    title: "ScaleRPC Fig. 1(b) and 3(a): RC WRITEs of 32 B, ConnectX-3",
    says: "outbound WRITE drops from 20 to 2 M/s between 10 and 800 clients; inbound WRITE is never affected; PCIe reads keep step and then run ahead",
    run,
};

/// WRITEs of 32 B between a server and `clients` of 11 machines over ConnectX-3 (ScaleRPC §2), into blocks of `block`
/// bytes, 20 of them in a zone; what the server's NIC did.
pub(super) fn writes(
    direction: Direction,
    (clients, threads): (usize, usize),
    (block, zone_bytes): (u64, u64),
    window: Window,
    effort: Effort,
) -> Rate {
    let host = effort.host(HostParameters::xeon_e5_v4());
    let load = Fan {
        direction,
        machines: 11,
        queue_pairs: clients,
        threads,
        transport: Transport::ReliableConnection,
        zone_bytes,
        plan: Plan {
            places: (block, 20),
            ..Plan::writes(32, 16)
        },
    };
    let (nic, switch) = (NicParameters::connectx_3(), SwitchParameters::sx1012());
    let (nic, switch) = (effort.nic(nic), effort.switch(switch));
    let cluster = fan(effort.seed, load, [&host, &host], &nic, &switch);
    rate(&cluster, &cluster.hosts()[..1], window)[0]
}

fn point(direction: Direction, clients: usize, effort: Effort) -> Rate {
    let threads = match direction {
        Direction::Outbound => 10.min(clients),
        Direction::Inbound => clients.div_ceil(11).min(24),
    };
    let time = if effort.quick { 100_000 } else { 500_000 };
    // Inbound, every place must have come into the last-level cache once; quickly, almost every.
    let warm_ns = match (direction, effort.quick) {
        (Direction::Inbound, false) => 8_000_000,
        (Direction::Inbound, true) => 3_000_000,
        (Direction::Outbound, _) => time,
    };
    let window = Window {
        warm_ns,
        measured_ns: time,
    };
    writes(direction, (clients, threads), (64, 4096), window, effort)
}

fn run(effort: Effort) -> Findings {
    let clients = [10, 20, 40, 80, 120, 200, 400, 800];
    let clients: &[usize] = if effort.quick {
        &[10, 200, 800]
    } else {
        &clients
    };
    let both = |direction| {
        parallel::map(effort.threads, clients, |&clients| {
            point(direction, clients, effort)
        })
    };
    let (outbound, inbound) = (both(Direction::Outbound), both(Direction::Inbound));
    let mut findings = Findings::new("clients", "M/s", true);
    let line = |rates: &[Rate], value: fn(&Rate) -> f64| {
        clients
            .iter()
            .zip(rates)
            .map(|(&clients, rate)| (clients as f64, value(rate)))
            .collect::<Vec<_>>()
    };
    let out = |rate: &Rate| rate.mops(|c| c.requests_started);
    let into = |rate: &Rate| rate.mops(|c| c.messages_received);
    let reads = |rate: &Rate| rate.mops(|c| c.pcie_read_lines);
    let (first, last) = (&outbound[0], &outbound[outbound.len() - 1]);
    findings.answer(
        "SR-004 at 10",
        "20 Mops",
        out(first),
        (17.0, 23.0),
        "outbound WRITE at 10 clients, M/s",
    );
    findings.answer(
        "SR-004 at 800",
        "2 Mops",
        out(last),
        (1.3, 2.7),
        "outbound WRITE at 800 clients, M/s; cross-paper check",
    );
    let middle = clients
        .iter()
        .position(|&clients| clients == 200)
        .map(|at| out(&outbound[at]));
    findings.answer(
        "SR-005",
        "about 2 Mops beyond 200",
        middle.unwrap_or(f64::NAN),
        (1.3, 4.0),
        "outbound WRITE at 200 clients, M/s",
    );
    // Ten clients of one machine each cannot reach a server's most: compared from the first point that does.
    let steady: Vec<f64> = inbound[1..].iter().map(into).collect();
    let (most, least) = (
        steady.iter().copied().fold(0.0, f64::max),
        steady.iter().copied().fold(f64::MAX, f64::min),
    );
    findings.answer(
        "SR-006",
        "never affected",
        1.0 - least / most,
        (0.0, 0.05),
        "spread of inbound WRITE beyond the first point",
    );
    findings.answer(
        "SR-008",
        "about 1:1",
        reads(first) / out(first),
        (0.9, 1.3),
        "PCIe reads for each outbound WRITE at 10 clients",
    );
    findings.answer("SR-009", "far higher", reads(last) / out(last), (3.0, 100.0), "PCIe reads for each outbound WRITE at 800 clients; four lines for each context that is fetched");
    findings.answer(
        "SR-010",
        "low",
        reads(&inbound[1]) / into(&inbound[1]),
        (0.0, 0.1),
        "PCIe reads for each inbound WRITE",
    );
    findings.line(
        "outbound WRITE",
        line(&outbound, |rate| rate.mops(|c| c.requests_started)),
    );
    findings.line(
        "inbound WRITE",
        line(&inbound, |rate| rate.mops(|c| c.messages_received)),
    );
    findings.line(
        "PCIe reads, outbound",
        line(&outbound, |rate| rate.mops(|c| c.pcie_read_lines)),
    );
    findings.line(
        "PCIe reads, inbound",
        line(&inbound, |rate| rate.mops(|c| c.pcie_read_lines)),
    );
    findings
}
