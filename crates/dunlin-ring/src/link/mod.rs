//! The queue pair of one end of a ring: posting with few completions, and evaluating them.
//!
//! RB² requires completions of pointer advancements only (§IV-B). This module decides which other requests are
//! signaled: often enough that entries of the send queue are freed and that slots of the array are known to be
//! reusable.

mod sleeping;

use dunlin_link::{Ended, SendQueue, Ticket};
use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    Completion, CompletionQueue, CompletionQueueError, CompletionStatus, Device, Operation,
    Payload, PostError, PostErrorKind, QueuePair, QueuePairState, ReceiveRequest, RemoteAddress,
    SendFlags, SendRequest,
};

use crate::effort;
use crate::error::RingError;

pub(crate) use sleeping::{Event, Sleeping, Sleeps};

/// Entries of the send queue.
pub(crate) const SEND_REQUESTS: usize = 128;
/// At least one in this many requests is signaled, so that entries of the send queue are freed.
const SIGNAL_EVERY: usize = 32;
/// The name of requests that say nothing about messages: RECEIVEs, and whatever a consumer posts.
pub const NAMELESS: u64 = 0;
/// Number of completions taken at a time.
const POLLED: usize = 16;

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// The name of the last request that is now known to have completed.
    pub completed: Option<u64>,
    /// The sum of the immediate data received.
    pub immediate: u64,
    /// Number of RECEIVEs consumed.
    pub received: usize,
}

/// What an end of a ring needs of the queue pair that carries it: posting, and completions. A
/// [`Producer`](crate::Producer) has a queue pair of its own; a channel that has one for several purposes implements
/// this for it.
///
/// # Safety
/// [`RingLink::poll`] reports a name only when the device no longer reads the memory of the requests up to it, and
/// [`RingLink::is_finished`] is true only of requests that have completed: the producer reuses slots by that.
#[allow(unsafe_code)]
pub unsafe trait RingLink<D: Device> {
    /// Checks that this process created the ring. To be called before anything of it is accessed, because its memory is
    /// shared with the parent's.
    ///
    /// # Errors
    /// When the process was forked from the one that did.
    fn check_process(&self) -> Result<(), RingError>;

    /// Checks whether the device has given up the connection.
    ///
    /// # Errors
    /// When it has.
    fn check(&mut self) -> Result<(), RingError>;

    /// Whether the send queue is known to have `count` free entries.
    fn has_entries(&self, count: usize) -> bool;

    /// Number of signaled requests in flight, as of the last poll.
    fn in_flight(&self) -> usize;

    /// Posts requests with one doorbell; the last one is signaled if `signal` is set or a signal is due. A request's id
    /// is its name, which [`Polled::completed`] reports; since any request may be signaled, each name states what is
    /// complete once this request and those before it are. The caller has checked that there are entries.
    ///
    /// # Errors
    /// When the queue pair does not accept them; the ring then fails.
    fn post(&mut self, requests: &mut [Request<'_, D>], signal: bool) -> Result<(), RingError>;

    /// Takes completions. An end that polls memory for messages also learns here that the peer is gone.
    ///
    /// # Errors
    /// When a request failed; the ring then fails.
    fn poll(&mut self) -> Result<Polled, RingError>;

    /// The request posted last.
    fn last(&self) -> Ticket;

    /// Whether a request is known to have completed.
    fn is_finished(&self, request: Ticket) -> bool;

    /// Posts RECEIVEs for this many WRITEs with immediate data, in designs that announce messages by them.
    fn expect_immediates(&mut self, count: usize);

    /// Hints where a WRITE will go soon.
    fn expect_write(&mut self, remote: RemoteAddress, length: usize);

    /// Wakes the peer if it has announced a sleep that was not answered. `name` as for [`RingLink::post`].
    ///
    /// # Errors
    /// As for [`RingLink::post`].
    fn wake_if_asleep(&mut self, name: u64) -> Result<(), RingError>;

    /// Ends the ring with an error; the peer is notified. Returns the first error that it ended with.
    fn fail(&mut self, error: RingError) -> RingError;
}

/// The queue pair of one end.
#[derive(Debug)]
pub(crate) struct Link<D: Device> {
    made_in: Generation,
    pub(crate) queue_pair: D::QueuePair,
    pub(crate) completions: D::CompletionQueue,
    pub(crate) sends: SendQueue,
    /// Buffer for completions: initializing it for each poll would cost more than the poll.
    polled: [Completion; POLLED],
    broken: Option<RingError>,
    /// The name of the first request that is known to have failed.
    failed: Option<u64>,
    /// The last probe of the peer.
    probe: Option<Ticket>,
    /// State needed if this end can sleep.
    pub(crate) sleeping: Option<Sleeping<D>>,
}

/// A work request of this device.
pub type Request<'a, D> = SendRequest<'a, <D as Device>::Region, <D as Device>::AddressHandle>;

/// Posts a WRITE of a few bytes, inline; name and signal as for [`RingLink::post`].
#[inline(always)]
pub(crate) fn write_inline<D: Device>(
    link: &mut impl RingLink<D>,
    remote: RemoteAddress,
    bytes: &[u8],
    (name, signal): (u64, bool),
) -> Result<(), RingError> {
    let write = Operation::Write {
        remote,
        immediate: None,
    };
    let request = SendRequest::new(name, write, Payload::Inline(bytes), SendFlags::empty());
    link.post(&mut [request], signal)
}

impl<D: Device> Link<D> {
    pub(crate) fn new(queue_pair: D::QueuePair, completions: D::CompletionQueue) -> Self {
        Self {
            made_in: Generation::current(),
            queue_pair,
            completions,
            sends: SendQueue::new(SEND_REQUESTS, SIGNAL_EVERY),
            polled: [Completion::EMPTY; POLLED],
            broken: None,
            failed: None,
            probe: None,
            sleeping: None,
        }
    }

    /// Posts RECEIVEs without memory: for wake-ups, and for WRITEs with immediate data.
    ///
    /// # Errors
    /// When the queue pair does not accept one.
    pub(crate) fn post_receives(&mut self, count: usize) -> Result<(), PostError> {
        let request = ReceiveRequest {
            id: NAMELESS,
            segments: &[],
        };
        (0..count).try_for_each(|_| self.queue_pair.post_receive(&[request]))
    }

    #[cold]
    fn not_posted(&mut self, kind: PostErrorKind) -> RingError {
        let error = match kind {
            PostErrorKind::State(QueuePairState::Error) => RingError::PeerLost,
            kind => RingError::Post(kind),
        };
        self.fail(error)
    }

    #[inline]
    fn take(&mut self, completion: &Completion, polled: &mut Polled) {
        match self.sends.complete(completion) {
            Ok(Ended::Receive) => {
                polled.received += 1;
                polled.immediate += u64::from(completion.immediate.unwrap_or(0));
            }
            Ok(Ended::Requests(0)) => {}
            Ok(Ended::Requests(_)) => polled.completed = Some(completion.id),
            Err(status) => self.request_failed(completion.id, status),
        }
    }

    #[cold]
    fn request_failed(&mut self, name: u64, status: CompletionStatus) {
        if name != NAMELESS && self.failed.is_none() {
            self.failed = Some(name);
        }
        self.fail(match status {
            CompletionStatus::Flushed | CompletionStatus::RetryExceeded => RingError::PeerLost,
            status => RingError::Request(status),
        });
    }

    /// The name of the first request that is known to have failed, of those that have a name. A queue pair completes
    /// requests in the order in which they were posted, including all that fail, signaled or not.
    pub(crate) fn failed(&self) -> Option<u64> {
        self.failed
    }

    /// Posts an empty WRITE to a location at the peer: where no packet reports that the peer is gone, only a request
    /// that is not acknowledged shows it. Posts nothing if the last probe is still outstanding, as of the last poll, or
    /// if the send queue is full. `name` as for [`RingLink::post`].
    pub(crate) fn probe(&mut self, remote: RemoteAddress, name: u64) -> Result<(), RingError> {
        if self.is_probing() || !self.has_entries(1) {
            return Ok(());
        }
        write_inline(self, remote, &[], (name, true))?;
        self.probe = Some(self.sends.last());
        Ok(())
    }

    /// Whether a probe is outstanding, as of the last poll.
    pub(crate) fn is_probing(&self) -> bool {
        let probe = self.probe;
        probe.is_some_and(|probe| !self.sends.is_finished(probe))
    }
}

// SAFETY: names and tickets come from the completions of the queue pair, which `SendQueue` sorts.
#[allow(unsafe_code)]
unsafe impl<D: Device> RingLink<D> for Link<D> {
    #[inline(always)]
    fn check_process(&self) -> Result<(), RingError> {
        Ok(self.made_in.check()?)
    }

    #[inline(always)]
    fn has_entries(&self, count: usize) -> bool {
        self.sends.has_entries(count)
    }

    #[inline(always)]
    fn in_flight(&self) -> usize {
        self.sends.signaled()
    }

    #[inline(always)]
    fn post(&mut self, requests: &mut [Request<'_, D>], signal: bool) -> Result<(), RingError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let count = requests.len();
        for _ in 0..count {
            D::charge(effort::REQUEST);
        }
        let signal = signal || self.sends.is_signal_due(count);
        if signal {
            if let Some(last) = requests.last_mut() {
                last.flags |= SendFlags::SIGNALED;
            }
        }
        if let Err(error) = self.queue_pair.post_send(requests) {
            return Err(self.not_posted(error.kind));
        }
        self.sends.post(count, signal);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<Polled, RingError> {
        let mut polled = Polled::default();
        loop {
            let count = match self.completions.poll(&mut self.polled) {
                Ok(count) => count,
                Err(CompletionQueueError::Overrun { limit }) => {
                    return Err(self.fail(RingError::Overrun { limit }))
                }
                Err(_) => return Err(self.fail(RingError::Overrun { limit: 0 })),
            };
            if count > 0 {
                D::charge(effort::COMPLETED);
            }
            for index in 0..count {
                let completion = self.polled[index];
                self.take(&completion, &mut polled);
            }
            if count < POLLED {
                break;
            }
        }
        if polled.received > 0 && self.sleeping.is_some() {
            self.woken(polled.received);
        }
        match self.broken {
            // Completions before the failure are returned first; the failure is reported when there are no more.
            Some(error) if polled == Polled::default() => Err(error),
            _ => Ok(polled),
        }
    }

    #[inline(always)]
    fn expect_write(&mut self, remote: RemoteAddress, length: usize) {
        self.queue_pair.expect_write(remote, length);
    }

    #[inline]
    fn check(&mut self) -> Result<(), RingError> {
        self.check_process()?;
        if let Some(error) = self.broken {
            return Err(error);
        }
        if self.queue_pair.state() == QueuePairState::Error {
            return Err(self.fail(RingError::PeerLost));
        }
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: RingError) -> RingError {
        if self.broken.is_none() {
            self.broken = Some(error);
            self.queue_pair.to_error();
        }
        self.broken.unwrap_or(error)
    }

    #[inline(always)]
    fn last(&self) -> Ticket {
        self.sends.last()
    }

    #[inline(always)]
    fn is_finished(&self, request: Ticket) -> bool {
        self.sends.is_finished(request)
    }

    fn expect_immediates(&mut self, count: usize) {
        // A queue pair in error is detected by the next poll.
        let _ = self.post_receives(count);
    }

    #[inline(always)]
    fn wake_if_asleep(&mut self, name: u64) -> Result<(), RingError> {
        match self.sleeping.as_ref().and_then(Sleeping::unanswered) {
            Some(number) => self.wake(number, name),
            None => Ok(()),
        }
    }
}
