//! Work requests: what is handed to a queue pair.

use crate::memory::{Region, RemoteAddress};

bitflags::bitflags! {
    /// How a work request is carried out and reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Completes with an entry in the completion queue even when it succeeds; failures always do.
        const SIGNALED = 1;
        /// Wakes a peer that asked for solicited completions only.
        const SOLICITED = 1 << 1;
        /// Starts only after all READs and atomics before it have completed.
        const FENCE = 1 << 2;
    }
}

/// A piece of a registered region.
#[derive(Debug)]
pub struct Segment<'a, R: Region> {
    /// The region; borrowed for the post, held by the device until the completion.
    pub region: &'a R,
    /// First byte, counted from the region's start.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

impl<R: Region> Clone for Segment<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region> Copy for Segment<'_, R> {}

/// Where the bytes of a work request are.
#[derive(Debug)]
pub enum Payload<'a, R: Region> {
    /// In the request itself, copied at post time; at most [`crate::DeviceAttributes::max_inline_bytes`]. Not for READ
    /// or atomics.
    Inline(&'a [u8]),
    /// In registered memory: gathered for SEND and WRITE, scattered for READ. Atomics put the old value into one
    /// segment of 8 bytes.
    Segments(&'a [Segment<'a, R>]),
}

impl<R: Region> Clone for Payload<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region> Copy for Payload<'_, R> {}

impl<R: Region> Payload<'_, R> {
    /// Bytes in all.
    pub fn length(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Segments(segments) => segments.iter().map(|s| s.length).sum(),
        }
    }
}

/// The verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Two-sided message into the peer's next RECEIVE, with 32 bits of immediate data or without.
    Send {
        /// Delivered in the peer's completion.
        immediate: Option<u32>,
    },
    /// One-sided write. With immediate data it also consumes a RECEIVE at the peer and completes there.
    Write {
        /// First byte at the peer.
        remote: RemoteAddress,
        /// Delivered in the peer's completion.
        immediate: Option<u32>,
    },
    /// One-sided read.
    Read {
        /// First byte at the peer.
        remote: RemoteAddress,
    },
    /// Replaces 8 bytes at the peer when they equal `compare`; the old value comes back either way.
    CompareAndSwap {
        /// The 8 bytes, aligned.
        remote: RemoteAddress,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds to 8 bytes at the peer, wrapping; the old value comes back.
    FetchAndAdd {
        /// The 8 bytes, aligned.
        remote: RemoteAddress,
        /// Summand.
        add: u64,
    },
}

/// Where a datagram goes.
#[derive(Debug)]
pub struct Destination<'a, H> {
    /// Handle made by [`crate::Device::create_address_handle`].
    pub handle: &'a H,
    /// Number of the UD queue pair there.
    pub queue_pair: u32,
    /// Key that the queue pair there asks for.
    pub queue_key: u32,
}

impl<H> Clone for Destination<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for Destination<'_, H> {}

/// One request for the send queue.
#[derive(Debug)]
pub struct SendRequest<'a, R: Region, H> {
    /// Returned in the completion.
    pub id: u64,
    /// The verb.
    pub operation: Operation,
    /// The bytes.
    pub payload: Payload<'a, R>,
    /// Signalling and ordering.
    pub flags: SendFlags,
    /// For UD, and for UD only.
    pub destination: Option<Destination<'a, H>>,
}

impl<R: Region, H> Clone for SendRequest<'_, R, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region, H> Copy for SendRequest<'_, R, H> {}

impl<'a, R: Region, H> SendRequest<'a, R, H> {
    /// A request on a connected transport.
    pub fn new(id: u64, operation: Operation, payload: Payload<'a, R>, flags: SendFlags) -> Self {
        Self {
            id,
            operation,
            payload,
            flags,
            destination: None,
        }
    }
}

/// One request for a receive queue: where a message, or only its completion, is to go.
#[derive(Debug)]
pub struct ReceiveRequest<'a, R: Region> {
    /// Returned in the completion.
    pub id: u64,
    /// The buffer, in pieces; may be empty when only WRITE with immediate is expected.
    pub segments: &'a [Segment<'a, R>],
}

impl<R: Region> Clone for ReceiveRequest<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region> Copy for ReceiveRequest<'_, R> {}
