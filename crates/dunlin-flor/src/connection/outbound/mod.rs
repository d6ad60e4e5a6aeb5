//! The sending half: turns messages into work requests, and losses and failures into retransmissions.
//!
//! A *send* has a reliable number and is kept until one of its work requests is acknowledged. A *write* is kept until
//! its work request is acknowledged or, if that was lost, until the SENDs that retransmit it are (two-sided
//! retransmission, Flor §5). A number assigned to a send is never given up, since the peer waits for it: a send that is
//! not needed any more is retransmitted without bytes.

mod acknowledge;
mod repair;
mod transmit;

use std::collections::{HashMap, VecDeque};

use dunlin_verbs::RemoteAddress;

use super::action::{Failure, MessageId, Piece};
use super::context::Context;
use crate::ledger::Ledger;
use crate::number::WriteNumber;
use crate::round_trip::WorkTimes;
use crate::wire::Content;

#[derive(Debug)]
pub(in crate::connection) struct Message {
    pub(in crate::connection) bytes: u32,
    tag: u32,
    /// Its number among the written messages, or among the sent ones.
    pub(in crate::connection) number: u32,
    pub(in crate::connection) written: bool,
    pub(in crate::connection) place: Option<RemoteAddress>,
    pub(in crate::connection) sent: u32,
    pub(in crate::connection) all_sent: bool,
    /// Number of its sends and writes that are not acknowledged.
    pub(in crate::connection) open: u32,
    /// Number of work requests with its bytes that have not completed.
    posted: u32,
    pub(in crate::connection) failure: Option<Failure>,
}

impl Message {
    /// Takes its next bytes, at most `chunk`, to be sent; `id` is its own.
    fn cut(&mut self, id: u64, chunk: u32) -> Piece {
        let offset = self.sent;
        let bytes = chunk.min(self.bytes - offset);
        self.sent += bytes;
        self.open += 1;
        self.all_sent = self.sent == self.bytes;
        Piece {
            message: MessageId(id),
            offset,
            bytes,
        }
    }
}

/// A SEND that has no number yet.
#[derive(Debug)]
pub(in crate::connection) struct NewSend {
    pub(in crate::connection) content: Content,
    pub(in crate::connection) piece: Option<Piece>,
    /// The message in whose `open` it is counted.
    pub(in crate::connection) message: Option<u64>,
    /// The write that it retransmits.
    pub(in crate::connection) parent: Option<u32>,
}

impl NewSend {
    /// A SEND of the connection itself.
    pub(in crate::connection) fn control(content: Content) -> Self {
        Self {
            content,
            piece: None,
            message: None,
            parent: None,
        }
    }
}

#[derive(Debug)]
struct Send {
    new: NewSend,
    /// The last work request that carried it.
    latest: u64,
    timeouts: u32,
}

#[derive(Debug)]
struct Write {
    piece: Piece,
    /// Its only work request.
    global: u64,
    number: WriteNumber,
    /// Bytes still to be retransmitted, once retransmission has begun.
    remaining: u32,
    repeated: bool,
    /// Its message was given up: if it is lost, it is not retransmitted.
    abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// A send, by its number without wrapping.
    Send(u64),
    /// A write, by its reliable number without the hint.
    Write(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    Lost,
    Acknowledged,
}

#[derive(Debug)]
struct Work {
    carried: Carried,
    message: Option<u64>,
    epoch: u64,
    path: usize,
    bytes: u64,
    posted_ns: u64,
    completed_ns: Option<u64>,
    completed: bool,
    state: State,
}

/// See the module.
#[derive(Debug)]
pub(in crate::connection) struct Outbound {
    pub(in crate::connection) messages: Ledger<Message>,
    sends: Ledger<Send>,
    writes: HashMap<u32, Write>,
    works: Ledger<Work>,
    /// No work request before this one is in flight.
    oldest_out: u64,
    in_flight: u64,
    /// Number of work requests in flight: each may consume a RECEIVE of the peer.
    out: usize,
    /// The connection's own SENDs, which go first and are not limited by any window.
    control: VecDeque<NewSend>,
    repeats: VecDeque<u64>,
    repairs: VecDeque<NewSend>,
    pub(in crate::connection) small: VecDeque<u64>,
    pub(in crate::connection) unannounced: VecDeque<u64>,
    granted: VecDeque<u64>,
    pub(in crate::connection) announced: HashMap<u32, u64>,
    pub(in crate::connection) next_sent: u32,
    pub(in crate::connection) next_written: u32,
    /// No work request times out before this time.
    timer_ns: Option<u64>,
}

impl Outbound {
    pub(in crate::connection) fn new() -> Self {
        Self {
            messages: Ledger::new(),
            sends: Ledger::new(),
            writes: HashMap::new(),
            works: Ledger::new(),
            oldest_out: 0,
            in_flight: 0,
            out: 0,
            control: VecDeque::new(),
            repeats: VecDeque::new(),
            repairs: VecDeque::new(),
            small: VecDeque::new(),
            unannounced: VecDeque::new(),
            granted: VecDeque::new(),
            announced: HashMap::new(),
            next_sent: 0,
            next_written: 1,
            timer_ns: None,
        }
    }

    pub(in crate::connection) fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Whether the peer owes a message that no retransmission would ask for.
    pub(in crate::connection) fn waits_in_silence(&self) -> bool {
        self.is_quiet() && !self.announced.is_empty()
    }

    /// Whether nothing is in flight whose loss would be noticed.
    pub(in crate::connection) fn is_quiet(&self) -> bool {
        self.sends.is_empty() && self.writes.is_empty() && self.control.is_empty()
    }

    pub(in crate::connection) fn say(&mut self, content: Content) {
        self.control.push_back(NewSend::control(content));
    }

    /// Number of answers to the peer's announcements that have not been sent yet.
    pub(in crate::connection) fn unsaid_answers(&self) -> usize {
        let answers = self
            .control
            .iter()
            .filter(|new| matches!(new.content, Content::Grant { .. } | Content::Refuse { .. }));
        answers.count()
    }

    /// Adds a new message.
    pub(in crate::connection) fn submit(
        &mut self,
        bytes: u32,
        written: bool,
        tag: u32,
    ) -> MessageId {
        let id = self.messages.push(Message {
            bytes,
            tag,
            number: 0,
            written,
            place: None,
            sent: 0,
            all_sent: false,
            open: 0,
            posted: 0,
            failure: None,
        });
        if written {
            self.unannounced.push_back(id);
        } else {
            self.small.push_back(id);
        }
        MessageId(id)
    }

    /// Announces messages that are to be written, as many as are allowed at a time.
    pub(in crate::connection) fn announce(&mut self, cx: &Context) {
        while self.announced.len() < cx.config.max_written {
            let Some(id) = self.unannounced.pop_front() else {
                return;
            };
            let number = self.next_written;
            self.next_written = (number + 1) % cx.config.layout.messages();
            let Some(message) = self.messages.get_mut(id) else {
                continue;
            };
            message.number = number;
            message.open += 1;
            let (total, tag) = (message.bytes, message.tag);
            self.announced.insert(number, id);
            self.control.push_back(NewSend {
                content: Content::Announce {
                    message: number,
                    total,
                    tag,
                },
                piece: None,
                message: Some(id),
                parent: None,
            });
        }
    }

    /// Records that the peer has memory for a message.
    pub(in crate::connection) fn grant(&mut self, number: u32, place: RemoteAddress) {
        let Some(id) = self.announced.get(&number) else {
            return;
        };
        if let Some(message) = self.messages.get_mut(*id) {
            if message.place.is_none() && message.failure.is_none() {
                message.place = Some(place);
                self.granted.push_back(*id);
            }
        }
    }

    /// Records that the peer has no memory for a message.
    pub(in crate::connection) fn refuse(&mut self, cx: &mut Context, number: u32) {
        let Some(id) = self.announced.get(&number).copied() else {
            return;
        };
        if let Some(message) = self.messages.get_mut(id) {
            if message.place.is_none() {
                message.failure = Some(Failure::Refused);
                self.settle(cx, id);
            }
        }
    }
}

impl Work {
    fn times(&self, ack: Option<(u64, u64)>) -> WorkTimes {
        WorkTimes {
            posted_ns: self.posted_ns,
            completed_ns: self.completed_ns,
            acknowledged_ns: ack.map(|(at_ns, _)| at_ns),
            ack_delay_ns: ack.map(|(_, delay_ns)| delay_ns),
            bytes: self.bytes,
        }
    }
}
