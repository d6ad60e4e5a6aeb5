//! A service with a bug that is there one time in many, found on simulated hosts, and the service without it.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin retries         # looks for a seed that finds the bug
//! cargo run -p dunlin-examples --bin retries -- 0    # runs seed 0 alone, once more
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::sim::{Host, Kind, Report, Simulation};
use dunlin::{CallError, Client, Execution, Server, ServerBuilder};
use dunlin_examples::Failure;

const CLIENTS: u64 = 2;
const ADDITIONS: u64 = 30;
const SEEDS: std::ops::Range<u64> = 0..10;

// ANCHOR: service
const ADD: u16 = 1;

/// Adds one for each request, and answers with the sum. A request is its client's number and its own.
#[derive(Default)]
struct Counter {
    sum: u64,
    /// Of each client its last request, and the answer. What is asked once more is answered once more.
    answered: BTreeMap<u64, (u64, u64)>,
}

impl Counter {
    fn add(&mut self, client: u64, number: u64, remembers: bool) -> u64 {
        match self.answered.get(&client) {
            Some(&(last, answer)) if remembers && last == number => answer,
            _ => {
                self.sum += 1;
                self.answered.insert(client, (number, self.sum));
                self.sum
            }
        }
    }
}

fn server(counter: &Arc<Mutex<Counter>>, remembers: bool) -> ServerBuilder {
    let counter = Arc::clone(counter);
    Server::unbound().handle(ADD, move |request, reply| {
        let (client, number) = (word(request.payload(), 0), word(request.payload(), 8));
        let sum = counter
            .lock()
            .expect("no panic")
            .add(client, number, remembers);
        reply.write(&sum.to_le_bytes())
    })
}

/// Adds one, and asks again where nobody knows whether it was added.
fn add(host: &Host, connection: &Client, request: [u64; 2]) -> Result<u64, CallError> {
    let request = request.map(u64::to_le_bytes).concat();
    loop {
        match connection.call(ADD, &request) {
            Ok(sum) => return Ok(word(&sum, 0)),
            Err(error) if error.execution() == Execution::Executed => return Err(error),
            Err(_) => host.sleep(Duration::from_micros(50)),
        }
    }
}
// ANCHOR_END: service

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

// ANCHOR: simulation
/// Two clients add, while faults come that the seed draws. Gives the sum.
fn run(seed: u64, remembers: bool) -> Result<(u64, Report), Failure> {
    let counter = Arc::default();
    let mut simulation = Simulation::new(seed);
    simulation.server("server", server(&counter, remembers));
    for client in 0..CLIENTS {
        simulation.program(&format!("client {client}"), move |host| {
            let connection = host.connect("server", Client::builder())?;
            for number in 0..ADDITIONS {
                add(host, &connection, [client, number])?;
                host.sleep(Duration::from_micros(host.random() % 20));
            }
            Ok(())
        });
    }
    let kinds = [Kind::Loss, Kind::Delay, Kind::Pause, Kind::LostConnections];
    simulation.draw_faults(Duration::ZERO..Duration::from_micros(500), 6, &kinds);
    let report = simulation.run()?;
    let sum = counter.lock().expect("no panic").sum;
    Ok((sum, report))
}
// ANCHOR_END: simulation

// ANCHOR: main
fn main() -> Result<(), Failure> {
    // A seed that found something is run once more: the same sum, faults and digest.
    if let Some(seed) = std::env::args().nth(1) {
        is_right(seed.parse()?)?;
        return Ok(());
    }
    for seed in SEEDS {
        if !is_right(seed)? {
            break;
        }
    }
    for seed in SEEDS {
        let (sum, _) = run(seed, true)?;
        assert_eq!(sum, CLIENTS * ADDITIONS, "seed {seed}");
    }
    println!(
        "with a server that remembers: {} seeds are right",
        SEEDS.count()
    );
    Ok(())
}

/// Whether the service without a memory comes to the right sum by this seed. Prints what happened.
fn is_right(seed: u64) -> Result<bool, Failure> {
    let (sum, report) = run(seed, false)?;
    println!(
        "seed {seed}: {} additions, and the sum is {sum}; digest {:016x}",
        CLIENTS * ADDITIONS,
        report.digest
    );
    for (at, what) in report.faults {
        println!("  at {at:?}: {what}");
    }
    Ok(sum == CLIENTS * ADDITIONS)
}
// ANCHOR_END: main

// ANCHOR: test
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_finds_the_bug_again_and_the_mended_service_passes_it() {
        let wrong = |seed: &u64| run(*seed, false).expect("it ends").0 != CLIENTS * ADDITIONS;
        let seed = SEEDS.clone().find(wrong).expect("a seed that finds it");
        assert_eq!(
            run(seed, false).expect("it ends"),
            run(seed, false).expect("it ends")
        );
        assert_eq!(run(seed, true).expect("it ends").0, CLIENTS * ADDITIONS);
    }

    #[test]
    fn the_mended_service_passes_all_seeds() {
        for seed in SEEDS {
            let (sum, _) = run(seed, true).expect("it ends");
            assert_eq!(sum, CLIENTS * ADDITIONS, "seed {seed}");
        }
    }
}
// ANCHOR_END: test
