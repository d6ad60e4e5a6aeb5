//! All queue pairs of a server's NIC move to the error state: its clients notice, and are served again.

use std::time::Duration;

use dunlin_rpc::{ChannelConfig, Client, Preset};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::calls::{calling, echoing, run_until};

fn fails_and_comes_back(preset: Preset) {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(11, 2, &host, &nic, &switch);
    let (at, from) = (cluster.hosts()[0], cluster.hosts()[1]);
    let server = echoing().pin_pollers(0).serve_on(cluster.device(at));
    let server = server.expect("a server");
    // Simulating threads that poll is expensive.
    let config = ChannelConfig {
        loss_timeout: Duration::from_millis(10),
        ..ChannelConfig::default()
    };
    let client = Client::builder().preset(preset).channel(config);
    let seen = calling(&cluster, from, &server, client, Duration::from_micros(100));
    let answers = |more: u64, what: &str| {
        let before = seen.answered();
        let what = format!("{preset}, {what}: answers");
        run_until(&cluster, &what, || seen.answered() >= before + more);
    };
    for round in 0..2 {
        answers(100, &format!("round {round}"));
        let failures = seen.failed();
        cluster.fail_queue_pairs(at);
        let what = format!("{preset}, round {round}: an error");
        run_until(&cluster, &what, || seen.failed() > failures);
    }
    answers(100, "at last");
    seen.end(&cluster);
}

#[test]
fn a_server_whose_queue_pairs_fail_serves_its_clients_again() {
    // Seconds of virtual time pass before a reliable connection gives up. Threads that share one poll all the while,
    // which takes many events: `lab hunt` has those presets.
    for preset in [Preset::Plain, Preset::QpPerThread, Preset::Fasst] {
        fails_and_comes_back(preset);
    }
}
