//! RoCEv2 packets: pure functions between bytes and values, without sockets and without state.
//!
//! A datagram's payload is a packet and its invariant CRC. [`parse`] and [`encode`] handle the packet, [`icrc()`] the
//! CRC; the state machines of a connection's two ends are above them, the sockets below.

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

/// The minimum path MTU in bytes.
pub const MIN_MTU_BYTES: u32 = 256;
/// The maximum payload of a packet in bytes between two devices that agree on more than the standard's 4096: what fits
/// in a UDP datagram, in whole pages.
pub const MAX_PAYLOAD_BYTES: u32 = 56 << 10;
/// Payloads beyond the standard's sizes are multiples of this many bytes.
pub(crate) const PAYLOAD_STEP_BYTES: usize = 64;

/// The longest payload of at most this many bytes.
pub(crate) fn whole_payload_steps(bytes: usize) -> usize {
    bytes - bytes % PAYLOAD_STEP_BYTES
}
