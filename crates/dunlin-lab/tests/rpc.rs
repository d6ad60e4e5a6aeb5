//! The RPC of `dunlin-rpc`, as it is, between simulated hosts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin::{Client, Preset, Server, WaitMode};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const ECHO: u16 = 1;

#[test]
fn one_thread_calls_over_plain() {
    let mut nic = NicParameters::connectx_5();
    nic.set("in_order_placement", 1.0).unwrap();
    let cluster = Cluster::star(
        1,
        2,
        &HostParameters::epyc_7452(),
        &nic,
        &SwitchParameters::z9264f(),
    );
    let hosts = cluster.hosts();
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .wait(WaitMode::Spin)
        .pin_pollers(0)
        .serve_on(cluster.device(hosts[0]))
        .unwrap();
    let client = Client::builder()
        .preset(Preset::Plain)
        .wait(WaitMode::Spin)
        .connect_on(cluster.device(hosts[1]), &server.desk())
        .unwrap();
    let mut pipeline = client.pipeline().unwrap();
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    cluster.spawn_thread(hosts[1], 0, move || {
        for call in 0..100u64 {
            assert!(pipeline.submit(ECHO, &call.to_le_bytes(), call).unwrap());
            let taken = pipeline
                .wait(|tag, answer| {
                    assert_eq!(tag, call);
                    assert_eq!(answer.unwrap(), call.to_le_bytes());
                    count.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            assert_eq!(taken, 1);
        }
    });
    cluster.run_for(1_000_000);
    assert_eq!(answered.load(Ordering::Relaxed), 100);
    println!("{} events", cluster.events());
}
