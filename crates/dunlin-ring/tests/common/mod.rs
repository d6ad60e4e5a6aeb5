//! What the tests share: devices, rings within one process, what an offer looks like between processes.
#![allow(dead_code, missing_docs, unreachable_pub)]

#[path = "../../../dunlin-shm/tests/common/process.rs"]
pub mod process;

use std::time::{Duration, Instant};

use dunlin_ring::{
    Batching, Consumer, Design, HeadSync, Producer, Received, RingConfig, RingError, SendError,
    TailSync, UnconnectedConsumer, UnconnectedProducer,
};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

pub fn device() -> ShmDevice {
    ShmDevice::open(ShmConfig::default()).unwrap()
}

pub fn roce() -> RoceDevice {
    let mut config = RoceConfig::from_environment().unwrap();
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    config.local_address.get_or_insert(loopback);
    RoceDevice::open(config).unwrap()
}

/// An offer as a word.
pub fn to_hex(offer: &[u8]) -> String {
    offer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The offer of a word.
pub fn from_hex<const N: usize>(hex: &str) -> [u8; N] {
    let byte = |index: usize| u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap();
    std::array::from_fn(byte)
}

/// A ring between two devices of this process.
pub fn ring(config: &RingConfig) -> (Producer<ShmDevice>, Consumer<ShmDevice>) {
    ring_over(&device(), &device(), config)
}

pub fn ring_over<D: Device>(
    first: &D,
    second: &D,
    config: &RingConfig,
) -> (Producer<D>, Consumer<D>) {
    let producer = UnconnectedProducer::new(first, config).unwrap();
    let consumer = UnconnectedConsumer::new(second, config).unwrap();
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    (
        producer.connect(&to_producer).unwrap(),
        consumer.connect(&to_consumer).unwrap(),
    )
}

/// Every design with a name, and every choice that none of them makes.
pub fn designs() -> Vec<Design> {
    let mut designs = Design::ALL.to_vec();
    designs.extend([Design::FARM_UNORDERED, Design::RB2_LATENCY]);
    designs.push(Design {
        name: "mvapich by lengths",
        tail_sync: TailSync::PollLength,
        ..Design::MVAPICH
    });
    let choices: [fn(&mut Design); 7] = [
        |design| design.head_sync = HeadSync::LazyPull,
        |design| design.head_sync = HeadSync::ActivePush,
        |design| design.tail_sync = TailSync::CompletionQueue,
        |design| design.zero_copy = false,
        |design| design.cache_lines = false,
        |design| {
            design.head_sync = HeadSync::LazyPull;
            design.tail_sync = TailSync::CompletionQueue;
        },
        |design| {
            design.batching = Batching::Adaptive {
                advance_slots: 32,
                transmit_slots: 16,
                sync_ahead: false,
                elastic: false,
            }
        },
    ];
    designs.extend(choices.map(|choose| {
        let mut design = Design::RB2;
        design.name = "variant";
        choose(&mut design);
        design
    }));
    designs
}

/// The message of a number: its length and its bytes follow from it.
pub fn message(number: u64, longest: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number ^ 0x5eed);
    let length = match number % 4 {
        0 => random.usize(0..=longest.min(16)),
        1 => random.usize(0..=longest.min(200)),
        2 => random.usize(0..=longest),
        _ => longest.min(48),
    };
    let mut bytes = vec![0; length];
    for byte in &mut bytes {
        *byte = random.u8(..);
    }
    bytes
}

/// Longest a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `done` until it gives something; a hang is a failure.
pub fn wait_for<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain");
        std::thread::yield_now();
    }
}

/// Sends, and waits for room.
pub fn send<D: Device>(producer: &mut Producer<D>, message: &[u8]) -> Result<(), RingError> {
    wait_for(|| match producer.try_send(message) {
        Ok(()) => Some(Ok(())),
        Err(SendError::Full) => producer.poll().err().map(Err),
        Err(SendError::Ring(error)) => Some(Err(error)),
        Err(error) => panic!("{error}"),
    })
}

/// The next message; `None` at the end.
pub fn receive<D: Device>(consumer: &mut Consumer<D>) -> Result<Option<Vec<u8>>, RingError> {
    wait_for(|| match consumer.receive(|message| message.to_vec()) {
        Ok(Received::Message(bytes)) => Some(Ok(Some(bytes))),
        Ok(Received::Empty) => None,
        Ok(Received::End) => Some(Ok(None)),
        Err(error) => Some(Err(error)),
    })
}

/// Closes a producer and waits until that has arrived.
pub fn close<D: Device>(producer: &mut Producer<D>) {
    producer.close().unwrap();
    wait_for(|| {
        producer.poll().unwrap();
        producer.is_closed().then_some(())
    });
}
