//! Why ScaleTX is slower than its competitors here: one point of ScaleRPC Fig. 16, with the activity of the machines'
//! NICs per transaction.
//!
//! ```sh
//! cargo run --release -p dunlin-lab --example scaletx -- 160 read-only context_sets=2000 responder_sets=2000
//! ```
//!
//! Arguments: clients; `read-only`, `read-write` or `smallbank`; then parameters of the NIC. The plan is that of the
//! figure `scalerpc-transactions`.

use std::time::Duration;

use dunlin::{Grouping, Preset};
use dunlin_lab::load::{Transactions, TransactionsBench, Work};
use dunlin_sim::{Cluster, Counters, HostParameters, NicParameters, SwitchParameters};

const STORES: usize = 3;
const MACHINES: usize = 9;
const GROUP: usize = 40;
const WINDOW_NS: u64 = 1_200_000;
const SYNCHRONIZED: Duration = Duration::from_millis(1);

type Failure = Box<dyn std::error::Error>;

const SYSTEMS: [(&str, Preset, &str); 5] = [
    ("rawwrite", Preset::RawWrite, "scaletx-o"),
    ("fasst", Preset::Fasst, "scaletx-o"),
    ("ScaleTX-O", Preset::ScaleRpc, "scaletx-o"),
    ("ScaleTX", Preset::ScaleRpc, "scaletx"),
    ("ScaleTX, RC for all", Preset::RawWrite, "scaletx"),
];

fn work(name: &str) -> Result<Work, Failure> {
    let objects = |changed| Work::Objects {
        keys: 1_000_000,
        all: 4,
        changed,
    };
    match name {
        "read-only" => Ok(objects(0)),
        "read-write" => Ok(objects(2)),
        "smallbank" => Ok(Work::SmallBank {
            customers: 360_000,
            hot: 120_000,
            percent: 60,
        }),
        other => Err(format!("no load '{other}': read-only, read-write, smallbank").into()),
    }
}

/// Counters of the storing machines, summed.
fn sums(cluster: &Cluster) -> [f64; 6] {
    let stores = cluster.hosts().into_iter().take(STORES);
    stores.fold([0.0; 6], |sums, host| {
        let c: Counters = cluster.counters(host);
        let of = [
            c.packets_sent,
            c.packets_received,
            c.context_hits,
            c.context_misses,
            c.requests_answered,
            c.translation_misses,
        ];
        std::array::from_fn(|n| sums[n] + of[n] as f64)
    })
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let clients: usize = arguments.next().map_or(Ok(160), |text| text.parse())?;
    let load = arguments.next().unwrap_or_else(|| "read-only".to_owned());
    let mut nic = NicParameters::connectx_3();
    for setting in arguments {
        let (key, value) = setting.split_once('=').ok_or("settings are KEY=VALUE")?;
        nic.set(key, value.parse()?)?;
    }
    println!(
        "{:<20} {:>7} {:>8} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "",
        "M/s",
        "p50 us",
        "busy",
        "requests",
        "sent",
        "received",
        "hits",
        "misses",
        "READs",
        "pages"
    );
    for (name, preset, protocol) in SYSTEMS {
        let mut host = HostParameters::xeon_e5_v4();
        host.set("cores", 48.0)?;
        let switch = SwitchParameters::sx1012();
        let cluster = Cluster::star(1, STORES + MACHINES, &host, &nic, &switch);
        let groups = clients.div_ceil(GROUP);
        let plan = Transactions {
            preset,
            protocol,
            alone: false,
            stores: STORES,
            replicas: 1,
            symmetric: false,
            most_machines: MACHINES,
            threads: clients.div_ceil(MACHINES),
            most_threads: clients,
            transactions: 8,
            pollers: 10,
            most_active: 256,
            max_outstanding: 64,
            ring_bytes: 16 << 10,
            together: (preset == Preset::ScaleRpc).then_some((groups, Some(SYNCHRONIZED))),
            grouping: Grouping {
                clients: GROUP,
                by_priority: false,
                ..Grouping::default()
            },
            uses_queues: true,
            work: work(&load)?,
        };
        let bench = TransactionsBench::new(cluster.clone(), &plan);
        bench.measure(0, WINDOW_NS, 1000);
        let before = sums(&cluster);
        let result = bench.measure(0, 0, WINDOW_NS);
        let after = sums(&cluster);
        let committed = result.mtps * WINDOW_NS as f64 / 1e3;
        let each: [f64; 6] = std::array::from_fn(|n| (after[n] - before[n]) / committed);
        print!(
            "{name:<20} {:>7.2} {:>8.1} {:>6.2} {:>9.2}",
            result.mtps, result.median_us, result.server_busy, result.requests
        );
        each.iter().for_each(|value| print!(" {value:>8.2}"));
        println!();
    }
    Ok(())
}
