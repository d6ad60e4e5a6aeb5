//! The device `shm`: a software RNIC between processes of one host, over shared memory.
//!
//! Regions are sealed memory files, which a peer maps when they are granted to it. One-sided verbs are loads, stores
//! and atomics of the initiating thread on that mapping: as on hardware, the peer's processor takes no part. Messages
//! are passed through a *port*, a ring in the receiver's memory that its single connected peer may write. Descriptors
//! are passed over unix sockets, which also reveal the death of a peer; they are served by one *control thread* per
//! device, which sleeps when there is nothing to do.
//!
//! Memory that a peer can write is never trusted: values are read once, checked, then used, and the owner keeps nothing
//! that it relies on in such memory.
//!
//! What differs from hardware:
//! - completions of RECEIVEs are generated when their queue is polled, so they cannot overrun it;
//! - with a shared receive queue the receiver matches messages to RECEIVEs when it polls: the sender's SEND completes
//!   while the message waits, and an empty queue causes back-pressure, not a receiver-not-ready error;
//! - a connected queue pair whose peer process dies goes to the error state at once, even when it is idle;
//! - a SEND to a full port waits until the receiver polls, however many RECEIVEs are posted;
//! - a request that cannot be finished when it is posted (the first use of a key, a receiver that is not ready) is
//!   copied to the heap: only requests that are executed at once are free of allocation.
// `--cfg loom` is for the model checker; the workspace's lints do not declare it.
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
