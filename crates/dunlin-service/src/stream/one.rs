//! One stream on one side: what has come for it, what it may say and owes, and who waits for what.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use crate::{MetadataMap, Status};

/// What has come for a stream, in order.
#[derive(Debug)]
pub(crate) enum News {
    Head(MetadataMap),
    Message(Vec<u8>),
    /// The last. Of a client that has said all it is a status with the code OK.
    End(Status),
}

/// One stream, on one side.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) news: VecDeque<News>,
    /// Bytes of news, with their costs.
    pub(super) held: usize,
    /// Bytes that the application has taken and that credit was not given back for.
    pub(super) taken: usize,
    /// What the peer may still send; below zero by one message.
    pub(super) granted: isize,
    /// What this side may still send.
    pub(super) credit: isize,
    pub(super) window: usize,
    /// It is in the list of those that owe credit.
    pub(super) owes: bool,
    /// A head or a message has come.
    pub(super) has_begun: bool,
    /// The peer says no more.
    pub(super) peer_ended: bool,
    /// This side says no more.
    pub(super) ended: bool,
    /// Nobody here reads: what comes is thrown away.
    pub(super) deaf: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Where the writer waits for room.
    pub(super) place: Option<u64>,
    /// The task that serves it, where it is to be stopped.
    pub(super) task: Option<Waker>,
    /// When it ends, if its call has a deadline.
    pub(super) deadline: Option<Instant>,
}

impl Stream {
    pub(super) fn new(credit: usize, granted: usize, window: usize) -> Self {
        Self {
            news: VecDeque::new(),
            held: 0,
            taken: 0,
            granted: granted as isize,
            credit: credit as isize,
            window,
            owes: false,
            has_begun: false,
            peer_ended: false,
            ended: false,
            deaf: false,
            reader: None,
            writer: None,
            place: None,
            task: None,
            deadline: None,
        }
    }

    /// Bytes are held no more: whether credit is owed for them from now on. Half a window at a time, so that credit is
    /// not said with each message.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.taken += bytes;
        let begins = !self.owes && !self.peer_ended && 2 * self.taken >= self.window;
        self.owes |= begins;
        begins
    }

    pub(super) fn end(&mut self, status: Status) {
        self.peer_ended = true;
        self.ended = true;
        self.news.push_back(News::End(status));
    }
}

/// Keeps a waker, without a copy where it is known.
pub(super) fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}
