//! Posting sends: the checks, and the fast path.

use std::sync::atomic::Ordering;

use dunlin_verbs::{
    Access, CompletionStatus, Operation, Payload, PostErrorKind, QueuePairState, SendFlags,
    SendRequest, Transport,
};

use crate::device::{ShmAddressHandle, MTU_BYTES};
use crate::region::ShmRegion;

use super::executor::{place_piece, Step};
use super::work::Work;
use super::ShmQueuePair;

type Request<'a> = SendRequest<'a, ShmRegion, ShmAddressHandle>;

impl ShmQueuePair {
    #[inline(always)]
    pub(super) fn post_one(&mut self, request: &Request<'_>) -> Result<(), PostErrorKind> {
        if self.write_at_once(request) {
            return Ok(());
        }
        self.post_any(request)
    }

    /// The fast path of a plain WRITE from a single segment, which the papers' systems post millions of times a second.
    /// Returns `false` without doing anything if the request is a different one or anything about it needs the general
    /// path.
    #[inline(always)]
    fn write_at_once(&mut self, request: &Request<'_>) -> bool {
        let Operation::Write {
            remote,
            immediate: None,
        } = &request.operation
        else {
            return false;
        };
        if !self.has_entry() {
            return false;
        }
        let shared = &*self.shared;
        let (from, length) = match request.payload {
            Payload::Inline(bytes) if bytes.len() <= self.limits.inline_bytes => {
                (bytes.as_ptr(), bytes.len())
            }
            Payload::Segments([segment]) => {
                let region = segment.region.region();
                if !region.memory.contains(segment.offset, segment.length)
                    || segment.length > self.limits.message_bytes
                    || region.domain != shared.domain
                    || self.limits.segments == 0
                {
                    return false;
                }
                // SAFETY: the offset is within the region.
                let from = unsafe { region.memory.start().as_ptr().add(segment.offset) };
                (from.cast_const(), segment.length)
            }
            _ => return false,
        };
        if request.flags.contains(SendFlags::SIGNALED)
            || !self.limits.in_order
            || request.destination.is_some()
            || shared.state() != QueuePairState::ReadyToSend
        {
            return false;
        }
        // SAFETY: `&mut self` makes us the owner.
        let written = unsafe {
            shared.send.owned(|executor| {
                executor.write_at_once(remote, length, |to| place_piece(from, to, length))
            })
        };
        if written != Some(true) {
            return false;
        }
        self.posted = self.posted.wrapping_add(1);
        true
    }

    #[inline(never)]
    fn post_any(&mut self, request: &Request<'_>) -> Result<(), PostErrorKind> {
        let state = self.shared.state();
        if state != QueuePairState::ReadyToSend && !state.takes_sends() {
            return Err(PostErrorKind::State(state));
        }
        let length = self.check(request)?;
        self.take_entry()?;
        let work = Work::new(request, length, self.posted);
        if state != QueuePairState::ReadyToSend {
            self.post_in_order(&work);
            return Ok(());
        }
        if !self.execute_at_once(&work) {
            self.post_in_order(&work);
        }
        Ok(())
    }

    /// Executes a request and reports the result; returns `false` without doing anything if earlier requests are left
    /// over.
    #[inline(always)]
    fn execute_at_once(&self, work: &Work<'_>) -> bool {
        let shared = &*self.shared;
        // SAFETY: `&mut self` of the caller makes us the owner.
        let step = unsafe {
            shared.send.owned(|executor| {
                let step = executor.execute(shared, work);
                // Nobody waits for us: what is not shared is not protected by a lock.
                executor.notices.tell(shared);
                step
            })
        };
        match step {
            Some(Step::Done(bytes)) => shared.tell(shared.succeed(work, bytes)),
            Some(Step::Kept(bytes)) => {
                shared.tell(shared.succeed(work, bytes));
                self.share();
            }
            Some(Step::Fail(status)) => shared.tell(shared.fail(work, status)),
            Some(Step::Wait(_)) => self.leave_over(work),
            None => return false,
        }
        true
    }

    /// Takes an entry of the send queue; it is freed when a completion at or after it is polled.
    #[inline(always)]
    fn take_entry(&mut self) -> Result<(), PostErrorKind> {
        if !self.has_entry() {
            return Err(PostErrorKind::Full {
                limit: self.limits.send_requests,
            });
        }
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }

    /// Whether the send queue has a free entry, by the last known progress of the poller or, failing that, the current
    /// one.
    #[inline(always)]
    fn has_entry(&mut self) -> bool {
        let limit = self.limits.send_requests;
        if (self.posted.wrapping_sub(self.given_back) as usize) < limit {
            return true;
        }
        // Entries from before a reset are already freed, whatever the poller has seen of them.
        let retired = self.shared.retired.0.load(Ordering::Acquire);
        if retired.wrapping_sub(self.given_back) as i32 > 0 {
            self.given_back = retired;
        }
        (self.posted.wrapping_sub(self.given_back) as usize) < limit
    }

    /// Leaves over a request that could not be finished, for any thread that can continue it.
    #[cold]
    fn leave_over(&self, work: &Work<'_>) {
        let shared = &*self.shared;
        // SAFETY: `&mut self` of the caller makes us the owner.
        unsafe { shared.send.owned(|executor| executor.leave_over(work)) };
        self.share();
    }

    /// Shares the executor with all threads that can continue what it keeps.
    #[cold]
    fn share(&self) {
        let shared = &*self.shared;
        shared.send_cq.left_over.fetch_add(1, Ordering::SeqCst);
        // SAFETY: only the owner calls this, and we are out of the executor.
        unsafe { shared.send.share() };
        // Nobody has handled an answer or an error that arrived while this thread held the executor.
        shared.progress();
        if shared.send.is_shared() {
            shared.core.control.watch(&self.shared);
        }
    }

    /// Posts a request behind others that are left over, or in a state in which nothing is started.
    #[cold]
    fn post_in_order(&self, work: &Work<'_>) {
        let shared = &*self.shared;
        if let Some(mut held) = shared.send.lock() {
            held.with(|executor| executor.leave_over(work));
            shared.run(held);
            return;
        }
        match shared.state() {
            QueuePairState::ReadyToSend => {
                // What was left over has been finished meanwhile, and only this thread leaves anything over.
                self.execute_at_once(work);
            }
            QueuePairState::SendQueueDrained => self.leave_over(work),
            _ => shared.tell(shared.complete(work, CompletionStatus::Flushed, 0)),
        }
    }

    /// Checks a request and returns its length.
    #[inline(always)]
    fn check(&self, request: &Request<'_>) -> Result<usize, PostErrorKind> {
        let transport = self.shared.transport;
        let not_carried = PostErrorKind::Verb(transport);
        let length = match request.payload {
            Payload::Inline(bytes) => {
                if bytes.len() > self.limits.inline_bytes {
                    return Err(PostErrorKind::Inline {
                        bytes: bytes.len(),
                        limit: self.limits.inline_bytes,
                    });
                }
                bytes.len()
            }
            Payload::Segments(_) => self.check_segments(request)?,
        };
        let limit = if transport == Transport::UnreliableDatagram {
            MTU_BYTES
        } else {
            self.limits.message_bytes
        };
        if length > limit {
            return Err(PostErrorKind::Length {
                bytes: length,
                limit,
            });
        }
        if request.destination.is_some() != (transport == Transport::UnreliableDatagram) {
            return Err(not_carried);
        }
        let carried = match request.operation {
            Operation::Send { .. } => true,
            Operation::Write { .. } => transport != Transport::UnreliableDatagram,
            Operation::Read { .. } => {
                transport == Transport::ReliableConnection
                    && matches!(request.payload, Payload::Segments(_))
            }
            Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. } => {
                transport == Transport::ReliableConnection
                    && length == 8
                    && matches!(request.payload, Payload::Segments([_]))
            }
        };
        if carried {
            Ok(length)
        } else {
            Err(not_carried)
        }
    }

    #[inline]
    fn check_segments(&self, request: &Request<'_>) -> Result<usize, PostErrorKind> {
        let Payload::Segments(segments) = request.payload else {
            return Ok(0);
        };
        if segments.len() > self.limits.segments {
            return Err(PostErrorKind::Segments {
                count: segments.len(),
                limit: self.limits.segments,
            });
        }
        let written = !matches!(
            request.operation,
            Operation::Send { .. } | Operation::Write { .. }
        );
        let mut length = 0;
        for (index, segment) in segments.iter().enumerate() {
            let region = segment.region.region();
            if !region.memory.contains(segment.offset, segment.length)
                || (written && !region.access.contains(Access::LOCAL_WRITE))
            {
                return Err(PostErrorKind::Segment(index));
            }
            length += segment.length;
        }
        Ok(length)
    }
}
