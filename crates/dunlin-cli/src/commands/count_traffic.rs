//! `dunlin count-traffic`: counts the flows of a capture, in another process at the end of a ring.

use std::path::PathBuf;

use dunlin_ring::Design;
use serde::Serialize;

use super::connect::parse_device;
use super::Failure;
use crate::traffic::capture::{Capture, CaptureError};
use crate::traffic::count::{Counts, Volume};
use crate::traffic::over_ring::{count, count_alone, Opening};
use crate::{interrupt, output};

/// Count the traffic in a capture by flow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The network function of the RB² paper (case 1). This process reads a pcap or pcapng file, as written by tcpdump and \
Wireshark, and writes a record for each packet directly into the ring: flow, time, number, length. Another process at \
the end of the ring counts packets and bytes of each flow: addresses, ports and protocol, one way. Fragments after \
the first have no ports.\n\n\
Examples:\n  \
  dunlin count-traffic trace.pcap                    the ten largest flows\n  \
  dunlin count-traffic trace.pcapng --top 1000 --json\n  \
  dunlin count-traffic trace.pcap --turns 5          compared with one process, in turns")]
pub struct Args {
    /// Capture file
    file: PathBuf,
    /// Number of flows to show, those with the most bytes
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    top: u32,
    /// Maximum number of flows counted separately; packets of others are counted together
    #[arg(long, default_value_t = 10_000_000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_flows: u32,
    /// Turns to measure, after one that does not count: both processes and this one alone count in turns, and their
    /// rates are reported
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Device of both processes (see `dunlin devices`)
    #[arg(long, default_value = "shm", value_parser = parse_device)]
    device: String,
    /// Ring design: rb2, farm, farm-unordered, socksdirect, l5 or mvapich
    #[arg(long, default_value = "rb2", value_parser = parse_design)]
    design: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_design(name: &str) -> Result<String, String> {
    let names = Design::ALL.map(|design| design.name);
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("available designs: {}", names.join(", "))),
    }
}

/// Rates: medians of the turns.
#[derive(Clone, Copy, Debug, Serialize)]
struct Rates {
    turns: usize,
    records_per_s: f64,
    alone_records_per_s: f64,
    /// The median of the turns' ratios: rate over the ring divided by rate of one process.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    counts: Counts,
    /// The capture ends within a packet.
    cut_short: bool,
    device: String,
    design: String,
    seconds: f64,
    records_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
}

fn open(args: &Args) -> Result<Capture, Failure> {
    Capture::open(&args.file).map_err(|error| match error {
        CaptureError::NoCapture { .. } => Failure::usage(error).help(
            "create a capture with tcpdump -w or Wireshark; Wireshark's editcap converts other formats",
        ),
        error => Failure::new(error),
    })
}

/// Counts and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let opening = Opening {
        device: args.device.clone(),
        design: args.design.clone(),
        flows_max: args.max_flows as usize,
        top: args.top as usize,
    };
    let mut capture = open(args)?;
    let (counts, took) = count(&opening, &mut capture)?;
    let rate = counts.all.packets as f64 / took.as_secs_f64().max(1e-9);
    let rates = args
        .turns
        .map(|turns| measure(args, &opening, &counts, turns));
    let report = Report {
        cut_short: capture.is_cut_short(),
        device: opening.device.clone(),
        design: opening.design.clone(),
        seconds: took.as_secs_f64(),
        records_per_s: rate,
        rates: rates.transpose()?.flatten(),
        counts,
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        print(&report)?;
    }
    interrupt::check()
}

/// Measures both in turns; `None` if Ctrl-C came before the end of the first turn.
fn measure(
    args: &Args,
    opening: &Opening,
    counts: &Counts,
    turns: u32,
) -> Result<Option<Rates>, Failure> {
    let mut figures = Vec::new();
    for _ in 0..turns {
        if interrupt::came() {
            break;
        }
        let (by_ring, with_ring) = count(opening, &mut open(args)?)?;
        let (by_one, alone) = count_alone(opening, &mut open(args)?)?;
        if by_ring != *counts || by_one != *counts {
            return Err(Failure::new(
                "a second count of the same file gave another result: is the file being written?",
            ));
        }
        let rate = |seconds: f64| counts.all.packets as f64 / seconds.max(1e-9);
        figures.push((rate(with_ring.as_secs_f64()), rate(alone.as_secs_f64())));
    }
    let median = |figure: &dyn Fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied()
    };
    let medians = median(&|figures| figures.0).zip(median(&|figures| figures.1));
    let ratio = median(&|figures| figures.0 / figures.1);
    Ok(medians.zip(ratio).map(|((ring, alone), ratio)| Rates {
        turns: figures.len(),
        records_per_s: ring,
        alone_records_per_s: alone,
        ratio,
    }))
}

/// The name of a protocol, if it is a common one.
fn protocol(number: u8) -> String {
    let name = match number {
        1 => "icmp",
        2 => "igmp",
        6 => "tcp",
        17 => "udp",
        47 => "gre",
        50 => "esp",
        58 => "icmpv6",
        132 => "sctp",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn print(report: &Report) -> Result<(), Failure> {
    let counts = &report.counts;
    let words = |volume: Volume| {
        let bytes = output::bytes(volume.bytes as f64);
        format!("{} packets, {bytes}", volume.packets)
    };
    let mut table = output::table(&["flow", "packets", "bytes", "part"]);
    for talker in &counts.top {
        let (flow, volume) = (&talker.flow, talker.volume);
        let place = |address: std::net::IpAddr, port: u16| match port {
            0 => address.to_string(),
            port => std::net::SocketAddr::new(address, port).to_string(),
        };
        let source = place(flow.source, flow.source_port);
        let destination = place(flow.destination, flow.destination_port);
        let part = volume.bytes as f64 / counts.all.bytes.max(1) as f64;
        table.add_row([
            format!("{} {source} > {destination}", protocol(flow.protocol)),
            volume.packets.to_string(),
            output::bytes(volume.bytes as f64),
            format!("{:.1} %", part * 100.0),
        ]);
    }
    output::print(table)?;
    output::print(format_args!(
        "{} in {} flows within {}; {} without a flow",
        words(counts.all),
        counts.flows,
        output::nanoseconds(counts.lasted_ns as f64),
        words(counts.without_flow),
    ))?;
    if counts.of_more_flows.packets > 0 {
        output::note(format_args!(
            "{} of more flows than --max-flows",
            words(counts.of_more_flows)
        ));
    }
    if report.cut_short {
        output::note("the capture ends within a packet: the packets before it were counted");
    }
    match report.rates {
        Some(rates) => output::print(format_args!(
            "over the ring {}, by one process alone {}, ratio {:.2} (medians of {} turns)",
            output::rate(rates.records_per_s),
            output::rate(rates.alone_records_per_s),
            rates.ratio,
            rates.turns,
        )),
        None => output::print(format_args!(
            "{} records over {} and {}",
            output::rate(report.records_per_s),
            report.device,
            report.design,
        )),
    }
}
