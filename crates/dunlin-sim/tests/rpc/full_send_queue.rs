//! A peer whose acknowledgements are lost fills the send queue of its lane. This delays only its own calls: the poller
//! that serves it does not wait, and other clients of the same poller are served as before.

use std::time::Duration;

use dunlin_rpc::{Client, Preset};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, SwitchParameters, Traffic,
};

use crate::calls::{calling, echoing, run_until, MILLISECOND};

/// Virtual time: a hundredth of what a queue pair takes to give up.
const STALL_MS: u64 = 5;

#[test]
fn it_holds_up_its_own_lane_alone() {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(23, 3, &host, &nic, &switch);
    let [at, silent, other] = [0, 1, 2].map(|i| cluster.hosts()[i]);
    let server = echoing().pollers(1).pin_pollers(0);
    let server = server.serve_on(cluster.device(at)).expect("a server");
    let [held_up, served] = [silent, other].map(|from| {
        let client = Client::builder().preset(Preset::Plain);
        calling(&cluster, from, &server, client, Duration::ZERO)
    });
    run_until(&cluster, "both are answered", || {
        held_up.answered() > 100 && served.answered() > 100
    });
    let lost = FaultRule {
        traffic: Traffic::Answers,
        ..FaultRule::new(Fault::Drop, 1.0).between(silent, at)
    };
    let rule = cluster.fault(lost);
    let mut before = u64::MAX;
    run_until(&cluster, "its send queue is full", || {
        let answered = held_up.answered();
        std::mem::replace(&mut before, answered) == answered
    });
    let pace = served.answered();
    cluster.run_for(STALL_MS * MILLISECOND);
    assert_eq!(held_up.answered(), before, "no answer fits");
    let pace = served.answered() - pace;
    assert!(
        pace > 100 * STALL_MS,
        "the other client got {pace} answers in {STALL_MS} ms"
    );
    drop(rule);
    run_until(&cluster, "it goes on where it stood", || {
        held_up.answered() > before + 100
    });
    for seen in [&held_up, &served] {
        assert_eq!(seen.failed(), 0);
        seen.end(&cluster);
    }
}
