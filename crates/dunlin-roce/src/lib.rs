//! The device `roce`: a software RNIC for hosts without one, in the wire format of RoCEv2.
//!
//! From the bottom up: [`packet`] converts between bytes and values; [`reliable`] and [`unreliable`] are the protocols
//! of RC and UC as state machines without sockets and clocks. The socket sends and receives trains of packets, using
//! the kernel's segmentation offload. An engine for each queue pair connects a protocol with posted requests and
//! completions. The port passes packets and deadlines to the engines; it is called by threads that poll a completion
//! queue, or by the device's thread while nobody does. On top, [`RoceDevice`] and its objects implement the traits of
//! `dunlin-verbs`.

#![deny(unsafe_code)]

pub mod packet;
pub mod reliable;
pub mod unreliable;

mod address;
mod channel;
mod completion_queue;
mod config;
mod core;
mod device;
mod engine;
// Pages, and copies into memory that others write.
#[allow(unsafe_code)]
mod memory;
mod port;
mod postponed;
mod queue_pair;
mod region;
mod shared_receive;
mod socket;
mod sync;
mod timers;
mod work;

pub use address::RoceAddressHandle;
pub use channel::RoceCompletionChannel;
pub use completion_queue::RoceCompletionQueue;
pub use config::{RoceConfig, ROCE_PORT};
pub use device::{RoceDevice, RoceProtectionDomain};
pub use queue_pair::RoceQueuePair;
pub use region::RoceRegion;
pub use shared_receive::RoceSharedReceiveQueue;
pub use socket::{Count, COUNTS};
