//! Sleep and wake-ups between the two ends of a queue pair: an end that has announced its sleep is woken by the next
//! thing that its peer tells it.
//!
//! Who wants to sleep WRITEs a new number into the *sleep word* of its peer. The peer compares that word with the
//! number that it answered last, each time after it has told something; when they differ it posts one empty WRITE with
//! immediate, which takes one of a few RECEIVEs and raises the event of the sleeper's completion channel. So one sleep
//! costs its peer one such WRITE, not one for each message.
//!
//! Nobody sleeps before its announcement is known to have arrived, because a peer that has not heard of a sleep wakes
//! nobody; and nobody whose announcement was answered, because it is answered once. What is asked of the owner:
//!
//! 1. WRITE [`SleepWord::announce`], signaled, and say so by [`SleepWord::announced`].
//! 2. When [`SleepWord::is_heard`], ask for an event, take what completions there are, and ask [`SleepWord::is_heard`]
//!    again: a wake-up that came before the event was asked for raises none.
//! 3. Look on for what may have come, for longer than a store takes to become visible: the peer tells and then looks at
//!    its word; we write that word and then look. Across two memories no fence orders the two pairs.
//!
//! Each RECEIVE that a wake-up took is posted again, after [`SleepWord::woken`].

use std::sync::atomic::Ordering;

use dunlin_verbs::{Memory, Operation, RemoteAddress};

use crate::in_flight::Ticket;
use crate::send_queue::SendQueue;

/// RECEIVEs kept posted for wake-ups. An honest peer has one under way, and one more that comes late.
pub const WAKE_RECEIVES: usize = 8;

/// What one end knows of its sleeps and its peer's.
#[derive(Debug)]
pub struct SleepWord {
    /// Where the peer's number is in memory of ours, and ours in memory of the peer.
    at: usize,
    remote: RemoteAddress,
    /// The number of the peer's that was answered last.
    answered: u64,
    /// The number of our latest sleep, and whether the peer still has to answer it.
    number: u64,
    unanswered: bool,
    announcement: Ticket,
}

impl SleepWord {
    /// The peer writes its number at `at` of ours; ours goes to `remote`.
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

    /// The WRITE of nothing that wakes the peer. It is to be solicited.
    pub fn wake_up(&self) -> Operation {
        Operation::Write {
            remote: self.remote,
            immediate: Some(0),
        }
    }

    /// The peer's sleep of this number has been answered by a wake-up.
    pub fn answer(&mut self, number: u64) {
        self.answered = number;
    }

    /// Whether a sleep was announced, or is about to be, and has not been answered.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// What is to be WRITTEN to announce a sleep: the same number until it is answered, and then a new one.
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

    /// The announcement was posted.
    pub fn announced(&mut self, request: Ticket) {
        self.announcement = request;
    }

    /// Whether the peer is known to have heard of a sleep of ours, and has not answered it.
    pub fn is_heard(&self, sends: &SendQueue) -> bool {
        self.unanswered && sends.is_finished(self.announcement)
    }

    /// The last announcement that was posted.
    pub fn announcement(&self) -> Ticket {
        self.announcement
    }

    /// A wake-up came, whoever was looking: the next sleep is announced anew.
    #[inline]
    pub fn woken(&mut self) {
        self.unanswered = false;
    }
}
