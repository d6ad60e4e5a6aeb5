//! Two processes, and kills: whatever the moment, the other side sees whole messages and then the end or an error.
//!
//! `DUNLIN_KILL_ROUNDS` sets the number of rounds, `DUNLIN_KILL_SEED` the seed.

mod common;

use std::time::{Duration, Instant};

use common::process::{listen, role, say, Other};
use common::{close, device, from_hex, message, receive, send, to_hex, wait_for};
use dunlin_ring::{
    Consumer, Design, Offer, Producer, Received, RingConfig, RingError, SendError,
    UnconnectedConsumer, UnconnectedProducer,
};
use dunlin_shm::ShmDevice;

const LONGEST: usize = 1000;

fn configs() -> Vec<RingConfig> {
    let mut designs = Design::ALL.to_vec();
    designs.push(Design::FARM_UNORDERED);
    let config = |design: &Design| RingConfig {
        slot_bytes: 64,
        ..RingConfig::for_messages(*design, 56)
    };
    let mut configs: Vec<_> = designs.iter().map(config).collect();
    // A list has no messages of several slots.
    for config in &mut configs {
        if config.design.layout == dunlin_ring::Layout::LinkedSlots {
            *config = RingConfig::for_messages(config.design, LONGEST);
        }
    }
    configs
}

fn producer_of(
    config: &RingConfig,
    mut exchange: impl FnMut(String) -> String,
) -> Producer<ShmDevice> {
    let producer = UnconnectedProducer::new(&device(), config).unwrap();
    let theirs = exchange(to_hex(&producer.offer().encode()));
    producer
        .connect(&Offer::decode(&from_hex(&theirs)))
        .unwrap()
}

fn consumer_of(
    config: &RingConfig,
    mut exchange: impl FnMut(String) -> String,
) -> Consumer<ShmDevice> {
    let consumer = UnconnectedConsumer::new(&device(), config).unwrap();
    let theirs = exchange(to_hex(&consumer.offer().encode()));
    consumer
        .connect(&Offer::decode(&from_hex(&theirs)))
        .unwrap()
}

/// What the other process does.
fn play(what: &str, which: &str) {
    let config = configs()[which.parse::<usize>().unwrap()];
    let exchange = |ours: String| {
        say(&ours);
        listen().unwrap()
    };
    match what {
        "consume" => {
            let mut consumer = consumer_of(&config, exchange);
            let mut number = 0;
            while let Some(found) = receive(&mut consumer).unwrap() {
                assert!(found == message(number, LONGEST), "message {number}");
                number += 1;
            }
            say(&number.to_string());
        }
        "consume_for_ever" => {
            let mut consumer = consumer_of(&config, exchange);
            say("ready");
            loop {
                let _ = consumer.receive(|message| message.fold());
            }
        }
        "produce" => {
            let mut producer = producer_of(&config, exchange);
            for number in 0..20_000 {
                send(&mut producer, &message(number, LONGEST)).unwrap();
            }
            close(&mut producer);
        }
        "produce_for_ever" => {
            let mut producer = producer_of(&config, exchange);
            say("ready");
            for number in 0.. {
                send(&mut producer, &message(number, LONGEST)).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

fn other_offer(other: &mut Other) -> impl FnMut(String) -> String + '_ {
    |ours| {
        let theirs = other.hear();
        other.say(&ours);
        theirs
    }
}

#[test]
fn messages_cross_between_processes() {
    const NAME: &str = "messages_cross_between_processes";
    if let Some((role, which)) = role() {
        return play(&role, &which);
    }
    for (which, config) in configs().iter().enumerate() {
        let mut other = Other::start(NAME, "consume", &which.to_string());
        let mut producer = producer_of(config, other_offer(&mut other));
        for number in 0..20_000 {
            send(&mut producer, &message(number, LONGEST)).unwrap();
        }
        close(&mut producer);
        assert_eq!(other.hear(), "20000", "{}", config.design.name);

        // The producer closes and is gone at once; everything has arrived all the same.
        let mut other = Other::start(NAME, "produce", &which.to_string());
        let mut consumer = consumer_of(config, other_offer(&mut other));
        for number in 0..20_000 {
            let found = receive(&mut consumer).unwrap();
            assert_eq!(
                found,
                Some(message(number, LONGEST)),
                "{}",
                config.design.name
            );
        }
        assert_eq!(receive(&mut consumer).unwrap(), None);
    }
}

fn rounds() -> u64 {
    let text = std::env::var("DUNLIN_KILL_ROUNDS");
    text.map_or(3, |text| text.parse().unwrap())
}

fn random() -> fastrand::Rng {
    let seed = match std::env::var("DUNLIN_KILL_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => fastrand::u64(..),
    };
    println!("DUNLIN_KILL_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

#[test]
fn a_killed_producer_leaves_whole_messages_and_an_error() {
    if let Some((role, which)) = role() {
        return play(&role, &which);
    }
    let mut random = random();
    for (which, config) in configs().iter().enumerate() {
        for _ in 0..rounds() {
            let name = "a_killed_producer_leaves_whole_messages_and_an_error";
            let mut other = Other::start(name, "produce_for_ever", &which.to_string());
            let mut consumer = consumer_of(config, other_offer(&mut other));
            assert_eq!(other.hear(), "ready");
            let end = Instant::now() + Duration::from_micros(random.u64(0..20_000));
            let mut number = 0;
            let mut read = |consumer: &mut Consumer<ShmDevice>| {
                match consumer.receive(|message| message.to_vec())? {
                    Received::Message(found) => {
                        assert!(found == message(number, LONGEST), "{}", config.design.name);
                        number += 1;
                    }
                    Received::Empty => {}
                    Received::End => panic!("it did not close"),
                }
                Ok::<_, RingError>(())
            };
            while Instant::now() < end {
                read(&mut consumer).unwrap();
            }
            other.kill();
            let error = wait_for(|| read(&mut consumer).err());
            assert_eq!(error, RingError::PeerLost);
            assert_eq!(consumer.receive(|_| ()).unwrap_err(), RingError::PeerLost);
        }
    }
}

#[test]
fn a_killed_consumer_is_an_error() {
    if let Some((role, which)) = role() {
        return play(&role, &which);
    }
    let mut random = random();
    for (which, config) in configs().iter().enumerate() {
        for _ in 0..rounds() {
            let name = "a_killed_consumer_is_an_error";
            let mut other = Other::start(name, "consume_for_ever", &which.to_string());
            let mut producer = producer_of(config, other_offer(&mut other));
            assert_eq!(other.hear(), "ready");
            let end = Instant::now() + Duration::from_micros(random.u64(0..20_000));
            let mut number = 0;
            let mut write = |producer: &mut Producer<ShmDevice>| {
                match producer.try_send(&message(number, LONGEST)) {
                    Ok(()) => number += 1,
                    Err(SendError::Full) => producer.poll()?,
                    Err(SendError::Ring(error)) => return Err(error),
                    Err(error) => panic!("{error}"),
                }
                Ok::<_, RingError>(())
            };
            while Instant::now() < end {
                write(&mut producer).unwrap();
            }
            other.kill();
            let error = wait_for(|| write(&mut producer).err());
            assert!(
                matches!(error, RingError::PeerLost | RingError::Request(_)),
                "{error}"
            );
        }
    }
}
