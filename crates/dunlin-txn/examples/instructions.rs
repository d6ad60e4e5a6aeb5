//! Transactions of one thread on three machines of this process, for counting what they take of a core:
//!
//! ```sh
//! cargo build --release --example instructions -p dunlin-txn
//! valgrind --tool=callgrind target/release/examples/instructions flocktx object-4-2 2000
//! ```
//!
//! Protocol, load and how many transactions. What functions take with all that they call, divided by how often they
//! were called, is what `effort.rs` has: `transact` of the server; `begin`, `take` and `act` of the driver.

use dunlin_rpc::Server;
use dunlin_txn::server::{StoreConfig, StoreServer};
use dunlin_txn::{workload, Database, Report};

const USAGE: &str = "instructions fasst|flocktx|scaletx|scaletx-o LOAD TRANSACTIONS";
const MACHINES: u16 = 3;
const ROWS: u64 = 2_000;
/// Transactions at once, as a thread of FaSST has.
const AT_ONCE: u16 = 19;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, load, transactions] = given.as_slice() else {
        return Err(USAGE.into());
    };
    let (name, mut left) = (load, transactions.parse::<u64>()?);
    let mut load = workload::named(name, ROWS).ok_or("no such load")?;
    let mut servers = Vec::new();
    for machine in 0..MACHINES {
        let config = StoreConfig {
            machine,
            machines: MACHINES,
            replicas: MACHINES,
            tables: load.tables(),
            one_sided_writes: protocol == "scaletx",
        };
        let server = StoreServer::serve(Server::bind("dunlin://127.0.0.1:0")?, config)?;
        server.load(load.load())?;
        servers.push(server);
    }
    let addresses = servers.iter().map(|one| one.server().address().to_string());
    let database = Database::builder().protocol(protocol).open(addresses)?;
    let mut driver = database.driver(AT_ONCE)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut committed = 0;
    while left > 0 || driver.running() > 0 {
        while left > 0 && driver.free() > 0 {
            driver.begin(left, load.next(&mut random));
            left -= 1;
        }
        let count = |_, _, report| committed += u64::from(matches!(report, Report::Ended(Ok(_))));
        if !driver.poll(count) {
            driver.rest();
        }
    }
    println!("{protocol}, {name}: {committed} committed");
    Ok(())
}
