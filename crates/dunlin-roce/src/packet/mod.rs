//! Packets of RoCEv2: pure functions between bytes and values, without sockets and without state.
//!
//! A datagram's payload is a packet and its invariant CRC. [`parse`] and [`encode`] are for the packet, [`icrc()`] is
//! for the CRC; both ends of a connection's state machines stand above them, the sockets below.

mod codec;
mod header;
mod icrc;
mod psn;
pub mod timer;

pub use codec::{encode, parse, PacketError};
pub use header::{
    Acknowledgement, AtomicTarget, Header, Operation, Refusal, RemoteRange, Service, Syndrome,
    BASE_BYTES, DEFAULT_PARTITION_KEY, MAX_HEADER_BYTES,
};
pub use icrc::{
    icrc, icrc_agrees, is_icrc_omitted, mark_icrc_omitted, Envelope, Network, ICRC_BYTES,
};
pub use psn::{Psn, PSN_COUNT};
