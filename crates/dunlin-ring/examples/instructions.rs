//! Messages of 64 B in one process, for counting what the engines of a ring take of a core:
//!
//! ```sh
//! cargo build --release --example instructions -p dunlin-ring --config profile.release.debug=1
//! valgrind --fair-sched=yes --tool=callgrind target/release/examples/instructions rb2 32 100
//! callgrind_annotate --inclusive=no callgrind.out.*
//! ```
//!
//! The design, how many messages are sent before they are read, and how often. `src/effort.rs` has what was found.

use dunlin_ring::{Consumer, Design, HeadSync, Producer, RingConfig, TailSync};
use dunlin_ring::{UnconnectedConsumer, UnconnectedProducer};
use dunlin_shm::{ShmConfig, ShmDevice};

const BYTES: usize = 64;
const USAGE: &str =
    "instructions rb2|rb2-latency|farm|socksdirect|l5|poll-cq|lazy-pull MESSAGES ROUNDS";

/// A function of its own, so that its name is in the profile.
#[inline(never)]
fn send(producer: &mut Producer<ShmDevice>, number: u64) {
    let number = number.to_le_bytes();
    while producer
        .try_send_with(BYTES, |place| place[..8].copy_from_slice(&number))
        .is_err()
    {
        give_way(producer);
    }
}

#[inline(never)]
fn receive(consumer: &mut Consumer<ShmDevice>, sum: &mut u64) -> usize {
    let read = |message: dunlin_ring::Message<'_>| *sum += message.u64_at(0);
    consumer.receive_many(8, read).expect("the ring lives")
}

#[inline(never)]
fn give_way(producer: &mut Producer<ShmDevice>) {
    producer.poll().expect("the ring lives");
    std::thread::yield_now();
}

fn design(name: &str) -> Option<Design> {
    Some(match name {
        "rb2" => Design::RB2,
        "rb2-latency" => Design::RB2_LATENCY,
        "farm" => Design::FARM_UNORDERED,
        "socksdirect" => Design::SOCKSDIRECT,
        "l5" => Design::L5,
        "poll-cq" => Design {
            tail_sync: TailSync::CompletionQueue,
            ..Design::RB2
        },
        "lazy-pull" => Design {
            head_sync: HeadSync::LazyPull,
            ..Design::RB2
        },
        _ => return None,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [name, messages, rounds] = given.as_slice() else {
        return Err(USAGE.into());
    };
    let design = design(name).ok_or(USAGE)?;
    let (messages, rounds): (usize, usize) = (messages.parse()?, rounds.parse()?);
    let config = RingConfig::for_records(design, BYTES);
    let devices = [
        ShmDevice::open(ShmConfig::default())?,
        ShmDevice::open(ShmConfig::default())?,
    ];
    let producer = UnconnectedProducer::new(&devices[0], &config)?;
    let consumer = UnconnectedConsumer::new(&devices[1], &config)?;
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    let mut producer = producer.connect(&to_producer)?;
    let mut consumer = consumer.connect(&to_consumer)?;
    let (mut sent, mut sum) = (0, 0);
    for _ in 0..rounds {
        for _ in 0..messages {
            send(&mut producer, sent);
            sent += 1;
        }
        producer.flush()?;
        let mut received = 0;
        while received < messages {
            match receive(&mut consumer, &mut sum) {
                0 => give_way(&mut producer),
                some => received += some,
            }
        }
    }
    assert_eq!(sum, (0..sent).sum(), "every message, once");
    println!("{sent} messages");
    Ok(())
}
