//! Messages from one end of a logical connection to the other, over RoCE on this host: how many bytes a second cross by
//! Flor over UC, by RC whose device goes back to what is lost, and by the kernel's TCP. Both ends and the device run on
//! this one thread (the kernel's part of TCP where the kernel likes), so the figures compare them on equal terms and
//! are no limits of any.
//!
//! `exchange [LABEL]` prints rows of a table; `DUNLIN_FLOR_EXCHANGE_MS` (1500) is how long each is measured.
//! `exchange switch` fails the queue pair in use a hundred times, and says how long it takes until the next message has
//! come by a backup (§6).
//! `crates/dunlin-roce/tests/netns/run flor` runs it on a network that loses packets.

mod link;
mod tcp;

use std::time::Duration;

use dunlin_flor::connection::Deployment;
use link::{Exchange, DEPTH};

type Failure = Box<dyn std::error::Error>;

/// Bytes a second, repetitions, and work requests for each message.
fn measure(deployment: Deployment, bytes: u32, time: Duration) -> Result<(f64, u64, f64), Failure> {
    let mut exchange = Exchange::new(deployment, bytes)?;
    // A tenth goes before: memory is made and round trips are measured.
    exchange.run(time / 10)?;
    let (from, before) = (exchange.elapsed(), exchange.received);
    exchange.run(time - time / 10)?;
    let seconds = (exchange.elapsed() - from).as_secs_f64();
    let counters = exchange.counters();
    let messages = (exchange.received / u64::from(bytes)).max(1);
    let posted = counters.posted as f64 / messages as f64;
    let rate = (exchange.received - before) as f64 / seconds;
    Ok((rate, counters.repeated, posted))
}

/// Switches to a backup that are measured.
const SWITCHES: usize = 100;
/// Between two of them, in which what failed is connected again.
const BETWEEN: Duration = Duration::from_millis(20);

/// From the error of the queue pair in use to the next message that comes, in order of length.
fn switches(deployment: Deployment, bytes: u32) -> Result<Vec<Duration>, Failure> {
    let mut exchange = Exchange::new(deployment, bytes)?;
    let mut found = Vec::new();
    for count in 0..SWITCHES {
        exchange.run(BETWEEN)?;
        exchange.fail_primary();
        let failed = exchange.elapsed();
        while exchange.counters().switches as usize <= count {
            exchange.step()?;
        }
        let before = exchange.received;
        while exchange.received == before {
            exchange.step()?;
        }
        found.push(exchange.elapsed() - failed);
    }
    found.sort_unstable();
    Ok(found)
}

fn print_switches() -> Result<(), Failure> {
    println!("| over | bytes | median, us | 90th | longest |");
    println!("|---|---|---|---|---|");
    for deployment in [Deployment::HybridReliable, Deployment::CrossPod] {
        for bytes in [4 << 10, 32 << 10, 64 << 10] {
            let found = switches(deployment, bytes)?;
            let at = |percent: usize| found[(found.len() - 1) * percent / 100].as_micros();
            let over = deployment.transport();
            println!(
                "| {over} | {bytes} | {} | {} | {} |",
                at(50),
                at(90),
                at(100)
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let label = std::env::args().nth(1).unwrap_or_else(|| "-".to_owned());
    if label == "switch" {
        return print_switches();
    }
    let time_ms = match std::env::var("DUNLIN_FLOR_EXCHANGE_MS") {
        Ok(time_ms) => time_ms.parse()?,
        Err(_) => 1500,
    };
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        for (name, deployment) in [
            ("Flor over UC", Deployment::CrossPod),
            ("RC", Deployment::IntraPodLossless),
        ] {
            let time = Duration::from_millis(time_ms);
            match measure(deployment, bytes, time) {
                Ok((rate, repeated, posted)) => {
                    println!(
                        "| {label} | {name} | {bytes} | {:.0} | {repeated} | {posted:.1} |",
                        rate / 1e6
                    );
                }
                Err(error) => println!("| {label} | {name} | {bytes} | {error} | | |"),
            }
        }
        for control in tcp::controls() {
            let time = Duration::from_millis(time_ms);
            match tcp::measure(&control, bytes as usize, DEPTH, time) {
                Ok(rate) => {
                    println!(
                        "| {label} | TCP, {control} | {bytes} | {:.0} | | |",
                        rate / 1e6
                    )
                }
                Err(error) => println!("| {label} | TCP, {control} | {bytes} | {error} | | |"),
            }
        }
    }
    Ok(())
}
