#![allow(missing_docs)]
use dunlin::Preset;
use dunlin_lab::load::{RpcBench, RpcPlan};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let preset: Preset = args[1].parse().unwrap();
    let n = |i: usize, d: usize| args.get(i).map_or(d, |a| a.parse().unwrap());
    let (threads, out, machines) = (n(2, 8), n(3, 8), n(4, 23));
    let mut nic = NicParameters::connectx_5();
    nic.set("in_order_placement", 1.0).unwrap();
    let cluster = Cluster::star(1, machines + 1, &HostParameters::epyc_7452(), &nic, &{
        let mut s = SwitchParameters::z9264f();
        s.set("ecn_min_bytes", 0.0).unwrap();
        s
    });
    let t = std::time::Instant::now();
    let mut plan = RpcPlan::flock(preset, threads, out);
    if let Some(l) = args.get(6) {
        plan.large = Some((10, l.parse().unwrap()));
    }
    let bench = RpcBench::new(cluster, plan);
    eprintln!("built {:.2}s", t.elapsed().as_secs_f64());
    let r = bench.measure(n(5, 10_500_000) as u64, 300_000, 500_000);
    println!("{preset} {threads} {out}: {r:?}");
    if let Some(f) = bench.clients()[0].figures() {
        println!(
            "assign {:?} migr {} active {}",
            f.assignment,
            f.migrations,
            f.lanes.iter().filter(|l| l.active).count()
        );
    }
    let hosts = bench.cluster().hosts();
    let (a0, a1) = (
        bench.cluster().counters(hosts[0]),
        bench.cluster().counters(hosts[1]),
    );
    bench.cluster().run_for(100_000);
    println!(
        "SERVER0 {a0:?}\nSERVER1 {:?}\nCLIENT0 {a1:?}\nCLIENT1 {:?}",
        bench.cluster().counters(hosts[0]),
        bench.cluster().counters(hosts[1])
    );
    println!("stop {:?}", bench.stop());
    let e = bench.cluster().events();
    let s = t.elapsed().as_secs_f64();
    println!(
        "{e} events {s:.2}s {:.2} M/s digest {:016x}",
        e as f64 / s / 1e6,
        bench.cluster().digest()
    );
    drop(bench);
    eprintln!("dropped {:.2}s", t.elapsed().as_secs_f64());
}
