//! A network that loses, doubles, delays and marks packets, for tests: it moves IP packets between two TUN interfaces,
//! or back into the only one, where the routes of a network namespace send a host's packets to itself that way.
//!
//! `relay [--lost PERCENT] [--doubled PERCENT] [--late PERCENT] [--marked PERCENT] [--seed NUMBER] INTERFACE
//! [INTERFACE]`
//!
//! The interfaces are made in the network namespace where it is started, and may be moved to others. It says *ready*,
//! goes on until its standard input ends, and then says what became of the packets. What happens to the n-th packet of
//! a direction follows from the seed alone.

mod disorder;
mod tun;

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use disorder::{Direction, Rates};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use tun::Tun;

/// Longer than any packet of an interface.
const PACKET_BYTES: usize = 64 << 10;
/// Packets of one direction at a time, so that the other one is not kept waiting.
const BURST: usize = 32;

#[derive(Debug, Default)]
struct Options {
    rates: Rates,
    seed: u64,
    interfaces: Vec<String>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let text = arguments.next();
            text.ok_or_else(|| format!("{argument}: a value is missing"))
        };
        match argument.as_str() {
            "--lost" => options.rates.lost = per_million(&value()?)?,
            "--doubled" => options.rates.doubled = per_million(&value()?)?,
            "--marked" => options.rates.marked = per_million(&value()?)?,
            "--late" => options.rates.late = per_million(&value()?)?,
            "--seed" => {
                options.seed = value()?.parse().map_err(|_| "--seed: not a number")?;
            }
            name if !name.starts_with('-') => options.interfaces.push(argument),
            other => return Err(format!("{other}: unknown")),
        }
    }
    match options.interfaces.len() {
        1 | 2 => Ok(options),
        _ => Err("one or two interfaces".to_owned()),
    }
}

fn per_million(percent: &str) -> Result<u32, String> {
    match percent.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 10_000.0).round() as u32),
        _ => Err(format!("{percent}: not a percentage")),
    }
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("relay: {why}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> std::io::Result<()> {
    let interfaces = options
        .interfaces
        .iter()
        .map(|name| Tun::create(name))
        .collect::<Result<Vec<_>, _>>()?;
    let mut directions: Vec<Direction> = (0..interfaces.len() as u64)
        .map(|number| Direction::new(options.rates, options.seed, number))
        .collect();
    println!("ready");
    let began = Instant::now();
    let mut buffer = vec![0; PACKET_BYTES];
    let stdin = std::io::stdin();
    loop {
        let mut set = vec![PollFd::new(&stdin, PollFlags::IN)];
        set.extend(
            interfaces
                .iter()
                .map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)),
        );
        let now = began.elapsed();
        let due = directions.iter().filter_map(Direction::due).min();
        let timeout = due.map(|due| timespec(due.saturating_sub(now)));
        poll(&mut set, timeout.as_ref())?;
        // Nobody writes there: it is readable at its end.
        if !set[0].revents().is_empty() {
            break;
        }
        for (number, direction) in directions.iter_mut().enumerate() {
            let to = interfaces.len() - 1 - number;
            // An interface that is full, or down, loses the packet.
            let mut send = |packet: &[u8]| drop(interfaces[to].write(packet));
            for _ in 0..BURST {
                match interfaces[number].read(&mut buffer) {
                    Ok(bytes) => direction.take(began.elapsed(), &buffer[..bytes], &mut send),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            direction.release(began.elapsed(), &mut send);
        }
    }
    for (name, direction) in options.interfaces.iter().zip(&directions) {
        println!("from {name}: {}", direction.counts());
    }
    Ok(())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
