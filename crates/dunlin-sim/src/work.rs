//! Work requests as stored in the NIC.

use dunlin_verbs::{CompletionOpcode, SendFlags};

use crate::event::Ps;

/// A segment: a range of a region of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seg {
    pub(crate) key: u32,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

/// Segments in order; two without an allocation, as most requests have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segs {
    near: [Seg; 2],
    far: Option<Box<[Seg]>>,
    count: u8,
}

impl Segs {
    pub(crate) fn new(mut all: impl ExactSizeIterator<Item = Seg>) -> Self {
        let mut segs = Self {
            count: all.len() as u8,
            ..Self::default()
        };
        if all.len() <= 2 {
            for place in &mut segs.near[..all.len()] {
                *place = all.next().expect("as many as it said");
            }
        } else {
            segs.far = Some(all.collect());
        }
        segs
    }

    #[inline]
    pub(crate) fn all(&self) -> &[Seg] {
        match &self.far {
            Some(far) => far,
            None => &self.near[..usize::from(self.count)],
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.all().iter().map(|seg| u64::from(seg.length)).sum()
    }

    /// Calls `visit` with region key, offset in the region and length for each segment of `length` bytes from `offset`.
    #[inline]
    pub(crate) fn for_range(&self, offset: u64, length: u64, mut visit: impl FnMut(u32, u64, u64)) {
        let (mut skip, mut left) = (offset, length);
        for seg in self.all() {
            if left == 0 {
                return;
            }
            let held = u64::from(seg.length);
            if skip >= held {
                skip -= held;
                continue;
            }
            let part = (held - skip).min(left);
            visit(seg.key, seg.offset + skip, part);
            (skip, left) = (0, left - part);
        }
    }
}

/// The verb of a request in the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    Write,
    Read,
    CompareAndSwap,
    FetchAndAdd,
}

impl Verb {
    /// Whether it is answered with data, and limited in number.
    #[inline]
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::CompareAndSwap | Self::FetchAndAdd)
    }

    pub(crate) fn opcode(self) -> CompletionOpcode {
        match self {
            Self::Send => CompletionOpcode::Send,
            Self::Write => CompletionOpcode::Write,
            Self::Read => CompletionOpcode::Read,
            Self::CompareAndSwap => CompletionOpcode::CompareAndSwap,
            Self::FetchAndAdd => CompletionOpcode::FetchAndAdd,
        }
    }
}

/// Bytes contained in the request itself.
#[derive(Clone, Debug)]
pub(crate) enum Inline {
    None,
    Short([u8; 64]),
    Long(Box<[u8]>),
}

impl Inline {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.len() <= 64 {
            let mut short = [0; 64];
            short[..bytes.len()].copy_from_slice(bytes);
            Self::Short(short)
        } else {
            Self::Long(bytes.into())
        }
    }
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) host: u16,
    pub(crate) priority: u8,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// An entry of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) id: u64,
    pub(crate) verb: Verb,
    pub(crate) flags: SendFlags,
    pub(crate) immediate: Option<u32>,
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
    pub(crate) operands: [u64; 2],
    pub(crate) segs: Segs,
    pub(crate) inline: Inline,
    pub(crate) target: Option<Target>,
    /// Its number in the send queue, counted from 0 since the last reset.
    pub(crate) index: u64,
    /// Whether it was pushed to the NIC with its doorbell.
    pub(crate) pushed: bool,
    /// Number of 64-byte lines that it takes, including inline payload.
    pub(crate) lines: u16,
    /// Time at which the NIC has it, set by the doorbell.
    pub(crate) at: Ps,
    /// First sequence number, once the request was started.
    pub(crate) first_psn: u64,
    /// Number of packets of the message or of the READ's response; zero before it was started.
    pub(crate) packets: u32,
    /// Packets of a READ's response that have arrived, or of a message that are known to have arrived.
    pub(crate) answered: u32,
}

/// A posted RECEIVE.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) segs: Segs,
}
