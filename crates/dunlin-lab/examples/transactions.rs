//! Transactions between simulated hosts, for counting what they take of a core beside the RPC:
//!
//! ```sh
//! cargo build --release --example transactions -p dunlin-lab
//! valgrind --tool=callgrind target/release/examples/transactions flock flocktx objects 4 2 500
//! ```
//!
//! Preset, protocol, `objects` with its keys of a transaction and those that it changes, and microseconds. Two runs of
//! different length give what a request or a transaction takes. `effort.rs` of `dunlin-txn` has what was found.

use dunlin::{Grouping, Preset};
use dunlin_lab::load::{Transactions, TransactionsBench, Work};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const USAGE: &str = "transactions PRESET fasst|flocktx|scaletx|scaletx-o objects|tatp|smallbank KEYS CHANGED MICROSECONDS";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [preset, protocol, work, all, changed, microseconds] = given.as_slice() else {
        return Err(USAGE.into());
    };
    let protocol = match protocol.as_str() {
        "fasst" => "fasst",
        "flocktx" => "flocktx",
        "scaletx" => "scaletx",
        "scaletx-o" => "scaletx-o",
        _ => return Err(USAGE.into()),
    };
    let work = match work.as_str() {
        "objects" => Work::Objects {
            keys: 20_000,
            all: all.parse()?,
            changed: changed.parse()?,
        },
        "tatp" => Work::Tatp(20_000),
        "smallbank" => Work::SmallBank {
            customers: 20_000,
            hot: 800,
            percent: 90,
        },
        _ => return Err(USAGE.into()),
    };
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    let cluster = Cluster::star(1, 4, &host, &nic, &SwitchParameters::z9264f());
    let plan = Transactions {
        preset: preset.parse::<Preset>()?,
        protocol,
        alone: false,
        stores: 3,
        replicas: 3,
        symmetric: false,
        most_machines: usize::MAX,
        threads: 1,
        most_threads: usize::MAX,
        transactions: 19,
        pollers: 1,
        most_active: 256,
        max_outstanding: 64,
        groups: None,
        grouping: Grouping::default(),
        work,
    };
    let result = TransactionsBench::new(cluster, &plan).measure(0, 100_000, {
        let microseconds: u64 = microseconds.parse()?;
        microseconds * 1_000
    });
    println!("{preset}, {protocol}: {result:?}");
    Ok(())
}
