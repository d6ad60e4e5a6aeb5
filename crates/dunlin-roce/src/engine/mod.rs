//! The internals of a queue pair: its protocol, its posted requests, and how packets become completions.
//!
//! An [`Engine`] is protected by one lock, which is taken by the thread that posts and by threads that receive packets
//! from the socket.

mod congestion;
mod datagram;
mod error;
mod reliable;
mod shared;
mod target;
mod transmit;
mod unreliable;

pub(crate) use datagram::Datagram;
pub(crate) use shared::{Parts, Shared};

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use congestion::Notifications;
use dunlin_verbs::{Access, CompletionStatus};

use crate::packet::Psn;
use crate::postponed::{MAX_POSTPONED, UNDER_WAY};
use crate::reliable::{Request, Requester, Responder};
use crate::socket::{Path, Train};
use crate::sync::now_ns;
use crate::unreliable::{Receiver, Sender};
use crate::work::{Receive, Send};

/// The protocol of the queue pair.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// Not connected yet.
    None,
    /// RC.
    Reliable {
        requester: Box<Requester>,
        responder: Box<Responder>,
    },
    /// UC.
    Unreliable { sender: Sender, receiver: Receiver },
    /// UD.
    Datagram { next: Psn },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    /// What peers may do through this queue pair.
    pub(crate) access: Access,
    /// Sequence number of the first packet sent.
    pub(crate) first_psn: Psn,
    pub(crate) path: Option<Path>,
    /// The path MTU that both ends of a connection agreed on.
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) protocol: Protocol,
    /// Posted sends that have not completed, in order.
    sends: VecDeque<Send>,
    /// Those of them that have not been passed to the protocol, because the send queue is drained.
    held_back: VecDeque<Request>,
    /// Number of sends that have completed so far.
    ended: u64,
    /// The RECEIVE that is being filled by a message.
    current: Option<Receive>,
    /// The earliest time for which a timer is set.
    timer_ns: Option<u64>,
    /// When an acknowledgement must be sent at the latest.
    acknowledge_ns: Option<u64>,
    /// Whether that is registered with the timers.
    acknowledgement_is_set: bool,
    /// Number of packets received since the last acknowledgement.
    unacknowledged: u32,
    /// When those are acknowledged even without a request.
    unasked_ns: Option<u64>,
    /// Congestion notifications for the peer.
    notifications: Notifications,
    /// Number of requests posted since it last sent, which wait for the next poll.
    postponed: usize,
    /// Whether it has received packets since it last sent: the thread that received them then makes it send, once.
    pub(crate) is_touched: bool,
}

impl Engine {
    pub(crate) fn new(first_psn: Psn) -> Self {
        Self {
            access: Access::empty(),
            first_psn,
            path: None,
            mtu_bytes: None,
            protocol: Protocol::None,
            sends: VecDeque::new(),
            held_back: VecDeque::new(),
            ended: 0,
            current: None,
            timer_ns: None,
            acknowledge_ns: None,
            acknowledgement_is_set: false,
            unacknowledged: 0,
            unasked_ns: None,
            notifications: Notifications::default(),
            postponed: 0,
            is_touched: false,
        }
    }

    /// Keeps a send, and returns the number by which the protocol knows it.
    pub(crate) fn keep(&mut self, send: Send) -> u64 {
        self.sends.push_back(send);
        self.ended + self.sends.len() as u64 - 1
    }

    /// The send with this number.
    fn send(&self, number: u64) -> Option<&Send> {
        let index = usize::try_from(number.checked_sub(self.ended)?).ok()?;
        self.sends.get(index)
    }

    /// Passes a request to the protocol, or keeps it until the send queue resumes.
    pub(crate) fn post(&mut self, request: Request, held_back: bool) {
        if held_back || !self.held_back.is_empty() {
            self.held_back.push_back(request);
            return;
        }
        match &mut self.protocol {
            Protocol::Reliable { requester, .. } => {
                let posted = requester.post(request);
                debug_assert!(posted.is_ok(), "{posted:?}: the send queue has checked it");
            }
            Protocol::Unreliable { sender, .. } => sender.post(request),
            Protocol::Datagram { .. } | Protocol::None => {}
        }
    }

    /// Lets the newest `requests` wait for the next poll of the socket, if that is allowed; returns whether they wait.
    /// Otherwise the caller sends them immediately.
    pub(crate) fn postpone(&mut self, shared: &Shared, now_ns: u64, requests: usize) -> bool {
        let core = &shared.core;
        // While the device's thread sleeps until something arrives, nobody would send them.
        let is_awake = || core.wakes_ns.load(Ordering::SeqCst) == 0;
        let waiting = self.postponed + requests;
        let may_wait = matches!(self.protocol, Protocol::Reliable { .. })
            && self.sends.len() >= waiting + UNDER_WAY
            && waiting <= MAX_POSTPONED
            && core.postponed.has_just_found(now_ns)
            && is_awake();
        if !may_wait {
            return false;
        }
        if self.postponed == 0 {
            core.postponed.push(shared.number);
        }
        self.postponed = waiting;
        // Checked again, because that thread looks for waiting requests only after it has announced its sleep.
        is_awake()
    }

    /// Sends the requests that wait for the next poll.
    pub(crate) fn send_postponed(&mut self, shared: &Shared, train: &mut Train) {
        if self.postponed > 0 {
            self.progress(shared, now_ns(), train);
        }
    }

    /// Passes the requests that were held back to the protocol.
    pub(crate) fn release(&mut self) {
        for request in std::mem::take(&mut self.held_back) {
            self.post(request, false);
        }
    }

    /// Completes the oldest send.
    pub(crate) fn end_send(&mut self, shared: &Shared, status: CompletionStatus) {
        if let Some(send) = self.sends.pop_front() {
            self.ended += 1;
            shared.complete_send(&send, status, self.ended as u32);
        }
    }

    /// Completes the sends that the requester has finished, each with its status.
    fn report_finished(&mut self, shared: &Shared) {
        while let Protocol::Reliable { requester, .. } = &mut self.protocol {
            let Some(finished) = requester.poll_finished() else {
                return;
            };
            self.end_send(shared, finished.status);
        }
    }

    /// Clears all state, for a queue pair that is reset. Returns the total number of sends so far.
    pub(crate) fn reset(&mut self, shared: &Shared, first_psn: Psn) -> u64 {
        // It may contain part of a message. In a shared queue it belongs to others, too, and no completion would tell
        // the owner that it is gone.
        if let (true, Some(receive)) = (shared.shares_receives, self.current.take()) {
            shared.receives.put_back(receive);
        }
        let ended = self.ended + self.sends.len() as u64;
        *self = Self::new(first_psn);
        self.ended = ended;
        ended
    }
}
