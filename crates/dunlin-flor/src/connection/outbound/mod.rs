//! The sending half: messages become work requests, and acknowledgements, losses and failures become repetitions.
//!
//! A *send* has a reliable number and stays until one of its work requests is acknowledged. A *write* stays until its
//! work request is acknowledged or, if that got lost, until the SENDs that repeat it are (two-sided retransmission,
//! Flor §5). A number that a send once had is never given up, since the peer waits for it: what is not needed any more
//! goes on without bytes.

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
    /// Its number among those that are written, or among those that are sent.
    pub(in crate::connection) number: u32,
    pub(in crate::connection) written: bool,
    pub(in crate::connection) place: Option<RemoteAddress>,
    pub(in crate::connection) sent: u32,
    pub(in crate::connection) all_sent: bool,
    /// Sends and writes of it that are not acknowledged.
    pub(in crate::connection) open: u32,
    /// Work requests with bytes of it that have not completed.
    posted: u32,
    pub(in crate::connection) failure: Option<Failure>,
}

/// A SEND that has no number yet.
#[derive(Debug)]
pub(in crate::connection) struct NewSend {
    pub(in crate::connection) content: Content,
    pub(in crate::connection) piece: Option<Piece>,
    /// The message whose open it counts in.
    pub(in crate::connection) message: Option<u64>,
    /// The write that it repeats.
    pub(in crate::connection) parent: Option<u32>,
}

impl NewSend {
    /// One that speaks for the connection itself.
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
    /// Its one work request.
    global: u64,
    number: WriteNumber,
    /// Bytes that repetitions have still to bring, once there are any.
    remaining: u32,
    repeated: bool,
    /// Its message was given up: if it is lost it stays so.
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
    /// Before it no work request is out.
    oldest_out: u64,
    in_flight: u64,
    /// Work requests that are out: each may take a RECEIVE of the peer.
    out: usize,
    /// First the connection's own, which no window holds back.
    control: VecDeque<NewSend>,
    repeats: VecDeque<u64>,
    repairs: VecDeque<NewSend>,
    pub(in crate::connection) small: VecDeque<u64>,
    pub(in crate::connection) unannounced: VecDeque<u64>,
    granted: VecDeque<u64>,
    pub(in crate::connection) announced: HashMap<u32, u64>,
    pub(in crate::connection) next_sent: u32,
    pub(in crate::connection) next_written: u32,
    /// No work request times out before.
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

    /// Whether the peer has to say something, without being asked again by a repetition.
    pub(in crate::connection) fn waits_in_silence(&self) -> bool {
        self.is_quiet() && !self.announced.is_empty()
    }

    /// Whether nothing is under way whose loss would be noticed.
    pub(in crate::connection) fn is_quiet(&self) -> bool {
        self.sends.is_empty() && self.writes.is_empty() && self.control.is_empty()
    }

    pub(in crate::connection) fn say(&mut self, content: Content) {
        self.control.push_back(NewSend::control(content));
    }

    /// Answers to the peer's announcements that have not gone out yet.
    pub(in crate::connection) fn unsaid_answers(&self) -> usize {
        let answers = self
            .control
            .iter()
            .filter(|new| matches!(new.content, Content::Grant { .. } | Content::Refuse { .. }));
        answers.count()
    }

    /// A new message.
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

    /// Announces messages that are to be written, as many as there may be at once.
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

    /// The peer has memory for a message.
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

    /// The peer has no memory for a message.
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
