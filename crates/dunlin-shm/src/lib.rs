//! The shared-memory device of Dunlin: a software RNIC between processes of one host.
//!
//! Regions are sealed memory files that a peer maps when it was granted them. One-sided verbs are loads, stores and
//! atomics of the initiating thread on that mapping: as on hardware, the other side's processor has no part in it.
//! Messages cross in a *port*, a ring in memory of the receiver that its one connected peer may write. Descriptors, and
//! the news that a peer died, travel over a unix socket that one *control thread* per device serves; it sleeps when
//! there is nothing to do.
//!
//! What a peer can write is never trusted: it is read once, checked, then used, and nothing that the owner relies on is
//! kept in memory that the peer may write.
//!
//! What differs from hardware:
//! - completions of RECEIVEs are made when their queue is polled, so they cannot overrun it;
//! - with a shared receive queue the receiver matches messages to RECEIVEs when it polls: the sender's SEND completes
//!   while the message waits, and an empty queue is back-pressure, not a receiver-not-ready error;
//! - a connected queue pair whose peer process dies goes to error at once, also when it is idle;
//! - a SEND to a port without room waits, however many RECEIVEs are posted, until the receiver polls;
//! - a request that cannot be finished when it is posted (the first use of a key, a receiver that is not ready) is
//!   copied to the heap: only requests that are carried out at once are free of allocation.
// `--cfg loom` is for the model checker; the workspace's lints do not know it.
#![allow(unexpected_cfgs)]

mod channel;
mod closer;
mod completion_queue;
mod completion_ring;
mod config;
mod control;
mod core;
mod descriptors;
mod destinations;
mod device;
#[cfg(any(feature = "fuzzing", all(test, not(loom))))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod handover;
mod heap;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
mod mapping;
mod port;
mod queue_pair;
mod receive;
mod region;
mod region_table;
mod shared_receive;
#[cfg(all(test, not(loom)))]
mod silence_tests;
mod sync;
#[cfg(all(test, not(loom)))]
mod turn_tests;
mod wake;

pub use channel::ShmCompletionChannel;
pub use completion_queue::ShmCompletionQueue;
pub use config::ShmConfig;
pub use control::message::{Message, MessageError, MESSAGE_BYTES};
pub use device::{ShmAddressHandle, ShmDevice, ShmProtectionDomain};
pub use queue_pair::{MappedRegion, ShmQueuePair};
pub use region::ShmRegion;
pub use shared_receive::ShmSharedReceiveQueue;

pub(crate) use mapping::system;
