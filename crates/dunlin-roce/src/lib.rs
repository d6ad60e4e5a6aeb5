//! The RoCEv2 device of Dunlin: a software RNIC for hosts that have none, in the wire format of the standard.
//!
//! From the bottom up: [`packet`] is bytes and values; [`reliable`] and [`unreliable`] are the protocols of RC and UC
//! as state machines without sockets and clocks; the socket sends and receives trains of packets by the kernel's own
//! segmentation; an engine for each queue pair joins a protocol with posted requests and completions; the port brings
//! packets and deadlines to the engines, called by whoever polls a completion queue, or by the device's thread while
//! nobody does. [`RoceDevice`] and what it makes are the verbs of `dunlin-verbs` on top.

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
