//! The wall between Dunlin and its devices: the vocabulary of verbs, spelled out in Rust.
//!
//! Everything above this crate speaks to an RDMA NIC in these words and never learns which NIC it is: real hardware, a
//! software NIC over shared memory, one over UDP, or a simulated one. What devices differ in stands in
//! [`DeviceAttributes`], and code above decides from those attributes alone.
//!
//! The path of one message: a [`Device`] gives a protection domain, memory [`Region`]s, a [`CompletionQueue`] and a
//! [`QueuePair`]; two queue pairs exchange their [`EndpointAddress`]es by any means and are moved to *ready to send*;
//! [`QueuePair::post_send`] hands a list of work requests to the device with one doorbell, and
//! [`CompletionQueue::poll`] says what became of them.
//!
//! # Memory safety
//!
//! Registered memory is written by other machines, so safe code never sees it as `&[u8]`: it reads and writes through
//! [`Memory`], by copies and atomics. A region is owned by its device object and is deregistered before it is unmapped,
//! so a work request that outlives its region completes with an error and never touches freed memory. Registering
//! memory that the device does not own is [`Device::register_raw`], and `unsafe`.
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

/// Bytes in front of every datagram in a receive buffer of a UD queue pair: the global routing header of InfiniBand.
pub const GRH_BYTES: usize = 40;
