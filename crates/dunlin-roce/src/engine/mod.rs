//! The inside of a queue pair: its protocol, what is posted on it, and how packets become completions.
//!
//! An [`Engine`] is behind one lock, which its poster takes, and whoever takes packets off the socket.

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

/// How the queue pair speaks with its peer, once it has one.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// It has none yet.
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
    /// Sequence number of our first packet.
    pub(crate) first_psn: Psn,
    pub(crate) path: Option<Path>,
    /// The path MTU on which both ends of a connection agree.
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) protocol: Protocol,
    /// Posted sends that have not ended, in order.
    sends: VecDeque<Send>,
    /// Those of them that the protocol does not know yet, because the send queue is drained.
    held_back: VecDeque<Request>,
    /// Sends that have ended so far.
    ended: u64,
    /// The RECEIVE that a message is coming into.
    current: Option<Receive>,
    /// The earliest time for which a timer was set.
    timer_ns: Option<u64>,
    /// When an acknowledgement goes out, whatever else does.
    acknowledge_ns: Option<u64>,
    /// Whether that is noted where time is kept.
    acknowledgement_is_set: bool,
    /// Packets taken since the last acknowledgement.
    unacknowledged: u32,
    /// When those are acknowledged although nobody asked for it.
    unasked_ns: Option<u64>,
    /// What is told the peer of marked packets.
    notifications: Notifications,
    /// Requests posted since it last sent, which wait for the next look.
    postponed: usize,
    /// Whether it has got packets since it last sent: whoever took them has it send, once.
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

    /// Keeps a send, and says by which number the protocol is to know it.
    pub(crate) fn keep(&mut self, send: Send) -> u64 {
        self.sends.push_back(send);
        self.ended + self.sends.len() as u64 - 1
    }

    /// The send of a number.
    fn send(&self, number: u64) -> Option<&Send> {
        let index = usize::try_from(number.checked_sub(self.ended)?).ok()?;
        self.sends.get(index)
    }

    /// Hands a request to the protocol, or keeps it for when the send queue goes on.
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

    /// Has the newest `requests` wait for the next look at the socket, if they may. They go out at once otherwise.
    pub(crate) fn postpone(&mut self, shared: &Shared, now_ns: u64, requests: usize) -> bool {
        let core = &shared.core;
        // While the device's thread sleeps until something comes nobody would see to them.
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
        // It looks whether any wait after it has said that it sleeps.
        is_awake()
    }

    /// Sends the requests that wait for the next look.
    pub(crate) fn send_postponed(&mut self, shared: &Shared, train: &mut Train) {
        if self.postponed > 0 {
            self.progress(shared, now_ns(), train);
        }
    }

    /// Hands over what was held back.
    pub(crate) fn release(&mut self) {
        for request in std::mem::take(&mut self.held_back) {
            self.post(request, false);
        }
    }

    /// The oldest send has ended.
    pub(crate) fn end_send(&mut self, shared: &Shared, status: CompletionStatus) {
        if let Some(send) = self.sends.pop_front() {
            self.ended += 1;
            shared.complete_send(&send, status, self.ended as u32);
        }
    }

    /// Ends the sends that the requester has finished, each as it says.
    fn report_finished(&mut self, shared: &Shared) {
        while let Protocol::Reliable { requester, .. } = &mut self.protocol {
            let Some(finished) = requester.poll_finished() else {
                return;
            };
            self.end_send(shared, finished.status);
        }
    }

    /// Forgets everything, for a queue pair that is reset. Says how many sends there have been.
    pub(crate) fn reset(&mut self, shared: &Shared, first_psn: Psn) -> u64 {
        // Half a message may have come into it. Of a shared queue it is others', too, and no completion tells its owner
        // that it is gone.
        if let (true, Some(receive)) = (shared.shares_receives, self.current.take()) {
            shared.receives.put_back(receive);
        }
        let ended = self.ended + self.sends.len() as u64;
        *self = Self::new(first_psn);
        self.ended = ended;
        ended
    }
}
