//! Receiving: responses, reports about segments, and answers about calls.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;

use dunlin_verbs::{Device, Work};

use super::DatagramLane;
use crate::call::lane::{Answer, CallId, Sink};
use crate::channel::datagram::fate::{self, Fate};
use crate::channel::datagram::packet::{Cursor, Head, HEAD_BYTES};
use crate::channel::datagram::segments::{count_in, Arrived};
use crate::channel::datagram::spare::LongBytes;
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::error::{CallError, WireFailure};
use crate::memory::NoMemory;

/// Maximum number of datagrams taken in one poll: bounds the duration of a poll.
const POLL_BUDGET: usize = 64;

impl<D: Device> DatagramLane<D> {
    pub(super) fn take(&mut self, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        if self.lost {
            return Err(ChannelError::peer_gone());
        }
        let mut taken = 0;
        let mut looked = false;
        if std::mem::take(&mut self.held_up) {
            self.send()?;
        }
        for _ in 0..POLL_BUDGET {
            let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            if !looked && !held.has_arrival(self.session) {
                looked = true;
                held.poll(|_| {})?;
                if held.has_gathered() {
                    // There was no room for them before.
                    held.send_gathered()?;
                }
            }
            let Some(length) = held.take(self.session, &mut self.scratch)? else {
                break;
            };
            drop(held);
            taken += self.read(length, sink)?;
        }
        if taken > 0 {
            self.watch.heard();
            if !self.met {
                self.met = true;
                self.send()?;
            }
        }
        if self.driving.is_some() {
            self.drive_on(taken)?;
        }
        if self.watch.looked() {
            taken += self.look()?;
        }
        Ok(taken)
    }

    /// Processes the messages of the datagram in `scratch`.
    #[inline]
    fn read(&mut self, length: usize, sink: &mut dyn Sink) -> Result<usize, ChannelError> {
        let Some(head) = self.scratch.first_chunk().and_then(Head::read) else {
            return Ok(0);
        };
        debug_assert!(length >= HEAD_BYTES);
        self.wants_datagrams = head.wants_datagrams;
        let mut cursor = Cursor::new(head);
        let mut taken = 0;
        loop {
            let next = cursor.take(&self.scratch[..length]);
            let Some((header, payload)) = next.map_err(ChannelError::violation)? else {
                return Ok(taken);
            };
            taken += 1;
            if header.kind == Kind::ResponsePart {
                self.hear(header, payload, sink)?;
            } else if header.kind == Kind::Response && self.driving.is_none() {
                // A late response to a call that was given up as lost is discarded.
                if let Some(tag) = self.finish(header.call) {
                    sink.answer(tag, &self.scratch[payload]);
                }
            } else {
                self.dispatch(header, payload, sink)?;
            }
        }
    }

    #[cold]
    fn dispatch(
        &mut self,
        header: Header,
        payload: Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        match header.kind {
            Kind::CreditReturn => return self.hear(header, payload, sink),
            Kind::Failure | Kind::ResponseSegment | Kind::Segments if self.driving.is_some() => {
                let words = "a message of a different datagram protocol";
                return Err(ChannelError::violation(words));
            }
            Kind::Failure => {
                let failure = WireFailure::decode(&self.scratch[payload])
                    .ok_or_else(|| ChannelError::violation("a failure without a reason"))?;
                if let Some(tag) = self.finish(header.call) {
                    sink.complete(tag, Err(failure.into_call_error()));
                }
            }
            Kind::ResponseSegment => return self.take_segment(header, payload, sink),
            Kind::Segments => {
                let count = count_in(&self.scratch[payload])?;
                let piece = self.piece();
                if let Some(transfer) = self.transfers.front_mut() {
                    if transfer.call == header.call {
                        let has = transfer.has(count as usize, piece);
                        self.touch(header.call);
                        if has {
                            self.transfers.pop_front();
                            self.transfer = self.transfer.wrapping_add(1);
                        }
                    }
                }
                return self.send();
            }
            Kind::Fates => {
                self.rousing = false;
                let told: Vec<_> = fate::told(&self.scratch[payload]).collect();
                for (call, fate) in told {
                    self.learn(call, fate, sink);
                }
            }
            Kind::Asleep if self.uplink.is_some() => {
                self.asleep = true;
                // It may have missed what was written last. One question at a time suffices, however often it slept
                // while segments arrived: afterwards it sleeps again, and reports that.
                if self.calls.outstanding() > 0 && !self.rousing {
                    self.rouse()?;
                }
            }
            Kind::Goodbye => {
                self.leaving = true;
                self.open = false;
            }
            _ => {
                return Err(ChannelError::violation(
                    "a call from the server to its client",
                ))
            }
        }
        Ok(())
    }

    /// Handles the state of a call as reported by the server.
    fn learn(&mut self, call: CallId, fate: Fate, sink: &mut dyn Sink) {
        if self.driving.is_some() {
            // This only shows that the server is alive: it will be asked for the response again.
            return;
        }
        match fate {
            Fate::Working => {
                self.touch(call);
                // The request has arrived completely, even if the report about its segments was lost.
                let front = self.transfers.front();
                if front.is_some_and(|transfer| transfer.call == call) {
                    self.transfers.pop_front();
                    self.transfer = self.transfer.wrapping_add(1);
                }
            }
            Fate::Unknown | Fate::Answered if self.calls.is_out(call) => {
                self.packet_lost.store(true, Ordering::Relaxed);
                let error = CallError::PacketLost {
                    executed: fate == Fate::Answered,
                };
                tracing::warn!(call, ?fate, "a packet was lost");
                if let Some(tag) = self.finish(call) {
                    sink.complete(tag, Err(error));
                }
            }
            Fate::Unknown | Fate::Answered => {}
        }
    }

    fn take_segment(
        &mut self,
        header: Header,
        payload: Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        let call = header.call;
        let Self {
            incoming, calls, ..
        } = self;
        // Late ones belong to a call that was given up as lost.
        let wanted = || Ok(calls.is_out(call));
        let payload = &self.scratch[payload];
        let arrived = incoming.take(header, payload, wanted)?;
        D::charge(Work::Copy(payload.len()));
        self.touch(call);
        let count = match arrived {
            Arrived::Nothing => return Ok(()),
            Arrived::Tell(count) => count,
            Arrived::Whole(count, _, bytes) => {
                self.last_whole = Some((call, count));
                if let Some(tag) = self.finish(call) {
                    sink.complete(tag, long_answer(bytes));
                }
                count
            }
        };
        if self.make_room(4)? {
            self.push(Kind::Segments, 0, call, &count.to_le_bytes());
        }
        self.send()
    }
}

/// The result of a call whose long response has arrived, depending on whether there was memory for it.
pub(super) fn long_answer(
    bytes: Result<LongBytes, NoMemory>,
) -> Result<Answer<'static>, CallError> {
    match bytes {
        Ok(bytes) => Ok(Answer::Long(Box::new(bytes))),
        Err(none) => {
            let error = ChannelError::memory(none);
            Err(CallError::no_memory_for_response(&error))
        }
    }
}
