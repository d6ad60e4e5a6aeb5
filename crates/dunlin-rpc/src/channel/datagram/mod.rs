//! The datagram channel of FaSST (§4): SENDs over UD, one queue pair for each thread, whoever the peers are.
//!
//! An [`endpoint::Endpoint`] is a queue pair with its RECEIVEs, and the sessions that use it: one for each peer that
//! made the handshake. A [`packet`] carries several messages to one peer; packets for any number of peers leave with
//! one doorbell. Nothing is acknowledged and nothing is sent twice: an answer says that its request arrived, and a call
//! without one is asked about ([`fate`]).
//!
//! That is the protocol of `fasst`. With that of eRPC ([`driven`]) each packet is answered and lost ones are sent
//! again.
//!
//! Nobody overruns a receive queue: a session has [`CALLS`] calls out at most, each of which is one packet on its way
//! or less, and the queue has RECEIVEs for those of all its sessions.

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

use crate::channel::Parameters;

pub(crate) use connect::{Greeting, UnconnectedSession};
pub(crate) use endpoint::{Endpoint, Shared};

/// What a session does about packets that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Nothing is sent twice: the calls in them end with an error (`fasst`).
    Bare,
    /// They are sent again, under credits and a rate (`erpc`).
    Driven,
    /// As [`Protocol::Bare`], but short requests are WRITTEN over UC (`herd`).
    Written,
}

/// Calls of a session that are out at most: its credits.
pub(crate) const CALLS: usize = 32;
/// RECEIVEs that a session needs beyond those: segments of a long message, words about segments, questions about lost
/// calls, and what is taken from the queue but not posted again yet.
pub(crate) const BESIDE_CALLS: usize = 32;
/// Datagrams are no longer than this, whatever the device's path takes.
pub(crate) const PACKET_BYTES_MAX: usize = 4096;
/// And no shorter.
pub(crate) const PACKET_BYTES_MIN: usize = 256;
