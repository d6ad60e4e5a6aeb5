//! The work requests that the tests post, and their completions.

use dunlin_verbs::{
    Completion, CompletionQueue, Destination, Device, Operation, Payload, QueuePair,
    ReceiveRequest, Segment, SendFlags, SendRequest, GRH_BYTES,
};

use super::{Endpoint, OLD_AT, OUT_AT, SIGNAL_EVERY};
use crate::commands::Failure;
use crate::verbs::patience::Patience;
use crate::verbs::{Service, Test};

/// Most requests in one list.
const BATCH_MAX: usize = 16;

impl<D: Device> Endpoint<D> {
    /// Posts `count` requests with one doorbell. The last one carries `last` and is signaled with `id`.
    ///
    /// # Errors
    /// When the queue pair does not take them.
    pub fn post_list(&mut self, count: usize, last: Operation, id: u64) -> Result<(), Failure> {
        self.post(count, last, id, SendFlags::SIGNALED, None)
    }

    /// Posts one request, signaled from time to time; waits for room in the send queue.
    ///
    /// # Errors
    /// When the queue pair does not take it, or an earlier one failed.
    pub fn post_single(
        &mut self,
        operation: Operation,
        message: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let mut patience = Patience::new();
        while self.in_flight + 2 * SIGNAL_EVERY > self.send_requests {
            patience.wait(self)?;
        }
        self.unsignaled += 1;
        let (mut flags, mut worth) = (SendFlags::empty(), 0);
        if self.unsignaled == SIGNAL_EVERY {
            (flags, worth) = (SendFlags::SIGNALED, SIGNAL_EVERY as u64);
            self.unsignaled = 0;
        }
        self.in_flight += 1;
        self.post(1, operation, worth, flags, message)
    }

    fn post(
        &mut self,
        count: usize,
        last: Operation,
        id: u64,
        flags: SendFlags,
        message: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let (offset, length) = match self.plan.test {
            Test::Atomic => (OLD_AT, 8),
            Test::Read => (self.in_at, self.plan.size),
            Test::Write | Test::Send => (OUT_AT, self.plan.size),
        };
        let segments = [Segment {
            region: &self.region,
            offset,
            length,
        }];
        let outgoing = matches!(self.plan.test, Test::Write | Test::Send);
        let payload = match (message, &self.inline) {
            (Some(message), _) => Payload::Inline(message),
            (None, Some(inline)) if outgoing => Payload::Inline(inline),
            _ => Payload::Segments(&segments),
        };
        let destination = self.peer.as_ref().and_then(|peer| {
            Some(Destination {
                handle: peer.handle.as_ref()?,
                queue_pair: peer.address.queue_pair,
                queue_key: peer.address.queue_key,
            })
        });
        let plain = match last {
            Operation::Send { .. } => Operation::Send { immediate: None },
            other => other,
        };
        let mut requests = [SendRequest {
            id: 0,
            operation: plain,
            payload,
            flags: SendFlags::empty(),
            destination,
        }; BATCH_MAX];
        let count = count.clamp(1, BATCH_MAX);
        let end = &mut requests[count - 1];
        (end.id, end.operation, end.flags) = (id, last, flags);
        self.pair
            .post_send(&requests[..count])
            .map_err(Failure::new)
    }

    /// Takes completions of sends; the requests of [`Endpoint::post_single`] are given back.
    ///
    /// # Errors
    /// When one failed.
    pub fn reap(&mut self) -> Result<(), Failure> {
        let mut retired = 0;
        self.poll_sends(|worth| retired += worth as usize)?;
        self.in_flight = self.in_flight.saturating_sub(retired);
        Ok(())
    }

    /// Takes completions of sends and hands on their ids.
    ///
    /// # Errors
    /// When one failed.
    #[inline]
    pub fn poll_sends(&mut self, mut each: impl FnMut(u64)) -> Result<(), Failure> {
        let mut done = [Completion::EMPTY; 32];
        let count = self.sends.poll(&mut done).map_err(Failure::new)?;
        for completion in &done[..count] {
            succeeded(completion)?;
            each(completion.id);
        }
        Ok(())
    }

    /// Takes messages that have arrived, reposts their RECEIVEs, and passes on their immediate data; returns their
    /// number.
    ///
    /// # Errors
    /// When one failed.
    #[inline]
    pub fn poll_receives(
        &mut self,
        mut each: impl FnMut(&Self, Option<u32>),
    ) -> Result<usize, Failure> {
        let mut came = [Completion::EMPTY; 32];
        let count = self.receives.poll(&mut came).map_err(Failure::new)?;
        for completion in &came[..count] {
            succeeded(completion)?;
            each(self, completion.immediate);
        }
        if count > 0 {
            self.post_receives(count)?;
        }
        Ok(count)
    }

    /// All RECEIVEs use the same place: messages are counted and not kept.
    pub(super) fn post_receives(&mut self, mut count: usize) -> Result<(), Failure> {
        let header = match self.plan.service {
            Service::Ud => GRH_BYTES,
            _ => 0,
        };
        let segments = [Segment {
            region: &self.region,
            offset: self.in_at - header,
            length: header + self.in_bytes,
        }];
        let requests = [ReceiveRequest {
            id: 0,
            segments: &segments,
        }; BATCH_MAX];
        while count > 0 {
            let some = count.min(BATCH_MAX);
            self.pair
                .post_receive(&requests[..some])
                .map_err(Failure::new)?;
            count -= some;
        }
        Ok(())
    }
}

#[inline]
fn succeeded(completion: &Completion) -> Result<(), Failure> {
    if completion.is_success() {
        return Ok(());
    }
    let words = format!("a request failed: {}", completion.status);
    Err(Failure::new(words).help("the peer process may have ended"))
}
