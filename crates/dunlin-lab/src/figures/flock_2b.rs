//! FLOCK Fig. 2(b): RPC by datagrams, 22 clients with more and more senders, one server of 32 cores.

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::figure::{Effort, Figure, Findings};
use crate::load::{datagram_rpc, rate, Datagrams, Window};
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-2b",
    title: "FLOCK Fig. 2(b): UD RPC, 22 clients, a server of 32 cores, ConnectX-5",
    says: "up to 2x below READ; at 352 senders the server spends more than 90 % of its cycles in the verbs library",
    run,
};

/// Time of the handler, declared: Fig. 2(b) measures datagrams, not a service.
const HANDLER_NS: u64 = 10;

/// Requests a second, and the share of the server's working time that is not the handler's.
fn point(threads: usize, effort: Effort) -> (f64, f64) {
    let (host, nic) = (
        effort.host(HostParameters::epyc_7452()),
        effort.nic(NicParameters::connectx_5()),
    );
    let cluster = Cluster::star(
        1,
        23,
        &host,
        &nic,
        &effort.switch(SwitchParameters::z9264f()),
    );
    let hosts = cluster.hosts();
    let servers: Vec<_> = (0..32).map(|core| (hosts[0], core)).collect();
    let clients: Vec<_> = hosts[1..]
        .iter()
        .flat_map(|&host| (0..threads).map(move |core| (host, core)))
        .collect();
    let plan = Datagrams {
        bytes: 16,
        window: 8,
        batch: false,
        coroutines: false,
        handler_ns: HANDLER_NS,
    };
    datagram_rpc(&cluster, &clients, &servers, plan);
    let time = if effort.quick { 50_000 } else { 150_000 };
    // A server posts its RECEIVEs first, which takes a quarter of a millisecond at these prices.
    let window = Window {
        warm_ns: 500_000,
        measured_ns: time,
    };
    let server = rate(&cluster, &hosts[..1], window)[0];
    let requests = server.mops(|c| c.messages_received);
    // Microseconds of work in a microsecond: cores that are busy.
    let busy = server.mops(|c| c.busy_ps) / 1e6;
    (
        requests,
        1.0 - requests * HANDLER_NS as f64 / 1_000.0 / busy,
    )
}

fn run(effort: Effort) -> Findings {
    let threads: &[usize] = if effort.quick {
        &[4, 16]
    } else {
        &[1, 2, 4, 8, 16, 32]
    };
    let found = parallel::map(effort.threads, threads, |&threads| point(threads, effort));
    let rates: Vec<(f64, f64)> = threads
        .iter()
        .zip(&found)
        .map(|(&threads, point)| (threads as f64 * 22.0, point.0))
        .collect();
    let peak = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    let reads = super::flock_2a::point(352, effort).0;
    let mut findings = Findings::new("senders", "M RPC/s", true);
    findings.answer(
        "FL-012",
        "READ up to 2x UD RPC",
        reads / peak,
        (1.5, 2.5),
        "READ at 352 queue pairs over the best UD RPC rate",
    );
    let share = found[threads.iter().position(|&t| t == 16).unwrap_or(0)].1;
    findings.answer(
        "FL-013",
        ">90 %",
        share,
        (0.8, 1.0),
        "share of the server's working time at 352 senders that is not the handler's, which takes 10 ns (declared)",
    );
    findings.line("UD RPC", rates);
    findings
}
