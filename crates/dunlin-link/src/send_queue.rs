//! The account of a send queue: outstanding requests, the signaled ones among them, and which of them a completion
//! ends.
//!
//! Requests of one send queue complete in the order in which they were posted, on every transport. So one completion
//! ends all requests up to the signaled one that it belongs to, and few need to be signaled (FaSST's selective
//! signaling): every Nth, and those whose completion is waited for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_verbs::{Completion, CompletionOpcode, CompletionStatus, SendFlags};

use crate::in_flight::{Completed, InFlight, Ticket};

/// Distinguishes the queues of a process, so that none returns a value that another one holds.
static QUEUES: AtomicU64 = AtomicU64::new(0);

/// What a successful completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This many requests of the send queue.
    Requests(usize),
    /// A RECEIVE, which this account does not track.
    Receive,
}

/// The account of the send queue of one queue pair. It does no I/O: its owner posts and polls.
#[derive(Debug)]
pub struct SendQueue {
    id: u64,
    entries: u64,
    signal_every: u64,
    /// Number of requests ever posted.
    posted: u64,
    /// The number up to which requests may be posted: those that have finished, plus the entries.
    limit: u64,
    /// The request with this number is signaled unless an earlier one is requested.
    signal_at: u64,
    /// Number of the last signaled request.
    last_signaled: u64,
    /// For each outstanding signaled request, the number of requests that its completion ends.
    signaled: VecDeque<u16>,
    failed: bool,
}

impl SendQueue {
    /// Creates the account of a queue with `entries` entries, in which at least one in `signal_every` requests is
    /// signaled.
    ///
    /// # Panics
    /// When there are more than 65535 entries, or when some would never be freed because `signal_every` is zero or
    /// exceeds their number.
    pub fn new(entries: usize, signal_every: usize) -> Self {
        assert!(entries <= usize::from(u16::MAX), "{entries} entries");
        assert!(
            (1..=entries).contains(&signal_every),
            "one of {signal_every} signaled, of {entries} entries"
        );
        Self {
            id: QUEUES.fetch_add(1, Ordering::Relaxed),
            entries: entries as u64,
            signal_every: signal_every as u64,
            posted: 0,
            limit: entries as u64,
            signal_at: signal_every as u64,
            last_signaled: 0,
            // All may be signaled, so reserve for all: no push allocates.
            signaled: VecDeque::with_capacity(entries),
            failed: false,
        }
    }

    /// Creates the account of a new queue pair that replaces this one's. Values in flight in the old one never complete
    /// in the new one.
    pub fn renewed(&self) -> Self {
        Self::new(self.entries as usize, self.signal_every as usize)
    }

    /// Whether `count` more requests may be posted, as of the completions taken so far.
    #[inline(always)]
    pub fn has_entries(&self, count: usize) -> bool {
        self.posted + count as u64 <= self.limit
    }

    /// Number of requests that were posted and are not known to have finished.
    #[inline]
    pub fn outstanding(&self) -> usize {
        (self.posted - self.finished()) as usize
    }

    /// Number of signaled requests among those: completions still to come.
    #[inline(always)]
    pub fn signaled(&self) -> usize {
        self.signaled.len()
    }

    /// Whether one of the next `count` requests must be signaled.
    #[inline(always)]
    pub fn is_signal_due(&self, count: usize) -> bool {
        self.posted + count as u64 >= self.signal_at
    }

    /// The flags of the next request, unless its completion is specifically wanted.
    #[inline]
    pub fn next_flags(&self) -> SendFlags {
        if self.is_signal_due(1) {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        }
    }

    /// Makes the next request a signaled one, whenever the last one was.
    pub fn signal_next(&mut self) {
        self.signal_at = self.posted + 1;
    }

    /// Records that a list of `count` requests was posted, for which there were entries, with the last of them signaled
    /// or none; returns the ticket of the last one. For a list that the device accepted in part, see
    /// [`SendQueue::fail`].
    #[inline(always)]
    pub fn post(&mut self, count: usize, signaled: bool) -> Ticket {
        self.posted += count as u64;
        debug_assert!(self.posted <= self.limit, "posted without an entry");
        if signaled {
            self.note_signaled();
        }
        Ticket::new(self.posted)
    }

    /// Needed for one in many requests; separate so that the common path stays small.
    #[inline(never)]
    fn note_signaled(&mut self) {
        self.signal_at = self.posted + self.signal_every;
        if !self.failed {
            let ends = self.posted - self.last_signaled;
            // If the number were truncated, which would take more requests than there are entries, it would end too few
            // of them.
            self.signaled.push_back(ends as u16);
            self.last_signaled = self.posted;
        }
    }

    /// Records that a request with these flags was posted.
    #[inline]
    pub fn post_one(&mut self, flags: SendFlags) -> Ticket {
        self.post(1, flags.contains(SendFlags::SIGNALED))
    }

    /// Records that the next request is about to be posted as part of a list, and returns its flags.
    #[inline]
    pub fn enter(&mut self) -> SendFlags {
        let flags = self.next_flags();
        self.post_one(flags);
        flags
    }

    /// The ticket of the request that was posted last.
    #[inline]
    pub fn last(&self) -> Ticket {
        Ticket::new(self.posted)
    }

    /// Whether a request, and so all that were posted before it, is known to have finished. An unsignaled one is known
    /// to have finished when the next signaled one has.
    #[inline]
    pub fn is_finished(&self, ticket: Ticket) -> bool {
        ticket.number() <= self.finished()
    }

    /// Takes a completion of the queue pair: the oldest signaled request has finished, and with it all before it.
    /// Completions of RECEIVEs, which may share the completion queue, are distinguished.
    ///
    /// # Errors
    /// When it reports that a request, and with it the queue pair, failed: see [`SendQueue::fail`].
    #[inline]
    pub fn complete(&mut self, completion: &Completion) -> Result<Ended, CompletionStatus> {
        if !completion.is_success() {
            self.fail();
            return Err(completion.status);
        }
        Ok(match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteWithImmediate => {
                Ended::Receive
            }
            _ => Ended::Requests(self.end_oldest()),
        })
    }

    #[inline]
    fn end_oldest(&mut self) -> usize {
        // A completion that belongs to no signaled request ends nothing.
        let ends = self.signaled.pop_front().unwrap_or(0);
        self.limit += u64::from(ends);
        ends.into()
    }

    /// Records that the queue pair is in error, or rejected a list or a part of it. What is posted from then on,
    /// including that list, stays outstanding. Requests signaled before may still have completed, and are waited for.
    #[cold]
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Holds a value that the device uses until the request that was posted last is known to have finished.
    #[inline]
    pub fn hold<T>(&self, value: T) -> InFlight<T> {
        InFlight::new(self.id, self.last(), value)
    }

    /// Returns a value whose request is known to have finished.
    ///
    /// # Errors
    /// The unchanged value, when its request is not known to have finished, or another queue holds it.
    #[inline]
    pub fn finish<T>(&self, held: InFlight<T>) -> Result<Completed<T>, InFlight<T>> {
        if self.gives_back(&held) {
            Ok(Completed::new(held))
        } else {
            Err(held)
        }
    }

    /// Returns the first of the values that this queue holds, in the order in which they were posted, if its request is
    /// known to have finished.
    #[inline]
    pub fn finish_first<T>(&self, held: &mut VecDeque<InFlight<T>>) -> Option<Completed<T>> {
        if !self.gives_back(held.front()?) {
            return None;
        }
        held.pop_front().map(Completed::new)
    }

    #[inline]
    fn gives_back<T>(&self, held: &InFlight<T>) -> bool {
        held.queue() == self.id && self.is_finished(held.ticket())
    }

    #[inline(always)]
    fn finished(&self) -> u64 {
        self.limit - self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_ended() -> Completion {
        Completion {
            status: CompletionStatus::Success,
            opcode: CompletionOpcode::Write,
            ..Completion::EMPTY
        }
    }

    #[test]
    fn one_of_n_is_signaled_and_ends_them_all() {
        let mut queue = SendQueue::new(8, 4);
        let flags: Vec<bool> = (0..8)
            .map(|_| queue.enter().contains(SendFlags::SIGNALED))
            .collect();
        let fourth = [false, false, false, true];
        assert_eq!(flags, [fourth, fourth].concat());
        assert!(!queue.has_entries(1));
        assert_eq!((queue.outstanding(), queue.signaled()), (8, 2));
        assert_eq!(queue.complete(&write_ended()), Ok(Ended::Requests(4)));
        assert!(queue.has_entries(4) && !queue.has_entries(5));
    }

    #[test]
    fn a_completion_that_nobody_asked_for_ends_nothing() {
        let mut queue = SendQueue::new(8, 4);
        let waited_for = queue.post(3, false);
        assert_eq!(queue.complete(&write_ended()), Ok(Ended::Requests(0)));
        assert!(!queue.is_finished(waited_for));
    }

    #[test]
    fn a_list_that_was_taken_in_part_keeps_its_buffers() {
        let mut queue = SendQueue::new(8, 4);
        queue.post(2, true);
        let before = queue.hold([1u8; 4]);
        queue.fail();
        queue.post(4, true);
        let part = queue.hold([2u8; 4]);
        assert_eq!(queue.complete(&write_ended()), Ok(Ended::Requests(2)));
        assert!(queue.finish(before).is_ok());
        assert_eq!(queue.complete(&write_ended()), Ok(Ended::Requests(0)));
        assert!(queue.finish(part).is_err());
    }

    #[test]
    fn a_name_is_kept_beside_a_value() {
        let mut queue = SendQueue::new(8, 1);
        queue.enter();
        let mut held = VecDeque::from([queue.hold((5, "five"))]);
        queue.enter();
        held.push_back(queue.hold((6, "six")));
        assert!(queue.finish_first(&mut held).is_none());
        assert_eq!(queue.complete(&write_ended()), Ok(Ended::Requests(1)));
        let (name, value) = queue.finish_first(&mut held).expect("the first").split();
        assert_eq!((name, value.into_inner()), (5, "five"));
        assert!(queue.finish_first(&mut held).is_none());
    }

    #[test]
    #[should_panic(expected = "one of 9 signaled")]
    fn a_queue_whose_entries_would_not_come_back_is_refused() {
        SendQueue::new(8, 9);
    }
}
