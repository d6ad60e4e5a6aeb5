//! The time to a backup queue pair.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_sim::{Cluster, SimDevice};
use dunlin_verbs::Device;

use super::ends::{answer, now_ns, rest, Asking};
use super::plan::{Flor, Link};
use super::run::Shared;
use super::END_NS;

/// Nanoseconds from the failure of the queue pair in use, under this load, to the next request whose answer arrives
/// over a backup.
///
/// # Panics
/// When no backup takes over within 100 ms.
pub fn time_to_switch(plan: &Flor, cluster: &Cluster) -> f64 {
    let hosts = cluster.hosts();
    let shared = Arc::new(Shared::default());
    let devices = (cluster.device(hosts[0]), cluster.device(hosts[1]));
    let domain = |device: &SimDevice| device.create_protection_domain().expect("a domain");
    let domains = (domain(&devices.0), domain(&devices.1));
    let ends = ((&devices.0, &domains.0), (&devices.1, &domains.1));
    let (client, server) = plan.pair(ends.0, ends.1, &shared);
    let taken = Arc::new(AtomicU64::new(0));
    let (plan, told) = (*plan, Arc::clone(&taken));
    let (of_client, of_server) = (Arc::clone(&shared), Arc::clone(&shared));
    shared.running.store(2, Ordering::Relaxed);
    cluster.spawn_thread(hosts[0], 0, move || {
        fail_over(&plan, client, &of_client, &told);
    });
    cluster.spawn_thread(hosts[1], 0, move || {
        answer(&plan, &devices.1, &domains.1, vec![server], &of_server);
    });
    for _ in 0..100 {
        cluster.run_for(END_NS);
        if taken.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    shared.stopping.store(true, Ordering::Relaxed);
    while shared.running.load(Ordering::Relaxed) > 0 {
        cluster.run_for(END_NS);
    }
    match taken.load(Ordering::Relaxed) {
        0 => panic!("no backup took over in 100 ms"),
        time => time as f64,
    }
}

/// Number of requests answered before the queue pair fails: by then the backups are known.
const BEFORE_FAILURE: u64 = 200;

fn fail_over(plan: &Flor, link: Link, shared: &Shared, told: &AtomicU64) {
    let mut asking = Asking::new(plan, link, Arc::default());
    let mut failed_at = None;
    let mut switched_at = None;
    while !shared.stopping.load(Ordering::Relaxed) {
        let found = asking.step(plan, shared);
        let calls = shared.calls.load(Ordering::Relaxed);
        let switches = asking.link.connection().counters().switches;
        match (failed_at, switched_at) {
            (None, _) if calls >= BEFORE_FAILURE => {
                let primary = asking.link.connection().primary();
                asking.link.fail_path(primary);
                failed_at = Some(now_ns());
            }
            (Some(_), None) if switches > 0 => switched_at = Some(calls),
            (Some(at), Some(answered)) if calls > answered => {
                // Only once.
                let _ = told.compare_exchange(
                    0,
                    (now_ns() - at).max(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
            _ => {}
        }
        if !found {
            rest(std::iter::once(&asking.link));
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}
