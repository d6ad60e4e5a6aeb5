//! RB²'s case 2: a database that only reads (YCSB-C). Requests of 16 bytes go one way and responses of 128 the other,
//! on two rings.
//!
//! `cargo run --release -p dunlin-ring --example ycsb -- 3000000 rb2` for so many requests over a design.

mod common;

use std::time::Instant;

use common::{count, is_other, Failure, Pipe};
use dunlin_ring::{Design, Received, RingConfig, RingError, SendError};

const REQUEST: usize = 16;
const RESPONSE: usize = 128;
/// Entries of the database; keys are drawn with YCSB's skew from them.
const ENTRIES: u64 = 1 << 16;

fn design() -> Result<Design, Failure> {
    let name = std::env::args().nth(2).unwrap_or("rb2".into());
    let design = Design::ALL.into_iter().find(|design| design.name == name);
    Ok(design.ok_or("no design of this name")?)
}

fn ask(requests: u64) -> Result<(), Failure> {
    let design = design()?;
    let mut pipe = Pipe::to_other_with(&[design.name])?;
    let mut producer = pipe.producer(&RingConfig::for_records(design, REQUEST))?;
    let mut consumer = pipe.consumer(&RingConfig::for_records(design, RESPONSE))?;
    let mut random = fastrand::Rng::with_seed(7);
    // A quick law of about YCSB's skew, scattered over the keys.
    let keys: Vec<u64> = (0..1 << 16)
        .map(|_| (ENTRIES as f64).powf(random.f64()) as u64 * 40_503 % ENTRIES)
        .collect();
    let key = |number: u64| keys[(number % (1 << 16)) as usize];
    let start = Instant::now();
    let (mut sent, mut answered) = (0u64, 0u64);
    while answered < requests {
        while sent < requests {
            let request = producer.try_send_with(REQUEST, |place| {
                place[..8].copy_from_slice(&sent.to_le_bytes());
                place[8..].copy_from_slice(&key(sent).to_le_bytes());
            });
            match request {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        producer.poll()?;
        let mut wrong = false;
        let some = consumer.receive_many(128, |message| {
            wrong |= message.u64_at(0) != answered || message.u64_at(8) != key(answered);
            wrong |= message.u64_at(120) != key(answered);
            answered += 1;
        })?;
        if some == 0 {
            // The device's own thread may need this core.
            std::thread::yield_now();
        }
        if wrong {
            return Err("a wrong answer".into());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    producer.close()?;
    while !producer.is_closed() {
        producer.poll()?;
    }
    pipe.wait()?;
    let rate = requests as f64 / seconds / 1e6;
    println!(
        "{requests} reads over {} in {seconds:.2} s: {rate:.2} M/s",
        design.name
    );
    Ok(())
}

fn serve() -> Result<(), Failure> {
    let design = design()?;
    let mut pipe = Pipe::to_first();
    let mut consumer = pipe.consumer(&RingConfig::for_records(design, REQUEST))?;
    let mut producer = pipe.producer(&RingConfig::for_records(design, RESPONSE))?;
    let values: Vec<[u64; 14]> = (0..ENTRIES).map(|key| [key; 14]).collect();
    loop {
        let request = match consumer.receive(|message| (message.u64_at(0), message.u64_at(8))) {
            Ok(Received::Message(request)) => request,
            Ok(Received::Empty) => {
                producer.poll()?;
                std::thread::yield_now();
                continue;
            }
            Ok(Received::End) | Err(RingError::PeerLost) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (number, key) = request;
        let value = values.get(key as usize).ok_or("no such key")?;
        loop {
            let answer = producer.try_send_with(RESPONSE, |place| {
                let words = [number, key].into_iter().chain(*value);
                for (place, word) in place.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            });
            match answer {
                Ok(()) => break,
                Err(SendError::Full) => {
                    producer.poll()?;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn main() -> Result<(), Failure> {
    if is_other() {
        return serve();
    }
    ask(count(3_000_000))
}
