//! One stream on one side: received events, credit in both directions, and the tasks that wait.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use crate::{MetadataMap, Status};

/// An event received for a stream; events are kept in order.
#[derive(Debug)]
pub(crate) enum News {
    Head(MetadataMap),
    Message(Vec<u8>),
    /// The last one. The status of a client that has sent all its messages is OK.
    End(Status),
}

/// One stream, on one side.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) news: VecDeque<News>,
    /// Bytes of the received messages, with their costs.
    pub(super) held: usize,
    /// Bytes that the application has taken, for which no credit has been granted yet.
    pub(super) taken: usize,
    /// Credit that the peer still has; one message may bring it below zero.
    pub(super) granted: isize,
    /// Credit that this side still has.
    pub(super) credit: isize,
    pub(super) window: usize,
    /// Whether it is in the list of streams with credit to grant.
    pub(super) owes: bool,
    /// Whether a head or a message has been received.
    pub(super) has_begun: bool,
    /// Whether the peer has sent its end.
    pub(super) peer_ended: bool,
    /// Whether this side has sent its end.
    pub(super) ended: bool,
    /// Whether nobody reads here any more: what arrives is discarded.
    pub(super) deaf: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// The writer's place in the queue for room.
    pub(super) place: Option<u64>,
    /// The task that serves it, to be woken when it must stop.
    pub(super) task: Option<Waker>,
    /// The deadline of its call, if any.
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

    /// Releases held bytes; returns whether the stream now has credit to grant. Credit is granted half a window at a
    /// time, to avoid a frame for every message.
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

/// Stores a waker, without cloning it if it is the same.
pub(super) fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}
