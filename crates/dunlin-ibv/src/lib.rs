//! The device `ibv`: real RNICs through libibverbs, which is opened at run time.
//!
//! A binary with this crate also runs where rdma-core is missing: [`IbvDevice::open`] then returns an error, and
//! nothing else is affected. Where it is present, [`IbvConfig`] chooses device, port, GID and limits by itself, and
//! each choice can be overridden. Everything here also runs on the kernel's soft-RoCE, on which it is tested
//! (`tests/vm`).
//!
//! Modules: `sys` is the library's ABI; `context` is an open device; `port` and `gid` choose the port and its address;
//! the objects of the verbs layer have one file each. `work_table` connects work requests with their completions: it
//! replaces the ids of requests by entries that a completion finds again, so that the accounting of send queues is as
//! the verbs layer promises, whatever the provider does.

mod address;
mod cache;
mod channel;
mod clock;
mod completion_queue;
mod config;
mod context;
mod device;
mod error;
mod events;
#[cfg(test)]
mod extended_tests;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod follow_tests;
mod gid;
#[cfg(test)]
mod handle_tests;
mod last_receive;
mod limits;
mod link;
mod list;
mod placement;
mod poller;
mod port;
mod queue_pair;
mod region;
mod shared_receive;
#[cfg(test)]
mod shared_tests;
mod status;
pub mod sys;
mod timers;
mod work_table;

pub use address::IbvAddressHandle;
pub use cache::{CacheFigures, Registered, RegistrationCache};
pub use channel::IbvCompletionChannel;
pub use completion_queue::IbvCompletionQueue;
pub use config::IbvConfig;
pub use device::{IbvDevice, IbvProtectionDomain};
pub use gid::{choose_gid, GidEntry, GidKind};
pub use list::{list, list_with, Listed};
pub use placement::PlacementReason;
pub use port::PortReport;
pub use queue_pair::IbvQueuePair;
pub use region::IbvRegion;
pub use shared_receive::IbvSharedReceiveQueue;
