//! A host that crashes and comes back: what its server had in memory is gone, what it wrote to a disk is there.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin restart
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::sim::{Fault, Host, Simulation};
use dunlin::{Client, Server, ServerBuilder};
use dunlin_examples::Failure;

const COUNT: u16 = 1;
const CRASH: Duration = Duration::from_millis(2);
/// Long enough for a device to notice that the server which it was connected to is gone.
const END: Duration = Duration::from_secs(6);

/// What a client was told, of memory and of the disk.
type Told = Arc<Mutex<Vec<[u64; 2]>>>;

// ANCHOR: simulation
/// Counts requests in memory and on a disk, and answers with both.
fn server(disk: &Arc<AtomicU64>) -> ServerBuilder {
    let (memory, disk) = (AtomicU64::new(0), Arc::clone(disk));
    Server::unbound().handle(COUNT, move |_, reply| {
        let counts = [&memory, &*disk].map(|count| 1 + count.fetch_add(1, Ordering::Relaxed));
        reply.write(&counts.map(u64::to_le_bytes).concat())
    })
}

/// The server's host crashes and is back after a millisecond.
fn run(seed: u64) -> Result<Vec<[u64; 2]>, Failure> {
    let told = Told::default();
    let (disk, tells) = (Arc::default(), Arc::clone(&told));
    let mut simulation = Simulation::new(seed);
    simulation.restartable_server("server", move || server(&disk));
    simulation.program("client", move |host| {
        while host.now() < END {
            // It may be down.
            if let Ok(connection) = host.connect("server", Client::builder()) {
                count(host, &connection, &tells);
            }
            host.sleep(Duration::from_micros(100));
        }
        Ok(())
    });
    let (host, lasts) = ("server".into(), Duration::from_millis(1));
    simulation.fault(CRASH, Fault::Restart { host, lasts });
    simulation.run()?;
    let told = told.lock().expect("no panic").clone();
    Ok(told)
}

/// Calls until one is not answered in time.
fn count(host: &Host, connection: &Client, tells: &Told) {
    let patience = Duration::from_micros(200);
    while host.now() < END {
        let Ok(counts) = connection.call_within(patience, COUNT, b"") else {
            return;
        };
        let counts = [word(&counts, 0), word(&counts, 8)];
        tells.lock().expect("no panic").push(counts);
        host.sleep(Duration::from_micros(500));
    }
}
// ANCHOR_END: simulation

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// The last counts before the restart, and the first after it.
fn around(told: &[[u64; 2]]) -> Option<([u64; 2], [u64; 2])> {
    let mut pairs = told.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.find(|(before, after)| after[0] < before[0])
}

fn main() -> Result<(), Failure> {
    let told = run(1)?;
    let (before, after) = around(&told).ok_or("the server has forgotten nothing")?;
    println!(
        "in memory: the counter went back to {} after {}",
        after[0], before[0]
    );
    println!("on disk: {} after {}", after[1], before[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_lost_once_and_the_disk_never() {
        for seed in 0..5 {
            let told = run(seed).expect("it ends");
            let (before, after) = around(&told).expect("a restart");
            assert_eq!(after[0], 1, "seed {seed}");
            assert!(after[1] > before[1], "seed {seed}");
            let is_told = |pair: &&[[u64; 2]]| pair[1][0] < pair[0][0];
            assert_eq!(told.windows(2).filter(is_told).count(), 1, "seed {seed}");
        }
    }
}
