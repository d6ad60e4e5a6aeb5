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
pub(crate) use codec::{encode_header, padding_of};
pub use header::{
    Acknowledgement, AtomicTarget, Header, Operation, Refusal, RemoteRange, Service, Syndrome,
    BASE_BYTES, DEFAULT_PARTITION_KEY, MAX_HEADER_BYTES,
};
pub use icrc::{
    icrc, icrc_agrees, is_icrc_omitted, mark_icrc_omitted, Envelope, Network, ICRC_BYTES,
};
pub use psn::{Psn, PSN_COUNT};

/// The least path MTU, in bytes.
pub const MIN_MTU_BYTES: u32 = 256;
/// The largest payload of one packet, in bytes, between two devices that agree on more than the 4096 of the standard:
/// what a UDP datagram holds, in whole pages.
pub const MAX_PAYLOAD_BYTES: u32 = 56 << 10;
/// In steps of so many bytes.
pub(crate) const PAYLOAD_STEP_BYTES: usize = 64;

/// The longest payload within so many bytes.
pub(crate) fn whole_payload_steps(bytes: usize) -> usize {
    bytes - bytes % PAYLOAD_STEP_BYTES
}
