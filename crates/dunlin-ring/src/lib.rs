//! RB²: the distributed ring buffer between one producer and one consumer, over any device.
//!
//! There are two arrays of equal slots, one on each side. The producer makes messages in its own array and WRITEs them
//! to the same slots of the other, where the consumer reads them. The sides also exchange pointers: the tail follows
//! the messages, and the head is sent back. How the pointers are synchronised, how messages are laid out, and when they
//! are sent are choices of a [`Design`]. RB² is one point in that space, and the rings that it was compared with are
//! others, so that all of them share the same code.
//!
//! ```text
//! application -> Producer -> policy::Sender (pointers, adaptive batching) -> memory::Mirror -> Link -> queue pair
//!                                                                                              |  WRITE slots, WRITE tail
//! application <- Consumer <- policy::Receiver (pointers, lazy push)      <- memory::Inbound <--+
//! ```
//!
//! Both ends are state machines: they do what can be done now, never sleep, and have no clock. Nothing on the path of a
//! message allocates, locks or makes a system call. `docs/rb2.md` lists the paper's terms beside ours.
//!
//! ```
//! use dunlin_ring::{Received, RingConfig, UnconnectedConsumer, UnconnectedProducer};
//! use dunlin_shm::{ShmConfig, ShmDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = RingConfig::default();
//! // Both ends in one process here; in two, the offers cross by any means.
//! let producer = UnconnectedProducer::new(&ShmDevice::open(ShmConfig::default())?, &config)?;
//! let consumer = UnconnectedConsumer::new(&ShmDevice::open(ShmConfig::default())?, &config)?;
//! let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
//! let mut producer = producer.connect(&to_producer)?;
//! let mut consumer = consumer.connect(&to_consumer)?;
//!
//! producer.try_send(b"copied into the ring")?;
//! producer.try_send_with(7, |place| place.copy_from_slice(b"made in"))?;
//! producer.flush()?;
//! let mut heard = Vec::new();
//! while heard.len() < 2 {
//!     if let Received::Message(text) = consumer.receive(|message| message.to_vec())? {
//!         heard.push(text);
//!     }
//!     producer.poll()?;
//! }
//! assert_eq!(heard, [&b"copied into the ring"[..], b"made in"]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]
// `--cfg loom` is for the model checker; the workspace's lints do not declare it.
#![allow(unexpected_cfgs)]

mod config;
mod connect;
mod consumer;
mod cores;
mod design;
mod effort;
mod error;
mod framing;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
mod link;
mod memory;
mod offer;
mod policy;
mod producer;
mod stream;
mod words;

pub use config::{RingConfig, LINE_BYTES};
pub use connect::{UnconnectedConsumer, UnconnectedProducer};
pub use consumer::{Arrived, Consumer, ConsumerCore, Received};
pub use cores::{
    UnconnectedConsumerCore, UnconnectedProducerCore, FREE_BYTES, PRODUCER_WORDS_BYTES,
};
pub use design::{Batching, Design, HeadSync, Layout, Optimisation, TailSync};
pub use error::{ConfigError, LengthLimit, RingError, SendError, Violation};
pub use framing::Framing;
pub use link::{Polled, Request, RingLink, NAMELESS};
pub use memory::Message;
pub use offer::{Offer, OFFER_BYTES, OFFER_NUMBERS};
pub use producer::{Producer, ProducerCore, Reservation};
pub use stream::{stream_config, Stream, StreamOffer, UnconnectedStream, STREAM_OFFER_BYTES};

/// The cost of posting a request to a simulated core, for implementations of [`RingLink`].
#[doc(hidden)]
pub const POST_EFFORT: dunlin_verbs::Work = effort::REQUEST;
/// The cost of taking completions, likewise.
#[doc(hidden)]
pub const COMPLETION_EFFORT: dunlin_verbs::Work = effort::COMPLETED;
