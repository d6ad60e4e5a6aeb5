//! What a future or a batch requests: in its caller's memory, or kept until it can be sent.

use std::sync::Arc;

use crate::call::lane::{Lane, Submitted};
use crate::call::timeout::Said;
use crate::call::wanted::{RegionKey, Wanted};
use crate::client::pipeline::submit_on;
use crate::error::CallError;
use crate::HandlerId;

/// A request in the caller's own memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) enum Wish<'a> {
    Call(HandlerId, &'a [u8]),
    OneSided(&'a Arc<RegionKey>, u64, Wanted<'a>),
    Attach(&'a Arc<RegionKey>),
}

/// The same, kept until it can be sent.
pub(in crate::client) enum Asked {
    Call(HandlerId, Box<[u8]>),
    Write(Arc<RegionKey>, u64, Box<[u8]>),
    /// An operation that carries no bytes.
    Bare(Arc<RegionKey>, u64, Wanted<'static>),
    Attach(Arc<RegionKey>),
}

impl Wish<'_> {
    pub(in crate::client) fn keep(&self) -> Asked {
        match *self {
            Wish::Call(handler, payload) => Asked::Call(handler, payload.into()),
            Wish::Attach(region) => Asked::Attach(Arc::clone(region)),
            Wish::OneSided(region, offset, wanted) => {
                let region = Arc::clone(region);
                match wanted {
                    Wanted::Write(bytes) => Asked::Write(region, offset, bytes.into()),
                    Wanted::Read(length) => Asked::Bare(region, offset, Wanted::Read(length)),
                    Wanted::FetchAndAdd(add) => {
                        Asked::Bare(region, offset, Wanted::FetchAndAdd(add))
                    }
                    Wanted::CompareAndSwap { compare, swap } => {
                        let wanted = Wanted::CompareAndSwap { compare, swap };
                        Asked::Bare(region, offset, wanted)
                    }
                }
            }
        }
    }

    /// Submits it, a call in a copy with its deadline if needed. `Full`: there is no room now.
    pub(in crate::client) fn submit(
        &self,
        lane: &mut dyn Lane,
        tag: usize,
        told: (Option<Said>, &mut Vec<u8>),
    ) -> Result<Submitted, CallError> {
        let tag = tag as u64;
        let submitted = match *self {
            Wish::Call(handler, payload) => submit_on(lane, (handler, payload), tag, told)?,
            Wish::Attach(region) => lane.submit_attach(region, tag)?,
            Wish::OneSided(region, offset, wanted) => {
                return lane.submit_one_sided(region, offset, &wanted, tag);
            }
        };
        Ok(submitted.map_or(Submitted::Full, Submitted::Call))
    }
}

impl Asked {
    pub(in crate::client) fn wish(&self) -> Wish<'_> {
        match self {
            Asked::Call(handler, payload) => Wish::Call(*handler, payload),
            Asked::Write(region, offset, bytes) => {
                Wish::OneSided(region, *offset, Wanted::Write(bytes))
            }
            Asked::Bare(region, offset, wanted) => Wish::OneSided(region, *offset, *wanted),
            Asked::Attach(region) => Wish::Attach(region),
        }
    }
}
