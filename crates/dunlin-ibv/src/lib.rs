//! The device of Dunlin for real RNICs: libibverbs, opened at run time.
//!
//! A binary with this crate runs where rdma-core is absent: [`IbvDevice::open`] says so in an error, and nothing else
//! is touched. Where it is present, [`IbvConfig`] chooses device, port, GID and limits by itself, and each choice can
//! be overridden. Everything here stands on the kernel's soft-RoCE as well, which is how it is tested (`tests/vm`).
//!
//! The rooms: `sys` is the library's ABI; `context` an open device and the thread for its asynchronous events; `port`
//! and `gid` choose; one file each for the objects of the wall. `work_table` is what lies between them: it turns the
//! ids of work requests into entries that a completion finds again, so that send queues are accounted for as the wall
//! promises, whatever the provider does.

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
