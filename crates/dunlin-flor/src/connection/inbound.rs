//! The receiving half: assembles the peer's work requests into messages and delivers each once, in the order in which
//! they become complete.

use std::collections::HashMap;

use super::action::{Action, Delivery, Incoming};
use super::config::LateWrites;
use super::context::Context;
use crate::ack::{AckGenerator, AckTriggers, AckedNumber, Arrival};
use crate::number::WriteNumber;
use crate::receiver::{Coverage, Novelty, ReceivedNumbers};
use crate::wire::{Content, Header};

/// How a work request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Index of the connection's queue pair.
    pub path: usize,
    /// The receive buffer that it consumed.
    pub receive: u64,
    /// T2: the arrival time, by the clock of `now_ns`.
    pub arrived_ns: u64,
    /// Whether a switch marked it.
    pub marked: bool,
}

/// A message that is being written.
#[derive(Debug)]
struct Written {
    coverage: Coverage,
    bytes: u32,
    granted: bool,
    /// Whether a part of it was sent again: the WRITE that was considered lost may still arrive.
    repaired: bool,
}

/// A message that arrives in fragments.
#[derive(Debug)]
struct Assembled {
    coverage: Coverage,
    bytes: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Inbound {
    numbers: ReceivedNumbers,
    assembled: HashMap<u32, Assembled>,
    written: HashMap<u32, Written>,
    pub(super) acks: AckGenerator,
}

/// What to do with a SEND whose number is new.
enum Verdict {
    /// It was accepted; the receive buffer is free, or named in an action.
    Taken,
    /// There is no space for it: treat it as if it had not arrived.
    NoRoom,
    /// It is malformed.
    Violation,
}

impl Inbound {
    pub(super) fn new(number_window: u32, triggers: AckTriggers) -> Self {
        Self {
            numbers: ReceivedNumbers::new(number_window),
            assembled: HashMap::new(),
            written: HashMap::new(),
            acks: AckGenerator::new(triggers),
        }
    }

    /// Whether a message has arrived in part, so that more must follow.
    pub(super) fn waits(&self) -> bool {
        !self.assembled.is_empty() || !self.written.is_empty()
    }

    /// Handles a SEND of the current epoch. Returns its header if it concerns the connection itself. `unsaid` is the
    /// number of answers to announcements that have not been sent yet.
    pub(super) fn send(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        header: &Header,
        received: Received,
        unsaid: usize,
    ) -> Option<Content> {
        let novelty = self.numbers.look(header.number);
        let verdict = match novelty {
            Novelty::Duplicate => {
                cx.counters.duplicates += 1;
                cx.actions.push_back(Action::Recycle(received.receive));
                Verdict::Taken
            }
            Novelty::TooFar => Verdict::Violation,
            Novelty::Next | Novelty::OutOfOrder => self.take(cx, header, received.receive, unsaid),
        };
        match verdict {
            Verdict::Taken => {}
            Verdict::NoRoom => {
                cx.actions.push_back(Action::Recycle(received.receive));
                return None;
            }
            Verdict::Violation => {
                cx.counters.violations += 1;
                cx.actions.push_back(Action::Recycle(received.receive));
                return None;
            }
        }
        self.numbers.take(header.number);
        self.arrived(
            cx,
            now_ns,
            Arrival {
                number: AckedNumber::Send(header.global),
                arrived_ns: received.arrived_ns,
                bytes: header.payload_bytes.into(),
                hint: header.hint,
                out_of_order: novelty != Novelty::Next,
                marked: received.marked,
            },
        );
        let own = novelty != Novelty::Duplicate && !header.content.carries_message();
        own.then_some(header.content)
    }

    fn arrived(&mut self, cx: &Context, now_ns: u64, arrival: Arrival) {
        if !cx.modules.reliability.completion_acknowledges() {
            self.acks.arrived(now_ns, arrival);
        }
    }

    fn take(&mut self, cx: &mut Context, header: &Header, receive: u64, unsaid: usize) -> Verdict {
        let bytes = header.payload_bytes;
        match header.content {
            Content::Fragment { total, .. } if bytes == total => {
                cx.actions
                    .push_back(Action::Deliver(Delivery::Whole { receive, bytes }));
                return Verdict::Taken;
            }
            Content::Fragment {
                message,
                offset,
                total,
            } => return self.fragment(cx, receive, (message, total), (offset, bytes)),
            Content::Chunk(number) => return self.chunk(cx, receive, number, bytes),
            Content::Announce {
                message,
                total,
                tag,
            } => {
                // An honest peer makes no further announcements before it has received the answers; a dishonest one
                // could accept none, so that refusals, which leave no state here, would pile up.
                if unsaid >= cx.config.max_written {
                    return Verdict::NoRoom;
                }
                if let Some(refusal) = self.announce(cx, message, total, tag) {
                    return refusal;
                }
            }
            _ => {}
        }
        cx.actions.push_back(Action::Recycle(receive));
        Verdict::Taken
    }

    fn fragment(
        &mut self,
        cx: &mut Context,
        receive: u64,
        (message, total): (u32, u32),
        (offset, bytes): (u32, u32),
    ) -> Verdict {
        let unit = cx.modules.chunking.unit_bytes();
        if !self.assembled.contains_key(&message) {
            if self.assembled.len() >= cx.config.max_assembled {
                return Verdict::NoRoom;
            }
            let coverage = Coverage::new(total.into(), unit);
            let bytes = total;
            self.assembled
                .insert(message, Assembled { coverage, bytes });
        }
        let Some(assembled) = self.assembled.get_mut(&message) else {
            return Verdict::NoRoom;
        };
        let fits = assembled.bytes == total && offset % unit == 0;
        if !fits
            || assembled
                .coverage
                .cover(offset / unit, bytes.into())
                .is_err()
        {
            return Verdict::Violation;
        }
        let whole = assembled.coverage.is_whole();
        let incoming = Incoming::Assembled(message);
        cx.place(receive, incoming, offset, bytes, total);
        if whole {
            self.assembled.remove(&message);
            cx.actions.push_back(Action::Deliver(Delivery::Pieces {
                message: incoming,
                bytes: total,
                quarantine_ns: None,
            }));
        }
        Verdict::Taken
    }

    /// Records the announcement of a message to be written. `None`: the driver is asked for memory.
    fn announce(
        &mut self,
        cx: &mut Context,
        message: u32,
        total: u32,
        tag: u32,
    ) -> Option<Verdict> {
        let unit = cx.modules.chunking.unit_bytes();
        let known = message >= cx.config.layout.messages() || self.written.contains_key(&message);
        if known || u64::from(total) > cx.config.max_message_bytes(unit) {
            return Some(Verdict::Violation);
        }
        // The sender may already consider messages finished that have not been handled here yet.
        if self.written.len() >= cx.config.max_written {
            return Some(Verdict::NoRoom);
        }
        self.written.insert(
            message,
            Written {
                coverage: Coverage::new(total.into(), unit),
                bytes: total,
                granted: false,
                repaired: false,
            },
        );
        cx.actions.push_back(Action::Provide {
            message,
            bytes: total,
            tag,
        });
        None
    }

    /// Records the driver's answer whether it has memory. Returns `false` if there was no request.
    pub(super) fn provided(&mut self, message: u32, has_memory: bool) -> bool {
        let Some(written) = self.written.get_mut(&message) else {
            return false;
        };
        if written.granted {
            return false;
        }
        written.granted = true;
        if !has_memory {
            self.written.remove(&message);
        }
        true
    }

    /// Handles a part of a written message that was sent again.
    fn chunk(
        &mut self,
        cx: &mut Context,
        receive: u64,
        number: WriteNumber,
        bytes: u32,
    ) -> Verdict {
        let Some(written) = self.written.get_mut(&number.message) else {
            // The message was already delivered, and the application may have changed it since.
            cx.counters.duplicates += 1;
            cx.actions.push_back(Action::Recycle(receive));
            return Verdict::Taken;
        };
        if !written.granted {
            return Verdict::Violation;
        }
        let Ok(new) = written.coverage.cover(number.offset_units, bytes.into()) else {
            return Verdict::Violation;
        };
        if new == 0 {
            cx.counters.duplicates += 1;
            cx.actions.push_back(Action::Recycle(receive));
            return Verdict::Taken;
        }
        written.repaired = true;
        let total = written.bytes;
        let offset = number.offset_units * cx.modules.chunking.unit_bytes();
        let incoming = Incoming::Written(number.message);
        cx.place(receive, incoming, offset, bytes, total);
        self.deliver_if_whole(cx, number.message);
        Verdict::Taken
    }

    /// Handles a WRITE with immediate data.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        immediate: u32,
        bytes: u64,
        received: Received,
    ) {
        cx.actions.push_back(Action::Recycle(received.receive));
        let number = cx.config.layout.decode(immediate);
        let mut out_of_order = true;
        if let Some(written) = self.written.get_mut(&number.message) {
            out_of_order = !written.coverage.is_next(number.offset_units);
            let covered = match written.granted {
                true => written.coverage.cover(number.offset_units, bytes).ok(),
                // The peer was never given an address for it.
                false => None,
            };
            let Some(new) = covered else {
                cx.counters.violations += 1;
                return;
            };
            cx.counters.duplicates += u64::from(new == 0);
            self.deliver_if_whole(cx, number.message);
        } else {
            cx.counters.late_writes += 1;
        }
        self.arrived(
            cx,
            now_ns,
            Arrival {
                number: AckedNumber::Write(immediate),
                arrived_ns: received.arrived_ns,
                bytes,
                hint: number.hint,
                out_of_order,
                marked: received.marked,
            },
        );
    }

    fn deliver_if_whole(&mut self, cx: &mut Context, message: u32) {
        let whole = |written: &Written| written.coverage.is_whole();
        if !self.written.get(&message).is_some_and(whole) {
            return;
        }
        if let Some(written) = self.written.remove(&message) {
            let quarantine_ns = match cx.config.late_writes {
                LateWrites::Dropped => None,
                LateWrites::AfterRepair { quarantine_ns } => {
                    written.repaired.then_some(quarantine_ns)
                }
                LateWrites::Always { quarantine_ns } => Some(quarantine_ns),
            };
            cx.actions.push_back(Action::Deliver(Delivery::Pieces {
                message: Incoming::Written(message),
                bytes: written.bytes,
                quarantine_ns,
            }));
        }
    }

    /// Discards incomplete messages: the connection is lost, so they will never be complete.
    pub(super) fn give_up(&mut self, cx: &mut Context) {
        let written = self
            .written
            .drain()
            .map(|(message, _)| Incoming::Written(message));
        let assembled = self.assembled.drain();
        let assembled = assembled.map(|(message, _)| Incoming::Assembled(message));
        for message in written.chain(assembled) {
            cx.actions.push_back(Action::Discard(message));
        }
    }
}

impl Context {
    /// Copies what has arrived into its message; the receive buffer is then free.
    fn place(&mut self, receive: u64, message: Incoming, offset: u32, bytes: u32, total: u32) {
        self.actions.push_back(Action::Place {
            receive,
            message,
            offset,
            bytes,
            total,
        });
        self.actions.push_back(Action::Recycle(receive));
    }
}
