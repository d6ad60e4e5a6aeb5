//! Messages from one end of a logical connection to the other, over RoCE on this host: how many bytes a second cross by
//! Flor over UC, by RC whose device goes back to what is lost, and by the kernel's TCP. Both ends and the device run on
//! this one thread (the kernel's part of TCP where the kernel likes), so the figures compare them on equal terms and
//! are no limits of any.
//!
//! `exchange [LABEL]` prints rows of a table; `DUNLIN_FLOR_EXCHANGE_MS` (1500) is how long each is measured.
//! `crates/dunlin-roce/tests/netns/run flor` runs it on a network that loses packets.

mod tcp;

use std::time::{Duration, Instant};

use dunlin_flor::congestion::FixedWindow;
use dunlin_flor::connection::Deployment;
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_roce::{RoceConfig, RoceDevice};

type Failure = Box<dyn std::error::Error>;

/// Under way at once, as in the paper's benchmark (§7.2).
const DEPTH: usize = 8;
/// As in the paper, whose loss is no congestion either (§7.3).
const WINDOW_BYTES: u64 = 256 << 10;

fn end(deployment: Deployment) -> Result<LogicalConnection<RoceDevice>, Failure> {
    let mut roce = RoceConfig::from_environment()?;
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    roce.local_address.get_or_insert(loopback);
    let mut config = LinkConfig::new(deployment);
    // Enough that nothing waits for memory which rests after a repetition.
    config.max_landing_bytes = 1 << 30;
    let mut modules = deployment.modules(&config.network)?;
    if deployment == Deployment::CrossPod {
        modules.congestion = Box::new(FixedWindow::new(WINDOW_BYTES));
    }
    let device = RoceDevice::open(roce)?;
    Ok(LogicalConnection::with_modules(device, config, modules)?)
}

/// Bytes a second, repetitions, and work requests for each message.
fn measure(deployment: Deployment, bytes: u32, time: Duration) -> Result<(f64, u64, f64), Failure> {
    let mut sender = end(deployment)?;
    let mut receiver = end(deployment)?;
    let addresses = (sender.address(), receiver.address());
    sender.connect(&addresses.1, 0)?;
    receiver.connect(&addresses.0, 0)?;
    let region = sender.allocate(bytes as usize)?;
    let mut open = 0;
    let mut received = 0_u64;
    let begun = Instant::now();
    // A tenth goes before: memory is made and round trips are measured.
    let mut counted_from = None;
    loop {
        let elapsed = begun.elapsed();
        let now_ns = elapsed.as_nanos() as u64;
        if counted_from.is_none() && elapsed > time / 10 {
            counted_from = Some((elapsed, received));
        }
        if elapsed > time {
            break;
        }
        while open < DEPTH {
            let source = Source {
                region: region.clone(),
                offset: 0,
                bytes,
            };
            sender.submit(now_ns, source)?;
            open += 1;
        }
        while let Some(event) = sender.poll(now_ns)? {
            match event {
                LinkEvent::Finished(_, outcome) => {
                    outcome?;
                    open -= 1;
                }
                LinkEvent::Lost => return Err("the connection is lost".into()),
                _ => {}
            }
        }
        while let Some(event) = receiver.poll(now_ns)? {
            match event {
                LinkEvent::Message(message) => received += message.len() as u64,
                LinkEvent::Landed { landing, .. } => {
                    received += landing.len() as u64;
                    receiver.release(landing);
                }
                _ => {}
            }
        }
    }
    let (from, before) = counted_from.unwrap_or_default();
    let seconds = (begun.elapsed() - from).as_secs_f64();
    let counters = sender.connection().counters();
    let messages = (received / u64::from(bytes)).max(1);
    let posted = counters.posted as f64 / messages as f64;
    let rate = (received - before) as f64 / seconds;
    Ok((rate, counters.repeated, posted))
}

fn main() -> Result<(), Failure> {
    let label = std::env::args().nth(1).unwrap_or_else(|| "-".to_owned());
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
