//! Posting RECEIVEs, to a queue pair's own queue or to a shared one.

use std::sync::Arc;

use dunlin_verbs::{CompletionOpcode, PostError, PostErrorKind, ReceiveRequest, Transport};

use super::batch::{check_segments, prepare_all, BATCH};
use super::post::kind;
use crate::device::Domain;
use crate::region::IbvRegion;
use crate::sys::types::{ReceiveWr, Sge};
use crate::work_table::WorkTable;

/// A receive queue: its limits and space for a batch.
pub(crate) struct Receiver {
    table: Arc<WorkTable>,
    domain: Arc<Domain>,
    segments: usize,
    wrs: Box<[ReceiveWr; BATCH]>,
    sges: Box<[Sge]>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

// SAFETY: the pointers in `wrs` are leftovers of the last batch, written anew before they are used.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(crate) fn new(table: Arc<WorkTable>, domain: &Arc<Domain>, segments: usize) -> Self {
        let wr = ReceiveWr {
            id: 0,
            next: std::ptr::null_mut(),
            sges: std::ptr::null_mut(),
            sge_count: 0,
        };
        Self {
            table,
            domain: Arc::clone(domain),
            segments,
            wrs: Box::new([wr; BATCH]),
            sges: vec![Sge::EMPTY; BATCH * segments].into_boxed_slice(),
        }
    }

    /// Posts through `provider`, which receives a list and the place for the first refused request.
    pub(crate) fn post(
        &mut self,
        requests: &[ReceiveRequest<'_, IbvRegion>],
        mut provider: impl FnMut(*mut ReceiveWr, *mut *mut ReceiveWr) -> i32,
    ) -> Result<(), PostError> {
        for (at, batch) in requests.chunks(BATCH).enumerate() {
            let error = |index: usize, kind| PostError {
                index: at * BATCH + index,
                kind,
            };
            let (count, prepared) = prepare_all(batch, |at, request| self.prepare(at, request));
            if count > 0 {
                let first = self.chain(count);
                let mut bad = std::ptr::null_mut();
                let errno = provider(first, &mut bad);
                if errno != 0 {
                    let refused = (bad as usize).wrapping_sub(first as usize);
                    let refused = (refused / size_of::<ReceiveWr>()).min(count - 1);
                    let ids = self.wrs[refused..count].iter().map(|wr| wr.id);
                    self.table.withdraw(ids);
                    // The transport makes no difference for a RECEIVE.
                    let transport = Transport::ReliableConnection;
                    return Err(error(refused, kind(errno, self.table.limit(), transport)));
                }
            }
            prepared.map_err(|kind| error(count, kind))?;
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        at: usize,
        request: &ReceiveRequest<'_, IbvRegion>,
    ) -> Result<(), PostErrorKind> {
        let sum = check_segments(request.segments, self.segments, &self.domain, true)?;
        let sges = &mut self.sges[at * self.segments..][..self.segments];
        for (index, (sge, segment)) in sges.iter_mut().zip(request.segments).enumerate() {
            if u32::try_from(segment.length).is_err() {
                return Err(PostErrorKind::Segment(index));
            }
            *sge = Sge::of(segment);
        }
        let first = sges.as_mut_ptr();
        let full = PostErrorKind::Full {
            limit: self.table.limit(),
        };
        let lkey = request
            .segments
            .first()
            .map_or(0, |segment| segment.region.lkey());
        let pushed = self
            .table
            .push(request.id, CompletionOpcode::Receive, sum, lkey);
        self.wrs[at] = ReceiveWr {
            id: pushed.ok_or(full)?,
            next: std::ptr::null_mut(),
            sges: first,
            sge_count: request.segments.len() as i32,
        };
        Ok(())
    }

    fn chain(&mut self, count: usize) -> *mut ReceiveWr {
        let first = self.wrs.as_mut_ptr();
        for at in 0..count - 1 {
            self.wrs[at].next = first.wrapping_add(at + 1);
        }
        first
    }
}
