//! RC as state machines: packets and time go in, packets and the next deadline come out (IBTA vol. 1 §9.7).
//!
//! A queue pair has a [`Requester`] for its own work requests and a [`Responder`] for those of its peer. Neither has a
//! socket, a clock or a thread. Times are nanoseconds of any monotonic clock.

mod inflight;
mod recovery;
mod request;
mod requester;
mod responder;
mod responses;
mod target;

pub use recovery::PeerRoundTrip;
pub use request::{Finished, PostError, ReadPlacement, Request, Transmit, Verb};
pub use requester::{Requester, RequesterConfig, MAX_MESSAGE_BYTES};
pub use responder::{Responder, ResponderConfig, Verdict};
pub use responses::{Response, ResponsePayload};
pub use target::{AccessError, Delivered, Target};

/// Number of packets of a message of `bytes`: at least one.
fn packets_of(bytes: u32, mtu_bytes: u32) -> u32 {
    bytes.div_ceil(mtu_bytes).max(1)
}
