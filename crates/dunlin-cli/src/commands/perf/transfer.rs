//! `dunlin perf transfer`: measures one-sided transfers into and out of a region of another process.

use std::time::{Duration, Instant};

use dunlin::{Address, Transfer, TransferBuffer, TransferError};
use serde::Serialize;

use crate::affinity;
use crate::commands::connect;
use crate::commands::Failure;
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::services::child::ServerProcess;
use crate::services::echo::REGION;

/// Measure one-sided transfers to and from the memory of another process
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each turn puts --size bytes and gets them again, one-sided: the server's processor takes no part; once from and into \
plain memory, once from and into registered memory, which avoids a copy. The bytes that come back are compared once. \
Without --address, a server process is started and pinned to the second core, and the client to the first.\n\n\
Examples:\n  \
  dunlin perf transfer                                      256 MiB, one connection\n  \
  dunlin perf transfer --size 1GiB --lanes 2 --device roce\n  \
  dunlin perf transfer --device ibv:mlx5_0 --also ibv:mlx5_1\n      \
      over both ports of a host\n  \
  dunlin serve echo --region 1GiB --listen dunlin://0.0.0.0:7400\n      \
      on HOST, until Ctrl-C; and from another host or shell:\n  \
  dunlin perf transfer --address dunlin://HOST:7400 --size 1GiB")]
pub struct Args {
    /// Bytes per transfer
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_bytes(1..=u32::MAX))]
    size: u32,
    /// Bytes per piece [default: 128KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(1..=u32::MAX))]
    piece: Option<u32>,
    /// Number of connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    lanes: u16,
    /// Second device over which pieces are transferred, in addition to `--device`, such as another NIC
    #[arg(long, requires = "device", value_parser = connect::parse_device, value_name = "DEVICE")]
    also: Option<String>,
    /// Turns, after one that does not count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Use this server instead of starting one (`dunlin serve echo --region BYTES`)
    #[arg(long)]
    address: Option<Address>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Rates of the turns in one direction.
#[derive(Debug, Serialize)]
struct Rates {
    median_bytes_per_s: f64,
    range_bytes_per_s: [f64; 2],
}

impl Rates {
    fn of(bytes: u32, took: &mut [Duration]) -> Self {
        took.sort_unstable();
        let rate = |took: Duration| f64::from(bytes) / took.as_secs_f64();
        let last = took.len() - 1;
        Self {
            median_bytes_per_s: rate(took[last / 2]),
            range_bytes_per_s: [rate(took[last]), rate(took[0])],
        }
    }
}

#[derive(Debug, Serialize)]
struct TransferReport {
    device: String,
    preset: String,
    size: u32,
    lanes: u16,
    /// Number of turns of which each figure is the median: fewer than requested after Ctrl-C.
    turns: usize,
    put: Rates,
    get: Rates,
    /// With registered memory.
    put_registered: Rates,
    get_registered: Rates,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let cores = affinity::cores();
    let server = match &args.address {
        Some(_) => None,
        None => {
            let second = cores.get(1).map(std::slice::from_ref).unwrap_or_default();
            // One that is to be reached over two devices serves all.
            let only = args.connect.device().filter(|_| args.also.is_none());
            let mut arguments = super::server_arguments(second, only);
            arguments.extend(["--region".to_owned(), args.size.to_string()]);
            Some(ServerProcess::start("echo", &arguments)?)
        }
    };
    if let (Some(first), true) = (cores.first(), server.is_some()) {
        affinity::pin(*first);
    }
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let client = args.connect.connect(address)?;
    let region = client.attach(REGION).map_err(Failure::new)?;
    let also = args.also.as_ref().map(|device| {
        let client = args.connect.with_device(device).connect(address)?;
        let region = client.attach(REGION).map_err(Failure::new)?;
        Ok::<_, Failure>((client, region))
    });
    let also = also.transpose()?;
    // Put, got, and both of registered memory.
    let mut took: [Vec<Duration>; 4] = Default::default();
    let source: Vec<u8> = (0..args.size).map(|at| (at >> 12 ^ at) as u8).collect();
    let mut back = vec![0; source.len()];
    let mut transfer = region.transfer().lanes(usize::from(args.lanes));
    if let Some((_, region)) = &also {
        transfer = transfer.also_by(region).map_err(Failure::new)?;
    }
    if let Some(bytes) = args.piece {
        transfer = transfer.piece_bytes(bytes as usize);
    }
    let mut registered = transfer.buffer(source.len()).map_err(Failure::new)?;
    let bytes = registered.bytes_mut().map_err(Failure::new)?;
    let all = bytes.iter_mut().zip(&source);
    all.for_each(|(to, from)| *to = !from);
    for turn in 0..=args.turns {
        let plain = turn_of(&mut transfer, (&source, &mut back)).map_err(Failure::new)?;
        let own = match plain {
            Some(_) => turn_of_registered(&mut transfer, &mut registered).map_err(Failure::new)?,
            None => None,
        };
        let (Some(plain), Some(own)) = (plain, own) else {
            break;
        };
        if turn == 0 {
            let mut pairs = registered
                .bytes()
                .map_err(Failure::new)?
                .iter()
                .zip(&source);
            if back != source || !pairs.all(|(own, sent)| *own == !sent) {
                return Err(Failure::new(
                    "the bytes that came back differ from those that were put",
                ));
            }
        } else {
            let turn = [plain.0, plain.1, own.0, own.1];
            took.iter_mut()
                .zip(turn)
                .for_each(|(all, one)| all.push(one));
        }
    }
    if took[0].is_empty() {
        return Err(Failure::interrupted());
    }
    let turns = took[0].len();
    let [mut put, mut get, mut put_registered, mut get_registered] = took;
    let info = client.info();
    let mut device = info.device;
    if let Some((client, _)) = &also {
        device = format!("{device} and {}", client.info().device);
    }
    let report = TransferReport {
        device,
        preset: info.preset.to_string(),
        size: args.size,
        lanes: args.lanes,
        turns,
        put: Rates::of(args.size, &mut put),
        get: Rates::of(args.size, &mut get),
        put_registered: Rates::of(args.size, &mut put_registered),
        get_registered: Rates::of(args.size, &mut get_registered),
    };
    if args.json {
        output::print_json(&report)?;
        return interrupt::check();
    }
    for (what, rates) in [
        ("put", &report.put),
        ("get", &report.get),
        ("put from registered memory:", &report.put_registered),
        ("get into registered memory:", &report.get_registered),
    ] {
        let [least, most] = rates.range_bytes_per_s.map(|rate| rate / 1e9);
        output::print(format!(
            "{what} {} bytes over {} ({} connections, {} turns): {:.2} GB/s ({least:.2} to {most:.2})",
            report.size,
            report.device,
            report.lanes,
            report.turns,
            rates.median_bytes_per_s / 1e9,
        ))?;
    }
    interrupt::check()
}

/// Puts and gets once; `None` if Ctrl-C came before the end.
fn turn_of(
    transfer: &mut Transfer<'_>,
    (source, back): (&[u8], &mut [u8]),
) -> Result<Option<(Duration, Duration)>, TransferError> {
    let start = Instant::now();
    transfer.put(0, source)?;
    let putting = start.elapsed();
    if interrupt::came() {
        return Ok(None);
    }
    let start = Instant::now();
    transfer.get(0, back)?;
    Ok((!interrupt::came()).then(|| (putting, start.elapsed())))
}

/// The same with registered memory.
fn turn_of_registered(
    transfer: &mut Transfer<'_>,
    buffer: &mut TransferBuffer,
) -> Result<Option<(Duration, Duration)>, TransferError> {
    let all = 0..buffer.len();
    let start = Instant::now();
    transfer.put_from(0, buffer, all.clone())?;
    let putting = start.elapsed();
    if interrupt::came() {
        return Ok(None);
    }
    let start = Instant::now();
    transfer.get_into(0, buffer, all)?;
    Ok((!interrupt::came()).then(|| (putting, start.elapsed())))
}
