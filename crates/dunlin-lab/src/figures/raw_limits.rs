//! Rates, bandwidths and latencies of raw verbs reported by the papers and by their authors' benchmarks. Calibration.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::figure::{Effort, Figure, Findings};
use crate::load::{
    fan, one_read, one_requester, ping_pong, rate, swarm, Direction, Fan, Hosts, Plan, Swarm,
    Window,
};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "raw-limits",
    title: "Raw verbs: message rates, bandwidth, latency",
    says: "symmetric UC WRITE 100.6 and RC WRITE 52.5 M/s, outbound READ 94 M/s on Connect-IB; 88 and 90 Gb/s, 2.5 us on ConnectX-5",
    run,
};

fn run(effort: Effort) -> Findings {
    let mut findings = Findings::new("row", "ours over paper", false);
    let host = effort.host(HostParameters::xeon_e5_v4());
    let (cib, sx6036) = (
        effort.nic(NicParameters::connect_ib()),
        effort.switch(SwitchParameters::sx6036()),
    );
    let writes = |transport, plan: Plan| {
        let load = Swarm {
            machines: 6,
            threads: 14,
            virtual_machines: 1,
            transport,
            plan,
        };
        let cluster = swarm(effort.seed, load, &host, &cib, &sx6036);
        rate(&cluster, &cluster.hosts()[..1], Window::SHORT)[0].mops(|c| c.requests_started)
    };
    // UC WRITEs have no window of their own: as many as a send queue takes.
    let unreliable = Plan {
        inline: true,
        signal_every: 64,
        ..Plan::writes(16, 512)
    };
    let uc = writes(Transport::UnreliableConnection, unreliable);
    findings.answer(
        "symmetric UC WRITE 16 B, Connect-IB",
        "100.6",
        uc,
        (80.0, 121.0),
        "M/s a machine",
    );
    let reliable = Plan {
        inline: true,
        ..Plan::writes(32, 64)
    };
    let rc = writes(Transport::ReliableConnection, reliable);
    findings.answer(
        "symmetric RC WRITE 32 B all signaled, Connect-IB",
        "52.5",
        rc,
        (42.0, 63.0),
        "M/s a machine",
    );
    let load = Fan {
        direction: Direction::Outbound,
        machines: 5,
        queue_pairs: 70,
        threads: 14,
        transport: Transport::ReliableConnection,
        zone_bytes: 4096,
        plan: Plan::reads(32, 24),
    };
    let cluster = fan(effort.seed, load, [&host, &host], &cib, &sx6036);
    let outbound =
        rate(&cluster, &cluster.hosts()[..1], Window::SHORT)[0].mops(|c| c.requests_started);
    findings.answer(
        "outbound READ from 1 machine, Connect-IB",
        "94",
        outbound,
        (75.0, 113.0),
        "M/s",
    );
    let read = one_read(effort.seed, 32, &host, &cib, &sx6036) / 1_000.0;
    findings.answer(
        "one READ at a time, Connect-IB",
        "1.9",
        read,
        (1.5, 2.3),
        "us; its tolerance is 20 %",
    );
    let gold = effort.host(HostParameters::xeon_gold_5118());
    let mut infiniband = effort.nic(NicParameters::connectx_5());
    infiniband.header_bytes = 26.0;
    let rtt = ping_pong(
        effort.seed,
        64,
        &gold,
        &infiniband,
        &effort.switch(SwitchParameters::sb7890()),
    ) / 1_000.0;
    findings.answer(
        "RB-017",
        "2.5",
        rtt,
        (2.0, 3.2),
        "us, WRITE ping-pong of 64 B",
    );
    let bandwidth = |nic: &NicParameters, switch: SwitchParameters, bytes: usize| {
        let hosts = Hosts {
            seed: effort.seed,
            host: gold.clone(),
            nic: nic.clone(),
            switch: effort.switch(switch),
        };
        let window = Window {
            warm_ns: 200_000,
            measured_ns: 1_000_000,
        };
        let mops = one_requester(&hosts, Plan::writes(bytes, 16), window);
        mops * bytes as f64 * 8.0 / 1_000.0
    };
    let edr = bandwidth(&infiniband, SwitchParameters::sb7890(), 65_536);
    findings.answer(
        "RB-010",
        "close to 90 Gbps",
        edr,
        (85.0, 95.0),
        "Gb/s, WRITEs of 64 KB, InfiniBand, MTU 4096",
    );
    let mut roce = effort.nic(NicParameters::connectx_5());
    roce.mtu_bytes = 1024.0;
    let small = bandwidth(&roce, SwitchParameters::z9264f(), 65_536);
    findings.answer(
        "FR-018",
        "88 Gbps",
        small,
        (85.0, 91.0),
        "Gb/s, WRITEs of 64 KB, RoCEv2, MTU 1024; headers alone leave 92.6",
    );
    findings
}
