//! External events of a queue pair: packets, timers, and sending.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dunlin_verbs::{Access, CompletionStatus, QueuePairState};

use super::reliable::UNASKED_NS;
use super::target::granted;
use super::{Engine, Protocol, Shared};
use crate::packet::{Header, Service};
use crate::reliable::{Responder, Transmit};
use crate::socket::{Count, Path, Socket, Train};
use crate::work::{Gone, Send};

/// How long an acknowledgement is delayed so that it can be sent together with another packet, in nanoseconds: about as
/// long as a server takes to answer a request. This saves every other system call of a ping-pong.
const ACKNOWLEDGE_DELAY_NS: u64 = 10_000;
/// Maximum number of answers, and of their bytes, sent in one turn: a peer may request a gigabyte while others wait.
const ANSWERS_PER_TURN: usize = 256;
const ANSWERED_BYTES_PER_TURN: usize = 1 << 20;
/// Interval at which a full socket is tried again, in nanoseconds.
const BLOCKED_NS: u64 = 50_000;

impl Engine {
    /// Handles a packet for this queue pair.
    pub(crate) fn handle(
        &mut self,
        shared: &Shared,
        now_ns: u64,
        source: &SocketAddr,
        header: &Header,
        payload: &[u8],
        marked: bool,
    ) {
        let statistics = &shared.core.socket.statistics;
        let from_peer = |engine: &Self| {
            let path = engine.path.as_ref();
            path.is_some_and(|path| path.peer.sends_from(source))
        };
        match (&self.protocol, header.service) {
            (Protocol::Reliable { .. }, Service::Reliable)
            | (Protocol::Unreliable { .. }, Service::Unreliable)
            | (Protocol::Reliable { .. } | Protocol::Unreliable { .. }, Service::Congestion)
                if !from_peer(self) =>
            {
                return statistics.count(Count::WrongSource);
            }
            (Protocol::Reliable { .. } | Protocol::Unreliable { .. }, Service::Congestion) => {
                return self.handle_notification(shared);
            }
            (Protocol::Reliable { .. }, Service::Reliable) => {
                self.handle_reliable(shared, now_ns, header, payload);
            }
            (Protocol::Unreliable { .. }, Service::Unreliable) => {
                self.handle_unreliable(shared, header, payload);
            }
            (Protocol::Datagram { .. }, Service::Datagram { .. }) => {
                self.handle_datagram(shared, source, header, payload);
            }
            _ => return statistics.count(Count::WrongState),
        }
        if marked {
            self.handle_mark(now_ns, header);
        }
    }

    /// Handles a time that was registered for this queue pair. Returns whether its timer has expired: a registration
    /// that was superseded by an earlier one is ignored.
    pub(crate) fn handle_timeout(&mut self, shared: &Shared, now_ns: u64) -> bool {
        if self.timer_ns.is_none_or(|timer_ns| timer_ns > now_ns) {
            return false;
        }
        self.timer_ns = None;
        if let Protocol::Reliable { requester, .. } = &mut self.protocol {
            if requester
                .deadline_ns()
                .is_some_and(|deadline_ns| deadline_ns <= now_ns)
            {
                shared.core.socket.statistics.count(Count::Retransmission);
                requester.handle_timeout(now_ns);
            }
        }
        true
    }

    /// Handles a time registered for an acknowledgement; returns whether there still is one to send, or to register
    /// again.
    pub(crate) fn handle_acknowledgement_due(&mut self) -> bool {
        self.acknowledgement_is_set = false;
        self.acknowledge_ns.is_some()
    }

    /// Sends what is to be sent, reports what has completed, and sets the timer.
    pub(crate) fn progress(&mut self, shared: &Shared, now_ns: u64, train: &mut Train) {
        self.postponed = 0;
        self.is_touched = false;
        let mut more = false;
        match &self.protocol {
            Protocol::Reliable { .. } => {
                more = self.transmit_reliable(shared, now_ns, train);
                // A user who learns that a request has completed, even by a failure, may change its memory.
                train.release(&shared.core.socket);
                self.finish_reliable(shared);
            }
            Protocol::Unreliable { .. } => self.transmit_unreliable(shared, train),
            Protocol::Datagram { .. } | Protocol::None => {}
        }
        self.notify(shared, train);
        train.send(&shared.core.socket);
        if shared.is_overrun() && !matches!(self.protocol, Protocol::None) {
            self.enter_error(shared);
        }
        self.set_timer(shared, now_ns, more);
    }

    /// Sends what the peer is owed, before the connection is given up. Its last message may have been delivered while
    /// the acknowledgement was delayed to be sent with other packets; a NIC would have sent it.
    pub(crate) fn acknowledge_last(&mut self, shared: &Shared, now_ns: u64, train: &mut Train) {
        if self.acknowledge_ns.is_none() && self.unasked_ns.is_none() {
            return;
        }
        (self.acknowledge_ns, self.unasked_ns) = (Some(now_ns), Some(now_ns));
        self.transmit_reliable(shared, now_ns, train);
        train.send(&shared.core.socket);
    }

    /// Sends answers first, then requests, then an acknowledgement: it is the shortest of them, so it fits at the end
    /// of a train. Returns whether there are more answers than one turn sends.
    fn transmit_reliable(&mut self, shared: &Shared, now_ns: u64, train: &mut Train) -> bool {
        let Some(path) = self.path else {
            return false;
        };
        let socket = &shared.core.socket;
        let Protocol::Reliable {
            requester,
            responder,
        } = &mut self.protocol
        else {
            return false;
        };
        let access = self.access;
        // Returns the number of payload bytes of the next answer; `None` if there is nothing to send.
        let respond = |responder: &mut Responder, train: &mut Train| {
            let response = responder.poll_transmit()?;
            let range = response.payload.map(|payload| payload.range);
            let Some(range) = range.filter(|range| range.bytes > 0) else {
                let _ = train.add(socket, &path, &response.header, 0, |_| Ok(()));
                responder.sent();
                return Some(0);
            };
            let bytes = range.bytes as usize;
            let added = granted(shared, access, &range, Access::REMOTE_READ)
                .map_err(|_| Gone)
                .and_then(|(region, offset)| {
                    train.add_from(socket, &path, &response.header, (&region, offset), bytes)
                });
            match added {
                Ok(()) => responder.sent(),
                Err(Gone) => responder.fail_read(),
            }
            Some(bytes)
        };
        let (mut answers, mut answered_bytes) = (0, 0);
        let mut more = false;
        while !responder.has_acknowledgement_only() && !socket.has_backlog() {
            let Some(bytes) = respond(responder, train) else {
                break;
            };
            answers += 1;
            answered_bytes += bytes;
            more = answers == ANSWERS_PER_TURN || answered_bytes >= ANSWERED_BYTES_PER_TURN;
            if more {
                break;
            }
        }
        let mut sent = false;
        let state = shared.state_in_engine();
        if matches!(
            state,
            QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
        ) && !socket.has_backlog()
        {
            while let Some(transmit) = requester.poll_transmit(now_ns) {
                let gathered = add_packet(train, socket, &path, &self.sends, self.ended, &transmit);
                sent = true;
                if gathered.is_err() {
                    requester.fail(CompletionStatus::LocalProtection);
                }
            }
        }
        if answers > 0 {
            // They acknowledge what came before them.
            self.acknowledge_ns = None;
        }
        if self
            .unasked_ns
            .is_some_and(|unasked_ns| unasked_ns <= now_ns)
        {
            let is_queued = responder.acknowledge_unasked();
            self.acknowledge_ns = Some(now_ns);
            // It is sent after the answers, however many turns these take; if they leave no space for it, it is tried
            // again.
            self.unasked_ns = (!is_queued).then_some(now_ns + UNASKED_NS);
        }
        if !responder.has_acknowledgement_only() {
            self.acknowledge_ns = None;
            return more;
        }
        let due = *self
            .acknowledge_ns
            .get_or_insert(now_ns + ACKNOWLEDGE_DELAY_NS);
        if sent || due <= now_ns {
            respond(responder, train);
            self.acknowledge_ns = None;
            self.unasked_ns = None;
            self.unacknowledged = 0;
        }
        more
    }

    /// Reports requests that have completed; after a failure of either end the queue pair goes to the error state.
    fn finish_reliable(&mut self, shared: &Shared) {
        let Protocol::Reliable {
            requester,
            responder,
        } = &self.protocol
        else {
            return;
        };
        let failed =
            requester.is_failed() || responder.is_failed() && responder.poll_transmit().is_none();
        if failed {
            // The state first: a user who has the completion of a failure may query it.
            return self.enter_error(shared);
        }
        self.report_finished(shared);
    }

    fn transmit_unreliable(&mut self, shared: &Shared, train: &mut Train) {
        let Some(path) = self.path else {
            return;
        };
        let socket = &shared.core.socket;
        loop {
            let Protocol::Unreliable { sender, .. } = &mut self.protocol else {
                return;
            };
            if shared.state_in_engine() == QueuePairState::ReadyToReceive || socket.has_backlog() {
                return;
            }
            let Some((transmit, last)) = sender.poll_transmit() else {
                return;
            };
            let gathered = add_packet(train, socket, &path, &self.sends, self.ended, &transmit);
            if last || gathered.is_err() {
                train.release(socket);
            }
            if gathered.is_err() {
                self.end_send(shared, CompletionStatus::LocalProtection);
                return self.enter_error(shared);
            }
            if last {
                self.end_send(shared, CompletionStatus::Success);
            }
        }
    }

    /// Registers the next time at which something is to be done, if it is earlier than what is registered already.
    fn set_timer(&mut self, shared: &Shared, now_ns: u64, more: bool) {
        let protocol_ns = match &self.protocol {
            Protocol::Reliable { requester, .. } => requester.deadline_ns(),
            Protocol::Unreliable { .. } | Protocol::Datagram { .. } => None,
            Protocol::None => return,
        };
        let blocked = shared.core.socket.has_backlog();
        let blocked_ns = blocked.then_some(now_ns + BLOCKED_NS);
        // Not in this poll, which other queue pairs wait for.
        let more_ns = more.then_some(now_ns + 1);
        if let (Some(due_ns), false) = (self.acknowledge_ns, self.acknowledgement_is_set) {
            self.acknowledgement_is_set = true;
            shared.core.set_acknowledgement(due_ns, shared.number);
        }
        let deadlines = [protocol_ns, self.unasked_ns, blocked_ns, more_ns];
        let Some(next_ns) = deadlines.into_iter().flatten().min() else {
            return;
        };
        // Not in this poll either, even if something is overdue: the earliest deadline would otherwise be handled first
        // each time.
        let next_ns = next_ns.max(now_ns + 1);
        if self.timer_ns.is_none_or(|timer_ns| next_ns < timer_ns) {
            self.timer_ns = Some(next_ns);
            shared.core.set_timer(next_ns, shared.number);
        }
    }
}

/// Adds a packet of a request to a train, with the bytes of its posted send. `ended` is the number of sends that
/// completed before the first of `sends`.
fn add_packet(
    train: &mut Train,
    socket: &Socket,
    path: &Path,
    sends: &VecDeque<Send>,
    ended: u64,
    transmit: &Transmit,
) -> Result<(), Gone> {
    let send = &sends[(transmit.id - ended) as usize];
    let (offset, bytes) = (transmit.offset as usize, transmit.bytes as usize);
    if let Some(source) = send.bytes.in_one_piece(offset, bytes) {
        return train.add_from(socket, path, &transmit.header, source, bytes);
    }
    train.add(socket, path, &transmit.header, bytes, |place| {
        send.bytes.gather(offset, place)
    })
}
