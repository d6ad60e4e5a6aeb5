//! Work requests: what is posted to a queue pair.

use crate::memory::{Region, RemoteAddress};

bitflags::bitflags! {
    /// Options for the execution and reporting of a work request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Generates a completion even on success; failures always do.
        const SIGNALED = 1;
        /// Wakes a peer that has requested events for solicited completions only.
        const SOLICITED = 1 << 1;
        /// Starts only after all READs and atomics before it have completed.
        const FENCE = 1 << 2;
    }
}

/// A piece of a registered region.
#[derive(Debug)]
pub struct Segment<'a, R: Region> {
    /// The region: borrowed while the request is posted, and held by the device until the completion.
    pub region: &'a R,
    /// Offset of the first byte in the region.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

impl<R: Region> Clone for Segment<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region> Copy for Segment<'_, R> {}

/// The data of a work request.
#[derive(Debug)]
pub enum Payload<'a, R: Region> {
    /// Inline in the request, copied at post time; at most [`crate::DeviceAttributes::max_inline_bytes`]. Not for READ
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
    /// Total length in bytes.
    pub fn length(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Segments(segments) => segments.iter().map(|s| s.length).sum(),
        }
    }
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Two-sided message into the peer's next RECEIVE, with or without 32 bits of immediate data.
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
    /// Replaces 8 bytes at the peer if they equal `compare`; returns the old value in either case.
    CompareAndSwap {
        /// The 8 bytes, aligned.
        remote: RemoteAddress,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds to 8 bytes at the peer, wrapping; returns the old value.
    FetchAndAdd {
        /// The 8 bytes, aligned.
        remote: RemoteAddress,
        /// Summand.
        add: u64,
    },
}

/// The destination of a datagram.
#[derive(Debug)]
pub struct Destination<'a, H> {
    /// Handle made by [`crate::Device::create_address_handle`].
    pub handle: &'a H,
    /// Number of the destination's UD queue pair.
    pub queue_pair: u32,
    /// Queue key that the destination's queue pair requires.
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
    /// The operation.
    pub operation: Operation,
    /// The data.
    pub payload: Payload<'a, R>,
    /// Signalling and ordering.
    pub flags: SendFlags,
    /// The destination; required for UD, and must be `None` otherwise.
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

/// One request for a receive queue, for a message or only for a completion.
#[derive(Debug)]
pub struct ReceiveRequest<'a, R: Region> {
    /// Returned in the completion.
    pub id: u64,
    /// The buffer, in segments; may be empty if only WRITE with immediate is expected.
    pub segments: &'a [Segment<'a, R>],
}

impl<R: Region> Clone for ReceiveRequest<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Region> Copy for ReceiveRequest<'_, R> {}
