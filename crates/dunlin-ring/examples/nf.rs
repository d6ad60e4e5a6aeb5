//! RB²'s case 1: a network function that counts traffic by flow. Records of 40 bytes (flow key, timestamp, sequence,
//! size) go one way.
//!
//! `cargo run --release -p dunlin-ring --example nf -- 30000000 rb2` for so many packets over a design. The trace is
//! generated: flows by a Zipf-like law with an exponent of one, packet sizes small or full; the paper's CAIDA trace is
//! not free. With a third argument, `nf 30000000 rb2 trace.pcap`, the packets are those of a pcap file, again and
//! again.

mod common;

use std::collections::HashMap;
use std::time::Instant;

use common::pcap::Packets;
use common::{count, is_other, Failure, Pipe};
use dunlin_ring::{Design, Message, Received, RingConfig, SendError};

/// Flow key (13 bytes of addresses, ports and protocol, and 3 of padding), timestamp, sequence, size.
const RECORD: usize = 40;
/// Flows of the trace.
const FLOWS: f64 = 100_000.0;
/// The size of the record that ends the trace.
const END: u64 = u64::MAX;

fn config() -> Result<RingConfig, Failure> {
    let name = std::env::args().nth(2).unwrap_or("rb2".into());
    let design = Design::ALL.into_iter().find(|design| design.name == name);
    let design = design.ok_or("no design of this name")?;
    Ok(RingConfig::for_records(design, RECORD))
}

/// The flow of a packet: heavy-tailed, by inverting a law that falls with the rank.
fn flow(random: &mut fastrand::Rng) -> u64 {
    FLOWS.powf(random.f64()) as u64
}

/// Packets of a trace at most.
const MOST: usize = 1 << 20;

/// A record without its sequence.
fn record(flow: u64, time_ns: u64, bytes: u64) -> [u64; 5] {
    let more = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [flow, more, time_ns, 0, bytes]
}

fn draw_trace(packets: usize) -> Vec<[u64; 5]> {
    let mut random = fastrand::Rng::with_seed(2019);
    let mut draw = |number| {
        let flow = flow(&mut random);
        let bytes = if random.u8(..) < 128 { 64 } else { 1500 };
        record(flow, number * 33, bytes)
    };
    (0..packets as u64).map(&mut draw).collect()
}

/// The packets of a pcap file, up to [`MOST`]; those without a flow are one flow.
fn read_trace(file: &str) -> Result<Vec<[u64; 5]>, Failure> {
    let bytes = std::fs::read(file)?;
    let mut trace = Vec::new();
    for packet in Packets::new(&bytes)?.take(MOST) {
        let packet = packet?;
        let flow = packet.flow.unwrap_or_default();
        trace.push(record(flow, packet.time_ns, packet.bytes.into()));
    }
    if trace.is_empty() {
        return Err(format!("{file} holds no packet").into());
    }
    Ok(trace)
}

fn generate(packets: u64) -> Result<(), Failure> {
    let mut pipe = Pipe::to_other_with(&[config()?.design.name])?;
    let mut producer = pipe.producer(&config()?)?;
    // Drawing or reading a packet takes longer than sending it, so the trace is made before and replayed.
    let trace = match std::env::args().nth(3) {
        Some(file) => read_trace(&file)?,
        None => draw_trace(packets.clamp(1, MOST as u64) as usize),
    };
    let start = Instant::now();
    let mut send = |record: [u64; 5]| loop {
        let sent = producer.try_send_with(RECORD, |place| {
            for (place, word) in place.chunks_exact_mut(8).zip(record) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        });
        match sent {
            Ok(()) => return Ok(()),
            Err(SendError::Full) => {
                producer.poll()?;
                std::thread::yield_now();
            }
            Err(error) => return Err(Failure::from(error)),
        }
    };
    for sequence in 0..packets {
        let mut record = trace[(sequence % trace.len() as u64) as usize];
        record[3] = sequence;
        send(record)?;
    }
    send([0, 0, 0, packets, END])?;
    producer.close()?;
    while !producer.is_closed() {
        producer.poll()?;
    }
    // Until everything has been counted.
    pipe.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = packets as f64 / seconds / 1e6;
    println!(
        "{packets} packets over {} in {seconds:.2} s: {rate:.1} M/s",
        config()?.design.name
    );
    Ok(())
}

fn measure() -> Result<(), Failure> {
    let mut consumer = Pipe::to_first().consumer(&config()?)?;
    let mut flows: HashMap<u64, (u64, u64)> = HashMap::new();
    let (mut next, mut wrong, mut ended) = (0u64, 0u64, false);
    let mut read = |message: Message<'_>| {
        let (flow, sequence, size) = (message.u64_at(0), message.u64_at(24), message.u64_at(32));
        wrong += u64::from(sequence != next);
        next = sequence + 1;
        if size == END {
            ended = true;
            return;
        }
        let (packets, bytes) = flows.entry(flow).or_default();
        *packets += 1;
        *bytes += size;
    };
    loop {
        match consumer.receive(&mut read)? {
            Received::Message(()) => {}
            // The device's own thread may need this core.
            Received::Empty => std::thread::yield_now(),
            Received::End => break,
        }
    }
    let counted: u64 = flows.values().map(|(packets, _)| packets).sum();
    if !ended || wrong > 0 || counted + 1 != next {
        return Err(format!("{counted} counted, {wrong} wrong").into());
    }
    let largest = flows.values().map(|(packets, _)| *packets).max();
    eprintln!(
        "{} flows, the largest with {} packets",
        flows.len(),
        largest.unwrap_or(0)
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    if is_other() {
        return measure();
    }
    generate(count(30_000_000))
}
