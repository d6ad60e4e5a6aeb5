//! Algorithm 1 under property tests: the ring of the product over a device whose every step is chosen by proptest, in
//! every design.
//!
//! First in, first out; nothing lost, nothing twice, nothing overwritten before it was read, nothing sent from a buffer
//! that was reused, and no message that waits for a later one.

#![allow(missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;
mod device;

use common::{designs, message, ring_over};
use device::ModelDevice;
use dunlin_ring::{
    Consumer, Design, Framing, HeadSync, Layout, LengthLimit, Producer, Received, RingConfig,
    RingError, SendError, TailSync, UnconnectedConsumer, UnconnectedProducer,
};
use dunlin_verbs::Placement;
use proptest::prelude::*;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    SendInPlace,
    Flush,
    PollProducer,
    Receive,
    PollConsumer,
    Land { pair: usize, half: bool },
    Complete { pair: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Send),
        3 => Just(Step::SendInPlace),
        1 => Just(Step::Flush),
        2 => Just(Step::PollProducer),
        8 => Just(Step::Receive),
        1 => Just(Step::PollConsumer),
        10 => (0usize..2, any::<bool>()).prop_map(|(pair, half)| Step::Land { pair, half }),
        6 => (0usize..2).prop_map(|pair| Step::Complete { pair }),
    ]
}

struct World {
    device: ModelDevice,
    producer: Producer<ModelDevice>,
    consumer: Consumer<ModelDevice>,
    longest: usize,
    fixed: Option<usize>,
    sent: u64,
    received: u64,
}

impl World {
    fn new(config: &RingConfig, placement: Placement) -> Self {
        let device = ModelDevice::new(placement);
        let (producer, consumer) = ring_over(&device, &device, config);
        let (LengthLimit::AtMost(longest) | LengthLimit::Exactly(longest)) = producer.limit();
        let fixed = match config.framing {
            Framing::Header => None,
            Framing::Fixed(bytes) => Some(bytes),
        };
        Self {
            device,
            producer,
            consumer,
            longest,
            fixed,
            sent: 0,
            received: 0,
        }
    }

    fn message(&self, number: u64) -> Vec<u8> {
        match self.fixed {
            Some(bytes) => vec![number as u8 ^ 0x5a; bytes],
            None => message(number, self.longest),
        }
    }

    fn send(&mut self, in_place: bool) -> Result<(), RingError> {
        let message = self.message(self.sent);
        let sent = if in_place {
            self.producer
                .try_send_with(message.len(), |place| place.copy_from_slice(&message))
        } else {
            self.producer.try_send(&message)
        };
        match sent {
            Ok(()) => self.sent += 1,
            Err(SendError::Full) => {}
            Err(SendError::Ring(error)) => return Err(error),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<bool, RingError> {
        match self.consumer.receive(|message| message.to_vec())? {
            Received::Message(found) => {
                assert!(self.received < self.sent, "never sent");
                assert!(
                    found == self.message(self.received),
                    "message {}",
                    self.received
                );
                self.received += 1;
                Ok(true)
            }
            Received::Empty => Ok(false),
            Received::End => panic!("nobody closed it"),
        }
    }

    fn take(&mut self, step: Step) -> Result<(), RingError> {
        match step {
            Step::Send => self.send(false),
            Step::SendInPlace => self.send(true),
            Step::Flush => self.producer.flush(),
            Step::PollProducer => self.producer.poll(),
            Step::Receive => self.receive().map(|_| ()),
            Step::PollConsumer => self.consumer.poll(),
            Step::Land { pair, half } => {
                self.device.land(pair, half);
                Ok(())
            }
            Step::Complete { pair } => {
                self.device.complete(pair);
                Ok(())
            }
        }
    }

    /// The sender goes idle: everything that was sent arrives, though nothing more is sent.
    fn drain(&mut self) -> Result<(), RingError> {
        for _ in 0..100_000 {
            self.device.settle();
            self.producer.poll()?;
            if !self.receive()? && self.received == self.sent {
                return Ok(());
            }
        }
        panic!("{} of {} arrived", self.received, self.sent);
    }
}

/// Designs and shapes: small rings, so that everything wraps and fills.
fn config() -> impl Strategy<Value = (RingConfig, Placement)> {
    let designs = designs();
    let shapes = prop_oneof![Just((4usize, 64usize)), Just((8, 64)), Just((16, 128))];
    let lengths = prop_oneof![2 => Just(None), 1 => (1usize..60).prop_map(Some)];
    let batching = (1u32..6, 1u32..6, any::<bool>(), any::<bool>());
    let choices = (0..designs.len(), shapes, lengths, batching, any::<bool>());
    choices.prop_map(
        move |(which, (slots, slot_bytes), fixed, batching, ordered)| {
            let mut design = designs[which];
            let (more, transmit_slots, sync_ahead, elastic) = batching;
            if let dunlin_ring::Batching::Adaptive { .. } = design.batching {
                design.batching = dunlin_ring::Batching::Adaptive {
                    advance_slots: transmit_slots + more,
                    transmit_slots,
                    sync_ahead,
                    elastic,
                };
                design.push_slots = more;
            }
            let mut fixed = fixed;
            if design.layout == Layout::LinkedSlots {
                fixed = fixed.map(|bytes| bytes.min(40));
            }
            let config = RingConfig {
                design,
                slots,
                slot_bytes,
                framing: fixed.map_or(Framing::Header, Framing::Fixed),
            };
            // Messages that are polled need the order; others are tried without it.
            let ordered = ordered || design.tail_sync == TailSync::PollMessage;
            let placement = if ordered {
                Placement::InOrder
            } else {
                Placement::Unordered
            };
            (config, placement)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_once_whole_and_in_order(
        (config, placement) in config(),
        steps in prop::collection::vec(step(), 0..600),
    ) {
        let mut world = World::new(&config, placement);
        for step in steps {
            world.take(step).unwrap();
        }
        world.drain().unwrap();
    }
}

#[test]
fn no_message_waits_for_a_later_one_in_any_state() {
    // After every number of messages, with every one of them the last.
    for design in designs() {
        for count in 1..80 {
            let config = RingConfig::for_messages(design, 40);
            let mut world = World::new(&config, Placement::InOrder);
            for _ in 0..count {
                world.send(false).unwrap();
            }
            world.drain().unwrap();
        }
    }
}

#[test]
fn an_advancement_that_was_deferred_is_retried_by_the_next_poll() {
    let mut world = World::new(
        &RingConfig::for_records(Design::RB2, 40),
        Placement::InOrder,
    );
    // The first advancement is under way, and the second is due.
    for _ in 0..64 {
        world.send(false).unwrap();
    }
    while world.device.land(0, false) {}
    let mut seen = 0;
    while world.receive().unwrap() {
        seen += 1;
    }
    assert_eq!(seen, 32, "the elastic threshold held the second one back");
    assert!(world.device.complete(0));
    world.producer.poll().unwrap();
    while world.device.land(0, false) {}
    while world.receive().unwrap() {
        seen += 1;
    }
    assert_eq!(seen, 64);
}

#[test]
fn polling_messages_is_refused_where_placement_has_no_order() {
    let device = ModelDevice::new(Placement::Unordered);
    for design in [Design::FARM, Design::MVAPICH] {
        let config = RingConfig::for_messages(design, 40);
        let error = UnconnectedProducer::new(&device, &config).unwrap_err();
        assert!(error.to_string().contains("address order"), "{error}");
        assert!(UnconnectedConsumer::new(&device, &config).is_err());
        // What the error says instead.
        let tail_sync = TailSync::PollLength;
        let config = RingConfig::for_messages(
            Design {
                tail_sync,
                ..design
            },
            40,
        );
        UnconnectedProducer::new(&device, &config).unwrap();
    }
}

/// A batch that runs over the end of the array is two WRITEs, of which the first may be the one in many that is
/// signaled. Its completion says nothing of the second, whatever the consumer says that it has read.
#[test]
fn a_slot_is_not_filled_again_while_the_device_reads_it() {
    const SLOTS: u64 = 128;
    let mut design = Design::RB2;
    design.batching = dunlin_ring::Batching::Adaptive {
        advance_slots: 32,
        transmit_slots: 8,
        sync_ahead: true,
        elastic: false,
    };
    let config = RingConfig::for_records(design, 64);
    assert_eq!(config.slots as u64, SLOTS);
    let mut random = fastrand::Rng::with_seed(5);
    let mut first_alone = 0;
    for _ in 0..500 {
        let mut world = World::new(&config, Placement::InOrder);
        // One message makes two requests, and nine make three, so that the first piece is any one of those between two
        // that are signaled.
        while world.sent < SLOTS - 2 {
            let messages = if random.u8(0..8) == 0 { 9 } else { 1 };
            for _ in 0..messages.min(SLOTS - 2 - world.sent) {
                world.send(true).unwrap();
            }
            world.producer.flush().unwrap();
            world.device.settle();
            while world.receive().unwrap() {}
        }
        world.consumer.push().unwrap();
        world.drain().unwrap();
        // Two slots at the end and two at the start, of 128 bytes each: more than goes inline.
        for _ in 0..4 {
            world.send(true).unwrap();
        }
        world.producer.flush().unwrap();
        assert_eq!(world.device.pending(0), 3, "two pieces and the tail");
        world.device.land(0, false);
        first_alone += usize::from(world.device.complete(0));
        // The first region is the producer's inlet, which begins with the consumer's head.
        world.device.write_word(0, 0, world.sent);
        loop {
            match world.producer.try_send_with(64, |place| place.fill(7)) {
                Ok(()) => world.sent += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let taken = world.sent - SLOTS;
        assert!(taken < SLOTS, "the first slot while it is read");
    }
    assert!(first_alone > 0, "no first piece was signaled");
}

/// A full ring is not an idle one: its last messages wait for those that are to come with them, but not for ever.
#[test]
fn part_of_a_batch_waits_for_room_but_not_for_long() {
    let device = ModelDevice::new(Placement::InOrder);
    let design = Design::RB2.without(dunlin_ring::Optimisation::Elastic);
    let (mut producer, _consumer) =
        ring_over(&device, &device, &RingConfig::for_records(design, 40));
    while producer.try_send(&[1; 40]).is_ok() {}
    while device.land(0, false) {}
    assert!(!producer.is_flushed(), "127 messages are no whole batches");
    for _ in 0..10 {
        producer.poll().unwrap();
    }
    assert!(
        !device.land(0, false),
        "the consumer has three batches to read"
    );
    for _ in 0..100 {
        producer.poll().unwrap();
    }
    assert!(producer.is_flushed() && device.land(0, false));
}

/// How many requests a design makes for 32 messages: what batching is for.
#[test]
fn rb2_makes_three_requests_for_thirty_two_messages() {
    let requests = |design: Design| {
        let device = ModelDevice::new(Placement::InOrder);
        let (mut producer, _consumer) =
            ring_over(&device, &device, &RingConfig::for_records(design, 40));
        for _ in 0..32 {
            producer.try_send(&[1; 40]).unwrap();
        }
        let mut count = 0;
        while device.land(0, false) {
            count += 1;
        }
        count
    };
    assert_eq!(requests(Design::RB2), 3);
    assert_eq!(
        requests(Design::RB2.without(dunlin_ring::Optimisation::SyncAhead)),
        2
    );
    assert_eq!(
        requests(Design::RB2.without(dunlin_ring::Optimisation::Batching)),
        64
    );
    assert_eq!(requests(Design::L5), 64);
    assert_eq!(requests(Design::FARM), 32);
    assert_eq!(requests(Design::FARM_UNORDERED), 64);
    assert_eq!(requests(Design::MVAPICH), 32);
    // Ten under way, and nothing completes: the rest waits.
    assert_eq!(requests(Design::SOCKSDIRECT), 10);
    let mut pulled = Design::RB2;
    pulled.head_sync = HeadSync::LazyPull;
    // After γ slots the head is READ, unless that is left to the full ring.
    assert_eq!(requests(pulled), 4);
    pulled.push_slots = u32::MAX;
    assert_eq!(requests(pulled), 3);
}
