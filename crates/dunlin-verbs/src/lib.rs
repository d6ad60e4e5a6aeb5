//! The verbs layer, between Dunlin and its devices: traits and types for RDMA verbs in Rust.
//!
//! All code above this crate uses an RDMA NIC through these traits and does not know which NIC it is: real hardware, a
//! software NIC over shared memory, one over UDP, or a simulated one. [`DeviceAttributes`] states where devices differ,
//! and code above bases its decisions on those attributes alone.
//!
//! The path of a message: a [`Device`] creates a protection domain, memory [`Region`]s, a [`CompletionQueue`] and a
//! [`QueuePair`]. Two queue pairs exchange their [`EndpointAddress`]es by any means and are moved to *ready to send*.
//! [`QueuePair::post_send`] passes a list of work requests to the device with one doorbell, and
//! [`CompletionQueue::poll`] reports their outcome.
//!
//! # Memory safety
//!
//! Registered memory is written by other machines, so safe code never sees it as `&[u8]`: it reads and writes it
//! through [`Memory`], by copies and atomics. A region is owned by its device object and is deregistered before it is
//! unmapped, so a work request that outlives its region completes with an error and never touches freed memory. Memory
//! that the device does not own is registered by [`Device::register_raw`], which is `unsafe`.
#![deny(unsafe_code)]

mod attributes;
mod charge;
mod completion;
#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod error;
mod mapped;
mod memory;
#[allow(unsafe_code)]
mod pages;
mod polling;
mod prefetch;
pub mod process;
pub mod progress;
mod queue_pair;
pub mod random;
mod rate;
pub mod software;
mod state;
pub mod thread;
mod work;

pub use attributes::{DeviceAttributes, PageKind, Placement, TransportSet, Verbs};
pub use charge::Work;
pub use completion::{
    Completion, CompletionChannel, CompletionOpcode, CompletionQueue, CompletionStatus, Notify,
};
pub use device::{AsyncEvent, Device, PeerConfirmation, Simulation};
pub use error::{within, CompletionQueueError, PostError, PostErrorKind, VerbsError};
pub use mapped::{NotMapped, PeerMemory, PeerSource};
pub use memory::{
    copy_in_order, copy_lines, copy_lines_first_word_last, Access, AnyRegion, LocalKey, Memory,
    Region, RemoteAddress, RemoteKey,
};
pub use pages::{best_pages, Pages, PagesWanted};
pub use prefetch::{prefetch_to_read, prefetch_to_write};
pub use queue_pair::{
    Aborter, ConnectAttributes, EndpointAddress, QueuePair, QueuePairConfig, ReceiveQueue,
    SharedReceiveQueue, Transport, ENDPOINT_ADDRESS_BYTES,
};
pub use rate::RateLimit;
pub use state::QueuePairState;
pub use work::{Destination, Operation, Payload, ReceiveRequest, Segment, SendFlags, SendRequest};

/// Length of the InfiniBand global routing header, which precedes every datagram in a receive buffer of a UD queue
/// pair.
pub const GRH_BYTES: usize = 40;
