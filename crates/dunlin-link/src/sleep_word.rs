//! Sleep and wake-ups between the two ends of a queue pair: an end that has announced its sleep is woken by the peer's
//! next notification.
//!
//! To sleep, an end WRITEs a new number into the *sleep word* of its peer. After each thing that the peer publishes, it
//! compares that word with the number that it answered last; if they differ, it posts one empty WRITE with immediate,
//! which consumes one of a few RECEIVEs and raises the event of the sleeper's completion channel. So one sleep costs
//! the peer one such WRITE, not one for each message.
//!
//! An end must not sleep before its announcement is known to have arrived, because a peer that has not received it
//! wakes nobody; nor after its announcement was answered, because it is answered only once. The owner must do the
//! following:
//!
//! 1. WRITE [`SleepWord::announce`], signaled, and call [`SleepWord::announced`].
//! 2. Once [`SleepWord::is_heard`], request an event, take the available completions, and check [`SleepWord::is_heard`]
//!    again: a wake-up that came before the event was requested raises none.
//! 3. Keep polling for longer than a store takes to become visible: the peer publishes and then reads its sleep word;
//!    this end writes that word and then polls. No fence orders the two pairs across separate memories.
//!
//! Each RECEIVE that a wake-up consumed is posted again, after [`SleepWord::woken`].

use std::sync::atomic::Ordering;

use dunlin_verbs::{Memory, Operation, RemoteAddress};

use crate::in_flight::Ticket;
use crate::send_queue::SendQueue;

/// Number of RECEIVEs kept posted for wake-ups. An honest peer has one in flight, and one more that arrives late.
pub const WAKE_RECEIVES: usize = 8;

/// The state of the sleeps of one end and of its peer.
#[derive(Debug)]
pub struct SleepWord {
    /// Offset of the peer's number in local memory, and the address of ours in the peer's memory.
    at: usize,
    remote: RemoteAddress,
    /// The peer's number that was answered last.
    answered: u64,
    /// The number of our latest sleep, and whether the peer still has to answer it.
    number: u64,
    unanswered: bool,
    announcement: Ticket,
}

impl SleepWord {
    /// The peer writes its number at `at` in local memory; ours is written to `remote`.
    pub fn new(at: usize, remote: RemoteAddress) -> Self {
        Self {
            at,
            remote,
            answered: 0,
            number: 0,
            unanswered: false,
            announcement: Ticket::default(),
        }
    }

    /// The number of the peer's sleep, if it has not been answered. `inlet` is the memory that the peer writes.
    #[inline(always)]
    pub fn unanswered(&self, inlet: &Memory) -> Option<u64> {
        let number = inlet.atomic_u64(self.at).load(Ordering::Relaxed);
        self.is_unanswered_number(number).then_some(number)
    }

    #[inline(always)]
    pub(crate) fn is_unanswered_number(&self, number: u64) -> bool {
        number != self.answered
    }

    /// The empty WRITE that wakes the peer. It must be solicited.
    pub fn wake_up(&self) -> Operation {
        Operation::Write {
            remote: self.remote,
            immediate: Some(0),
        }
    }

    /// Records that the peer's sleep with this number has been answered by a wake-up.
    pub fn answer(&mut self, number: u64) {
        self.answered = number;
    }

    /// Whether a sleep has been announced, or is about to be, and has not been answered.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// What must be WRITTEN to announce a sleep: the same number until it is answered, then a new one.
    pub fn announce(&mut self) -> (Operation, [u8; 8]) {
        if !self.unanswered {
            self.number += 1;
            self.unanswered = true;
        }
        let write = Operation::Write {
            remote: self.remote,
            immediate: None,
        };
        (write, self.number.to_le_bytes())
    }

    /// Records that the announcement was posted.
    pub fn announced(&mut self, request: Ticket) {
        self.announcement = request;
    }

    /// Whether the peer is known to have received the announcement of a sleep and has not answered it.
    pub fn is_heard(&self, sends: &SendQueue) -> bool {
        self.unanswered && sends.is_finished(self.announcement)
    }

    /// The ticket of the last announcement that was posted.
    pub fn announcement(&self) -> Ticket {
        self.announcement
    }

    /// Records a wake-up, whichever caller polled for it: the next sleep must be announced again.
    #[inline]
    pub fn woken(&mut self) {
        self.unanswered = false;
    }
}
