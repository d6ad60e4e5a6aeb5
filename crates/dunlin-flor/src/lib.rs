//! Flor (Li et al., OSDI '23): the data path remains in the NIC, the control path is software above its queue pairs.
//!
//! A *logical connection* consists of a primary queue pair, backups and a queue pair for acknowledgements. Messages are
//! split into chunks ([`chunking`]), each of which is one work request with a number ([`number`]). The peer
//! acknowledges the numbers ([`ack`]), and what is not acknowledged is retransmitted ([`reliability`]). Measured round
//! trips ([`round_trip`]) determine the size of the chunks, the timeouts and the window ([`congestion`]).
//!
//! All modules except [`logical`] and [`device`] are state machines over values: events and times go in, actions and
//! deadlines come out. [`logical`] drives them over the queue pairs of a device, without a clock or a thread;
//! [`device`] makes queue pairs of these connections, as a device of its own. Times are nanoseconds of any monotonic
//! clock. `docs/flor.md` lists what the paper describes, where it is here, and what is not met.
// `Device::register_raw` is forwarded, with its contract.
#![deny(unsafe_code)]

pub mod ack;
pub mod chunking;
pub mod congestion;
pub mod connection;
pub mod device;
pub mod effort;
mod ledger;
pub mod logical;
pub mod number;
pub mod receiver;
pub mod reliability;
pub mod round_trip;
pub mod wire;
