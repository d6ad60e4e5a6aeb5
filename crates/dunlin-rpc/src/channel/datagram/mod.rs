//! The datagram channel of FaSST (§4): SENDs over UD, one queue pair per thread, for any peers.
//!
//! An [`endpoint::Endpoint`] is a queue pair with its RECEIVEs and the sessions that use it: one for each peer that
//! completed the handshake. A [`packet`] carries several messages to one peer; packets for any number of peers are
//! posted with one doorbell. There are no acknowledgements and no retransmissions: a response shows that its request
//! arrived, and the client asks for the state of a call without one ([`fate`]).
//!
//! That is the protocol of `fasst`. With that of eRPC ([`driven`]) each packet is answered and lost ones are
//! retransmitted.
//!
//! A receive queue is never overrun: a session has at most [`CALLS`] calls outstanding, each with at most one packet in
//! flight, and the queue has RECEIVEs for those of all its sessions.

pub(crate) mod connect;
pub(crate) mod driven;
pub(crate) mod endpoint;
pub(crate) mod fate;
mod growing;
pub(crate) mod packet;
mod receives;
pub(crate) mod segments;
mod sends;
pub(crate) mod spare;
pub(crate) mod written;

pub(crate) use connect::{Greeting, UnconnectedSession};
pub(crate) use endpoint::{Endpoint, Shared};

/// The protocol of a session with respect to lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// No retransmission: the calls in them end with an error (`fasst`).
    Bare,
    /// They are retransmitted, under credits and rate control (`erpc`).
    Driven,
    /// As [`Protocol::Bare`], but short requests are WRITTEN over UC (`herd`).
    Written,
}

/// Maximum number of outstanding calls of a session: its credits.
pub(crate) const CALLS: usize = 32;
/// Number of RECEIVEs that a session needs in addition: for segments of a long message, reports about segments,
/// questions about lost calls, and those taken from the queue but not reposted yet.
pub(crate) const BESIDE_CALLS: usize = 32;
/// Maximum size of datagrams, whatever the device's path allows.
pub(crate) const PACKET_BYTES_MAX: usize = 4096;
/// Their minimum size.
pub(crate) const PACKET_BYTES_MIN: usize = 256;
