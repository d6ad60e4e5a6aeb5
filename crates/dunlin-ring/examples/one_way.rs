//! One way through a ring between two threads, each on a core of its own: what to put under a profiler.
//!
//! `cargo run --release -p dunlin-ring --example one_way -- rb2 64 2` for a design, a size and a number of seconds;
//! then the slots, α, β, `elastic` or not, and `header` where each message shall tell its length.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dunlin_ring::{
    Batching, Design, Producer, Received, RingConfig, SendError, UnconnectedConsumer,
    UnconnectedProducer,
};
use dunlin_shm::{ShmConfig, ShmDevice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or(default.into());
    let (name, size) = (text(0, "rb2"), text(1, "64").parse::<usize>()?);
    let seconds: f64 = text(2, "1").parse()?;
    let design = Design::ALL
        .into_iter()
        .find(|design| design.name == name)
        .ok_or("no design of this name")?;
    let mut config = match text(7, "fixed").as_str() {
        "header" => RingConfig::for_messages(design, size),
        _ => RingConfig::for_records(design, size),
    };
    config.slots = text(3, "128").parse()?;
    if let Batching::Adaptive {
        advance_slots,
        transmit_slots,
        elastic,
        ..
    } = &mut config.design.batching
    {
        *advance_slots = text(4, "32").parse()?;
        *transmit_slots = text(5, "16").parse()?;
        *elastic = text(6, "elastic") == "elastic";
    }
    let producer = UnconnectedProducer::new(&ShmDevice::open(ShmConfig::default())?, &config)?;
    let consumer = UnconnectedConsumer::new(&ShmDevice::open(ShmConfig::default())?, &config)?;
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    let mut producer = producer.connect(&to_producer)?;
    let mut consumer = consumer.connect(&to_consumer)?;
    let end = AtomicBool::new(false);
    let (sent, received) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut next, mut empty) = (0u64, 0u32);
            loop {
                let count = consumer
                    .receive_many(64, |message| {
                        assert_eq!(message.u64_at(0), next);
                        next += 1;
                    })
                    .expect("the ring holds");
                if count > 0 {
                    empty = 0;
                    continue;
                }
                std::hint::spin_loop();
                empty += 1;
                if empty % 4096 == 0 {
                    std::thread::yield_now();
                    if end.load(Ordering::Relaxed) {
                        return next;
                    }
                }
            }
        });
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let mut number = 0u64;
        while Instant::now() < until {
            for _ in 0..1024 {
                send(&mut producer, size, number);
                number += 1;
            }
        }
        producer.flush().expect("the ring holds");
        std::thread::sleep(Duration::from_millis(10));
        end.store(true, Ordering::Relaxed);
        (number, reading.join().expect("it reads"))
    });
    let rate = received as f64 / seconds / 1e6;
    println!("{name} {size} B: {rate:.5} M/s, {} lost", sent - received);
    assert!(matches!(consumer.receive(|_| ())?, Received::Empty));
    Ok(())
}

#[inline(always)]
fn send(producer: &mut Producer<ShmDevice>, size: usize, number: u64) {
    let mut looks = 0u32;
    loop {
        let sent = producer.try_send_with(size, |place| {
            // A line by a loop of known length, as the bare ring of `dunlin perf limits` fills its own; of longer
            // messages the first.
            if let Some(line) = place.first_chunk_mut::<64>() {
                line.as_chunks_mut::<8>().0.fill(number.to_le_bytes());
            } else {
                place.as_chunks_mut::<8>().0.fill(number.to_le_bytes());
            }
        });
        match sent {
            Ok(()) => return,
            Err(SendError::Full) => {
                std::hint::spin_loop();
                looks += 1;
                if looks % 4096 == 0 {
                    std::thread::yield_now();
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}
