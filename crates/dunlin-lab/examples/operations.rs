//! Operations of applications, without a call around them, for counting their instructions:
//!
//! ```sh
//! cargo build --release --example operations -p dunlin-lab --config profile.release.debug=1
//! valgrind --tool=callgrind --toggle-collect='operations::done*' target/release/examples/operations stat 2000
//! valgrind --tool=callgrind --toggle-collect='operations::looked_up*' target/release/examples/operations scan 2000
//! ```
//!
//! Arguments: the operation, and the number of repetitions, by which the count is divided. The results are in the files
//! of the figures (`scalerpc/metadata.rs`, `flock_16.rs`).

use dunlin_lab::load::{Index, Mdtest, Operation, Tree};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const USAGE: &str = "operations mknod|rmnod|stat|readdir|get|scan COUNT";
/// As in the figures.
const CLIENTS: usize = 120;
const FILES: usize = 60;
const KEYS: u64 = 1_000_000;
const RANGE: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = given.as_slice() else {
        return Err(USAGE.into());
    };
    let count: usize = count.parse()?;
    let operation = match what.as_str() {
        "mknod" => Operation::Mknod,
        "rmnod" => Operation::Rmnod,
        "stat" => Operation::Stat,
        "readdir" => Operation::ReadDir,
        "get" | "scan" => return index(what == "scan", count),
        _ => return Err(USAGE.into()),
    };
    let tree = Tree::new(CLIENTS, FILES);
    let mut clients: Vec<Mdtest> = (0..CLIENTS)
        .map(|client| Mdtest::new(&tree, client, operation, FILES))
        .collect();
    let mut requests = Vec::new();
    for number in 0..count {
        requests.push(clients[number % CLIENTS].request().1);
    }
    let changes = matches!(operation, Operation::Mknod | Operation::Rmnod);
    println!("{} bytes", done(&tree, changes, &requests));
    Ok(())
}

/// The function counted for operations on metadata.
#[inline(never)]
fn done(tree: &Tree, changes: bool, requests: &[Vec<u8>]) -> usize {
    let mut bytes = 0;
    for request in requests {
        let answer = match changes {
            true => tree.change(request),
            false => tree.ask(request),
        };
        bytes += answer.map_or(0, |answer| answer.len());
    }
    bytes
}

fn index(scans: bool, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(1, 2, &host, &nic, &switch);
    let index = Index::new(&cluster, cluster.hosts()[0], KEYS);
    let mut random = fastrand::Rng::with_seed(1);
    let mut requests = Vec::new();
    for _ in 0..count {
        let first = random.u64(0..KEYS - RANGE);
        let mut request = first.to_be_bytes().to_vec();
        if scans {
            request.extend((first + RANGE).to_be_bytes());
        }
        requests.push(request);
    }
    println!("{} bytes", looked_up(&index, scans, &requests));
    Ok(())
}

/// The function counted for operations on the index.
#[inline(never)]
fn looked_up(index: &Index, scans: bool, requests: &[Vec<u8>]) -> usize {
    let mut bytes = 0;
    for request in requests {
        bytes += match scans {
            true => index.scan(request).map_or(0, |count| count.len()),
            false => index.get(request).map_or(0, |value| value.len()),
        };
    }
    bytes
}
