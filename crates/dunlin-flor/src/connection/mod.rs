//! The logical connection (Flor §3.2): both directions, over several queue pairs, as one state machine.
//!
//! Events are passed in by method calls, each with the time; [`Connection::poll`] returns actions until there are none,
//! and [`Connection::next_deadline`] returns the time of the next poll if there is no event before. The bytes of
//! messages, memory and queue pairs belong to the driver.

mod action;
mod config;
mod context;
mod inbound;
mod outbound;
mod paths;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use dunlin_verbs::{EndpointAddress, RemoteAddress};

pub use action::{
    Action, Delivery, Failure, Incoming, LostBy, MessageId, Piece, Verb, WorkRequest,
};
pub use config::{Config, Deployment, LateWrites, Modules, Network};
pub use context::Counters;
pub use inbound::Received;

use crate::ack::{Ack, AckError};
use crate::number::GlobalNumber;
use crate::wire::{Content, Header, HeaderError, MAX_SEND_BYTES};
use context::Context;
use inbound::Inbound;
use outbound::Outbound;
use paths::Paths;

/// Why a configuration is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or too large.
    #[error("{name} is {value}: it must be from {least} to {most}")]
    Limit {
        /// Name of the limit.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
}

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It is longer than offsets can express.
    #[error("message too long: {bytes} bytes, the limit is {limit}, given the units and bits of chunk offsets")]
    TooLong {
        /// Length in bytes.
        bytes: u32,
        /// The maximum length.
        limit: u64,
    },
    /// Too many messages are not finished.
    #[error("too many messages in flight: the limit is {limit}; wait until one is finished")]
    Full {
        /// Maximum number of messages.
        limit: usize,
    },
    /// The connection is lost.
    #[error("the connection is lost: connect again")]
    Lost,
}

impl Config {
    /// Maximum length of a message in bytes, with units of this length.
    pub fn max_message_bytes(&self, unit_bytes: u32) -> u64 {
        let reach = u64::from(self.layout.max_units()) * u64::from(unit_bytes);
        reach.min(u32::MAX.into())
    }

    fn check(&self, unit_bytes: u32) -> Result<(), ConfigError> {
        let sent = u64::from(MAX_SEND_BYTES);
        // 16 bits in the header must distinguish one epoch from the others.
        let paths = 1 << 8;
        let window = u64::from(crate::receiver::ReceivedNumbers::MAX_WINDOW);
        let most = usize::MAX as u64;
        // Half of the layout's message numbers, so that no number is reused while it is in use.
        let written = u64::from(self.layout.messages() / 2);
        for (name, value, least, most) in [
            ("unit_bytes", unit_bytes.into(), 1, sent),
            ("max_sent_bytes", self.max_sent_bytes.into(), 1, sent),
            ("paths", self.paths as u64, 1, paths),
            (
                "connected_paths",
                self.connected_paths as u64,
                1,
                self.paths as u64,
            ),
            (
                "max_fragment_bytes",
                self.max_fragment_bytes.into(),
                unit_bytes.into(),
                sent,
            ),
            ("send_queue", self.send_queue as u64, 1, most),
            ("peer_receives", self.peer_receives as u64, 3, most),
            ("number_window", self.number_window.into(), 64, window),
            ("max_messages", self.max_messages as u64, 1, most),
            ("max_written", self.max_written as u64, 1, written),
            ("max_assembled", self.max_assembled as u64, 1, most),
            ("probe_ns", self.probe_ns, 1, u64::MAX),
        ] {
            if value < least || value > most {
                return Err(ConfigError::Limit {
                    name,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    cx: Context,
    outbound: Outbound,
    inbound: Inbound,
    /// When the peer was last heard from or probed.
    heard_ns: u64,
    ended: bool,
}

impl Connection {
    /// Creates a connection whose first [`Config::connected_paths`] queue pairs are connected.
    ///
    /// # Errors
    /// When a limit is out of range.
    pub fn new(config: Config, modules: Modules) -> Result<Self, ConfigError> {
        config.check(modules.chunking.unit_bytes())?;
        Ok(Self {
            outbound: Outbound::new(),
            inbound: Inbound::new(config.number_window, config.ack_triggers),
            cx: Context {
                paths: Paths::new(config.paths, config.connected_paths),
                actions: VecDeque::new(),
                counters: Counters::default(),
                lost: false,
                lost_by: None,
                config,
                modules,
            },
            heard_ns: 0,
            ended: false,
        })
    }

    /// Sets the numbers by which acknowledgements name the two ends: [`Config::own_queue_pair`],
    /// [`Config::peer_queue_pair`]. The peer's is known only once it has sent its address.
    pub fn name(&mut self, own_queue_pair: u32, peer_queue_pair: u32) {
        self.cx.config.own_queue_pair = own_queue_pair;
        self.cx.config.peer_queue_pair = peer_queue_pair;
    }

    /// Submits a message of this length. Its bytes must not change before it is finished. A message with a `tag` is
    /// written however short it is: the peer's user receives the tag when it is asked for memory.
    ///
    /// # Errors
    /// When the message is too long or there are too many.
    pub fn submit(&mut self, now_ns: u64, bytes: u32, tag: u32) -> Result<MessageId, SubmitError> {
        if self.cx.lost {
            return Err(SubmitError::Lost);
        }
        let limit = self.max_message_bytes();
        if u64::from(bytes) > limit {
            return Err(SubmitError::TooLong { bytes, limit });
        }
        let limit = self.cx.config.max_messages;
        if self.outbound.messages.len() >= limit {
            return Err(SubmitError::Full { limit });
        }
        if self.is_idle() {
            self.heard_ns = now_ns;
        }
        let written = tag != 0 || bytes > self.cx.config.max_sent_bytes;
        Ok(self.outbound.submit(bytes, written, tag))
    }

    /// Gives up those of these messages that are not finished: from now on no work request with their bytes is issued,
    /// not even a retransmission. Each is finished when the NIC has completed those already issued.
    pub fn abandon(&mut self, which: impl Fn(MessageId) -> bool) {
        self.outbound.abandon(&mut self.cx, which);
    }

    /// Whether a message is not finished, so that the NIC may still read its bytes.
    pub fn is_under_way(&self, id: MessageId) -> bool {
        self.outbound.messages.get(id.0).is_some()
    }

    /// Maximum length of a message in bytes.
    pub fn max_message_bytes(&self) -> u64 {
        let unit = self.cx.modules.chunking.unit_bytes();
        self.cx.config.max_message_bytes(unit)
    }

    /// Records that a work request has completed, at `at_ns` by the clock of `now_ns` if it succeeded; `None` means
    /// that its queue pair has failed.
    pub fn completed(&mut self, now_ns: u64, global: GlobalNumber, at_ns: Option<u64>) {
        if at_ns.is_some() && self.cx.modules.reliability.completion_acknowledges() {
            self.heard_ns = now_ns;
        }
        self.outbound.completed(&mut self.cx, now_ns, global, at_ns);
        self.end_if_lost();
    }

    /// Records that the device has reported the failure of a queue pair.
    pub fn path_failed(&mut self, now_ns: u64, path: usize) {
        let by = LostBy::QueuePair;
        self.outbound.path_failed(&mut self.cx, now_ns, path, by);
        self.end_if_lost();
    }

    /// Handles a SEND of `bytes`. `front` is its beginning: all of it, or at least the header and 48 bytes.
    ///
    /// # Errors
    /// When it does not belong to this protocol. Its receive buffer is recycled like any other.
    pub fn received_send(
        &mut self,
        now_ns: u64,
        received: Received,
        front: &[u8],
        bytes: usize,
    ) -> Result<(), HeaderError> {
        let header = Header::decode(front, bytes, self.cx.config.layout).inspect_err(|_| {
            self.cx.counters.violations += 1;
            self.cx.actions.push_back(Action::Recycle(received.receive));
        })?;
        if self.cx.lost {
            self.cx.actions.push_back(Action::Recycle(received.receive));
            return Ok(());
        }
        self.heard_ns = now_ns;
        // A SEND from a past epoch was in flight when this end left that epoch: on RC the peer may consider it
        // delivered.
        let epoch = self.cx.paths.epoch_of(header.epoch);
        if self.cx.paths.is_ahead(epoch, received.path) {
            self.outbound.change_epoch(&mut self.cx, now_ns, epoch);
        }
        if epoch == self.cx.paths.epoch() {
            self.cx.paths.confirm();
        }
        let unsaid = match header.content {
            Content::Announce { .. } => self.outbound.unsaid_answers(),
            _ => 0,
        };
        let own = (self.inbound).send(&mut self.cx, now_ns, &header, received, unsaid);
        match own {
            Some(Content::Grant { message, place }) => self.outbound.grant(message, place),
            Some(Content::Refuse { message }) => self.outbound.refuse(&mut self.cx, message),
            Some(Content::Renewed { path, address }) => {
                if let Some((path, step)) = self.cx.paths.peer_renewed(path, address, epoch) {
                    self.cx.step(path, step);
                }
            }
            Some(Content::Ready { path }) => self.cx.paths.peer_ready(path, epoch),
            Some(Content::Acknowledgements { address }) => {
                self.cx.actions.push_back(Action::AcknowledgeTo(address));
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a WRITE with immediate data.
    pub fn received_write(
        &mut self,
        now_ns: u64,
        received: Received,
        immediate: u32,
        bytes: usize,
    ) {
        if self.cx.lost {
            self.cx.actions.push_back(Action::Recycle(received.receive));
            return;
        }
        self.heard_ns = now_ns;
        let bytes = bytes as u64;
        self.inbound
            .write(&mut self.cx, now_ns, immediate, bytes, received);
    }

    /// Handles an acknowledgement that arrived at `at_ns` by the clock of `now_ns`.
    ///
    /// # Errors
    /// When it is not a valid acknowledgement.
    pub fn received_ack(&mut self, now_ns: u64, bytes: &[u8], at_ns: u64) -> Result<(), AckError> {
        let ack = Ack::decode(bytes).inspect_err(|_| self.cx.counters.violations += 1)?;
        if ack.queue_pair != self.cx.config.own_queue_pair {
            self.cx.counters.violations += 1;
        } else if !self.cx.lost && !self.cx.modules.reliability.completion_acknowledges() {
            self.heard_ns = now_ns;
            self.outbound
                .acknowledged(&mut self.cx, now_ns, &ack, at_ns);
        }
        Ok(())
    }

    /// Provides memory for a message of the peer.
    pub fn provide(&mut self, message: u32, place: RemoteAddress) {
        if self.inbound.provided(message, true) {
            self.outbound.say(Content::Grant { message, place });
        }
    }

    /// Refuses a message of the peer for lack of memory.
    pub fn refuse(&mut self, message: u32) {
        if self.inbound.provided(message, false) {
            self.outbound.say(Content::Refuse { message });
        }
    }

    /// Records that a queue pair was renewed as [`Action::Renew`] requested; called once for all such actions since the
    /// last call.
    pub fn renewed(&mut self, path: usize, address: EndpointAddress) {
        if self.cx.lost {
            return;
        }
        let step = self.cx.paths.renewed(path);
        self.outbound.say(Content::Renewed {
            path: path as u32,
            address,
        });
        if let Some(step) = step {
            self.cx.step(path, step);
        }
    }

    /// Records that a queue pair was connected as [`Action::Connect`] requested; to be called before any other event.
    pub fn connected(&mut self, path: usize) {
        if self.cx.paths.connected(path) && !self.cx.lost {
            self.outbound.say(Content::Ready { path: path as u32 });
        }
    }

    /// Tells the peer where this side receives acknowledgements.
    pub fn acknowledged_at(&mut self, address: EndpointAddress) {
        self.outbound.say(Content::Acknowledgements { address });
    }

    /// Probes the peer, unless something is in flight that it has to acknowledge anyway.
    pub fn probe(&mut self) {
        if !self.cx.lost && self.outbound.is_quiet() {
            self.outbound.say(Content::Empty);
        }
    }

    /// When the peer was last heard from or probed.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Returns the next action, if any.
    pub fn poll(&mut self, now_ns: u64) -> Option<Action> {
        self.outbound.handle_timer(&mut self.cx, now_ns);
        self.end_if_lost();
        if self.probe_ns().is_some_and(|probe| probe <= now_ns) {
            self.heard_ns = now_ns;
            self.outbound.say(Content::Empty);
        }
        if let Some(action) = self.cx.actions.pop_front() {
            return Some(action);
        }
        if self.cx.lost {
            return None;
        }
        let peer = self.cx.config.peer_queue_pair;
        if let Some(ack) = self.inbound.acks.take(now_ns, peer) {
            self.cx.counters.acks += 1;
            return Some(Action::Acknowledge(ack));
        }
        let work = self.outbound.next(&mut self.cx, now_ns)?;
        self.cx.counters.posted += 1;
        Some(Action::Post(work))
    }

    /// When to poll next if there is no event before. To be called when [`Connection::poll`] has returned nothing.
    pub fn next_deadline(&self, now_ns: u64) -> Option<u64> {
        if self.cx.lost {
            return None;
        }
        let paced = self.cx.modules.congestion.not_before_ns();
        let full = self.outbound.in_flight_bytes() >= self.cx.modules.congestion.window_bytes();
        [
            self.inbound.acks.deadline_ns(),
            self.outbound.timer_ns(),
            self.probe_ns(),
            (self.outbound.has_more() && !full && paced > now_ns).then_some(paced),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When to probe the peer: it owes a message, and nothing is in flight whose loss would be noticed.
    fn probe_ns(&self) -> Option<u64> {
        let waits =
            self.outbound.waits_in_silence() || self.inbound.waits() && self.outbound.is_quiet();
        let at_ns = self.heard_ns.saturating_add(self.cx.config.probe_ns);
        (waits && !self.cx.lost).then_some(at_ns)
    }

    fn end_if_lost(&mut self) {
        if !self.cx.lost || self.ended {
            return;
        }
        self.ended = true;
        for path in 0..self.cx.paths.count() {
            self.cx.actions.push_back(Action::Fence { path });
        }
        self.inbound.give_up(&mut self.cx);
        self.outbound.give_up(&mut self.cx);
        self.cx.actions.push_back(Action::Lost);
    }

    /// Whether no message is in flight in either direction.
    pub fn is_idle(&self) -> bool {
        self.outbound.messages.is_empty() && !self.inbound.waits()
    }

    /// Whether the connection has failed.
    pub fn is_lost(&self) -> bool {
        self.cx.lost
    }

    /// Why the connection has failed, if it has.
    pub fn lost_by(&self) -> Option<LostBy> {
        self.cx.lost_by
    }

    /// Index of the queue pair in use.
    pub fn primary(&self) -> usize {
        self.cx.paths.primary()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.cx.counters
    }

    /// The modules, for inspection.
    pub fn modules(&self) -> &Modules {
        &self.cx.modules
    }
}
