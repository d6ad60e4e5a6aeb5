//! The channel's carrier as the queue pair of its rings.

use dunlin_link::Ticket;
use dunlin_ring::{
    Polled, Request, RingError, RingLink, Violation, COMPLETION_EFFORT, POST_EFFORT,
};
use dunlin_verbs::{Device, QueuePair, RemoteAddress, SendFlags};

use crate::channel::carrier::Carrier;
use crate::channel::ChannelError;

/// A ring's error as the channel's.
#[cold]
pub(super) fn error_of(error: RingError) -> ChannelError {
    match error {
        RingError::PeerLost => ChannelError::peer_gone(),
        RingError::Violation(violation) => ChannelError::violation(match violation {
            Violation::Tail { .. } => "a tail beyond what its ring has room for",
            Violation::Head { .. } => "a head beyond what was sent",
            Violation::Length { .. } => "a message longer than its ring allows",
            _ => "a message header that is not valid",
        }),
        error => ChannelError::queue_pair(error.to_string()),
    }
}

// SAFETY: `ring_completed` is the id of a request of the ring that the queue pair has completed, and an RC queue pair
// completes its requests in order; tickets are those of the carrier's `SendQueue`.
#[allow(unsafe_code)]
unsafe impl<D: Device> RingLink<D> for Carrier<D> {
    /// Whoever uses the lane has checked it.
    #[inline(always)]
    fn check_process(&self) -> Result<(), RingError> {
        Ok(())
    }

    #[inline]
    fn check(&mut self) -> Result<(), RingError> {
        match self.is_known_failed() {
            true => Err(RingError::PeerLost),
            false => Ok(()),
        }
    }

    #[inline(always)]
    fn has_entries(&self, count: usize) -> bool {
        Carrier::has_entries(self, count)
    }

    /// Requests of the carrier's own complete in the same queue, and whoever polls it keeps the name for the ring.
    #[inline(always)]
    fn in_flight(&self) -> usize {
        self.sends.signaled() + usize::from(self.ring_completed.is_some())
    }

    #[inline(always)]
    fn post(&mut self, requests: &mut [Request<'_, D>], signal: bool) -> Result<(), RingError> {
        let count = requests.len();
        for _ in 0..count {
            D::charge(POST_EFFORT);
        }
        let signal = signal || self.sends.is_signal_due(count);
        if let Some(last) = requests.last_mut().filter(|_| signal) {
            last.flags |= SendFlags::SIGNALED;
        }
        if let Err(error) = self.queue_pair.post_send(requests) {
            self.fail(ChannelError::queue_pair(error.to_string()));
            return Err(RingError::Post(error.kind));
        }
        self.sends.post(count, signal);
        self.unconfirmed = Some(self.last_posted());
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<Polled, RingError> {
        if self.progress().is_err() {
            return Err(RingError::PeerLost);
        }
        let completed = self.ring_completed.take();
        if completed.is_some() {
            D::charge(COMPLETION_EFFORT);
        }
        Ok(Polled {
            completed,
            ..Polled::default()
        })
    }

    #[inline(always)]
    fn last(&self) -> Ticket {
        self.last_posted()
    }

    #[inline(always)]
    fn is_finished(&self, request: Ticket) -> bool {
        self.is_done(request)
    }

    /// The carrier posts RECEIVEs of its own; no ring of a channel announces messages by completions.
    fn expect_immediates(&mut self, _count: usize) {}

    #[inline(always)]
    fn expect_write(&mut self, remote: RemoteAddress, length: usize) {
        self.queue_pair.expect_write(remote, length);
    }

    #[inline(always)]
    fn wake_if_asleep(&mut self, _name: u64) -> Result<(), RingError> {
        Carrier::wake_if_asleep(self).map_err(|_| RingError::PeerLost)
    }

    fn fail(&mut self, error: RingError) -> RingError {
        Carrier::fail(self, error_of(error));
        error
    }
}
