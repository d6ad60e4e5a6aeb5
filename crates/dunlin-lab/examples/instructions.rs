//! Calls of 64 B between two simulated hosts, for counting the instructions of the RPC:
//!
//! ```sh
//! cargo build --release --example instructions -p dunlin-lab --config profile.release.debug=1
//! valgrind --tool=callgrind target/release/examples/instructions flock 1 8 500 dispatched
//! ```
//!
//! Arguments: preset, threads of the client, outstanding calls of each, microseconds, and whether a dispatcher takes
//! the answers. Two runs of different length give the cost of a call; functions that poll without success are left out,
//! as that has a price of its own. The results are in `effort.rs` of `dunlin-rpc`.

use dunlin::Preset;
use dunlin_lab::load::{RpcBench, RpcPlan};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const USAGE: &str = "instructions PRESET THREADS OUT MICROSECONDS [dispatched]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [preset, threads, out, microseconds, rest @ ..] = given.as_slice() else {
        return Err(USAGE.into());
    };
    let preset: Preset = preset.parse()?;
    let microseconds: u64 = microseconds.parse()?;
    let mut nic = NicParameters::connectx_5();
    nic.set("in_order_placement", 1.0)?;
    let mut switch = SwitchParameters::z9264f();
    switch.set("ecn_min_bytes", 0.0)?;
    let host = HostParameters::epyc_7452();
    let cluster = Cluster::star(1, 2, &host, &nic, &switch);
    let mut plan = RpcPlan::flock(preset, threads.parse()?, out.parse()?);
    plan.pollers = 1;
    plan.dispatched = rest.first().is_some_and(|word| word == "dispatched");
    let result = RpcBench::new(cluster, plan).measure(0, 300_000, microseconds * 1_000);
    let calls = result.mops * microseconds as f64;
    println!("{preset}: {calls:.0} calls, {:.2} M/s", result.mops);
    Ok(())
}
