//! The lab's command, until `dunlin lab` calls it.
use dunlin_lab::load::*;
use dunlin_sim::*;
use dunlin_verbs::Transport;
fn main() {
    let host = HostParameters::xeon_e5_v4();
    for (nic, threads, machines, vms, window) in [
        (NicParameters::connectx_3(), 8, 6, 1, 16), (NicParameters::connectx_3(), 8, 6, 1, 32), (NicParameters::connectx_3(), 8, 11, 1, 16),(NicParameters::connectx_3(), 8, 11, 2, 16),(NicParameters::connectx_3(), 8, 11, 2, 32),(NicParameters::connectx_3(), 8, 11, 9, 16),
        (NicParameters::connect_ib(), 14, 6, 1, 8),(NicParameters::connect_ib(), 14, 6, 1, 16),(NicParameters::connect_ib(), 14, 6, 1, 24),(NicParameters::connect_ib(), 14, 6, 1, 32),(NicParameters::connect_ib(), 14, 6, 15, 8),(NicParameters::connect_ib(), 14, 6, 15, 24),
    ] {
        let began = std::time::Instant::now();
        let cluster = swarm(1, Swarm { machines, threads, virtual_machines: vms, transport: Transport::ReliableConnection, plan: Plan::reads(32, window) }, &host, &nic, &SwitchParameters::sx6036());
        let rates = rate(&cluster, &cluster.hosts()[..1], Window::SHORT);
        let secs = began.elapsed().as_secs_f64();
        let c = rates[0];
        println!("{} m{machines} vms{vms} w{window}: {:.2} Mops, misses {:.2} of {:.2}, wqe misses {:.2}; {:.2}s {:.2} M events/s", nic.name, c.mops(|c| c.requests_started), c.mops(|c| c.context_misses), c.mops(|c| c.context_hits+c.context_misses), c.mops(|c| c.element_misses), secs, cluster.events() as f64 / 1e6 / secs);
    }
    println!("ping pong cx5 {} one read cib {}", ping_pong(64, &host, &NicParameters::connectx_5(), &SwitchParameters::sb7890()), one_read(32, &host, &NicParameters::connect_ib(), &SwitchParameters::sx6036()));
}
