//! Sends answers that are not in the batch yet: those of handlers elsewhere and of long requests, errors, and those
//! that found no room.

use super::{Connection, Outcome};
use crate::bugs::{is_planted, Bug};
use crate::channel::buffers::{Body, Buffer};
use crate::channel::message::Kind;
use crate::channel::{Channel, ChannelError};
use crate::error::{FailureReason, WireFailure};
use crate::HandlerId;

/// Maximum size in bytes of long responses that a client may leave unread.
const MAX_EXPORTED_BYTES: usize = 256 << 20;
/// Maximum number of long responses that a client may leave unread: each has a registered region, and a device's number
/// of regions is limited.
const MAX_EXPORTS: usize = 1024;

impl<C: Channel> Connection<C> {
    /// Takes the answer of a handler that ran elsewhere.
    pub(in crate::server) fn finished(
        &mut self,
        call: u64,
        outcome: Outcome,
    ) -> Result<(), ChannelError> {
        // The caller of a cancelled call still waits for its slot, but not for the bytes.
        match self.away.end(call) {
            None => return Ok(()),
            Some(true) => self.respond(call, Outcome::Short(Vec::new()))?,
            Some(false) => {
                if let (Outcome::Short(bytes), true) = (&outcome, is_planted(Bug::AnsweredTwice)) {
                    self.respond(call, Outcome::Short(bytes.clone()))?;
                }
                self.respond(call, outcome)?;
            }
        }
        self.channel.flush()
    }

    pub(super) fn fail(&mut self, call: u64, failure: WireFailure) -> Result<(), ChannelError> {
        self.respond(call, Outcome::Failure(failure))
    }

    pub(super) fn fail_unknown(
        &mut self,
        call: u64,
        handler: HandlerId,
    ) -> Result<(), ChannelError> {
        self.fail(
            call,
            WireFailure::new(FailureReason::UnknownHandler, handler.into(), ""),
        )
    }

    /// Refuses a call without the right to make it.
    #[cold]
    pub(super) fn forbid(&mut self, call: u64, handler: HandlerId) -> Result<(), ChannelError> {
        let failure = self.caller.refuse_call(handler);
        self.fail(call, failure)
    }

    #[cold]
    pub(super) fn respond(&mut self, call: u64, outcome: Outcome) -> Result<(), ChannelError> {
        let outcome = match self.backlog.is_empty() {
            true => self.try_send(call, outcome)?,
            false => Some(outcome),
        };
        if let Some(outcome) = outcome {
            let refused = match outcome.long_bytes(self.channel.eager_bytes()) {
                0 => None,
                long => self.refuse_unread(long),
            };
            let outcome = refused.map_or(outcome, Outcome::Failure);
            self.backlog.push_back(call, outcome);
        }
        Ok(())
    }

    /// Returns an error if a long response of this size cannot be kept, because the client reads none of those that it
    /// has.
    fn refuse_unread(&self, bytes: usize) -> Option<WireFailure> {
        let (waiting, waiting_bytes) = self.backlog.long();
        let unread_bytes = self.exported_bytes + waiting_bytes;
        let words = if self.exported.len() + waiting >= MAX_EXPORTS {
            format!("limit reached: {MAX_EXPORTS} long responses have not been read yet")
        } else if unread_bytes + bytes > MAX_EXPORTED_BYTES {
            format!(
                "limit reached: {unread_bytes} bytes of long responses have not been read yet, {MAX_EXPORTED_BYTES} \
                 allowed")
        } else {
            return None;
        };
        Some(WireFailure::new(FailureReason::Overloaded, 0, words))
    }

    pub(super) fn send_backlog(&mut self) -> Result<usize, ChannelError> {
        let mut sent = 0;
        while let Some((call, outcome)) = self.backlog.pop_front() {
            if let Some(outcome) = self.try_send(call, outcome)? {
                self.backlog.push_front(call, outcome);
                break;
            }
            sent += 1;
        }
        Ok(sent)
    }

    /// Sends an answer; returns it if there is no room.
    pub(super) fn try_send(
        &mut self,
        call: u64,
        outcome: Outcome,
    ) -> Result<Option<Outcome>, ChannelError> {
        if !self.channel.make_room(self.channel.eager_bytes())? {
            return Ok(Some(outcome));
        }
        let exports = self.channel.exports();
        let exported = match outcome {
            Outcome::Short(bytes) if bytes.len() <= self.channel.eager_bytes() => {
                self.channel.push(Kind::Response, 0, call, &bytes);
                return Ok(None);
            }
            Outcome::Short(bytes) => exports.copied(&bytes),
            Outcome::Long(buffer) => exports.export(Body::Buffer(buffer)),
            Outcome::Failure(failure) => {
                self.push_failure(call, &failure);
                return Ok(None);
            }
        };
        match exported {
            Ok(export) => self.export(call, export),
            Err(error) => {
                let failure = WireFailure::new(FailureReason::Overloaded, 0, error.to_string());
                self.push_failure(call, &failure);
            }
        }
        Ok(None)
    }

    pub(super) fn push_failure(&mut self, call: u64, failure: &WireFailure) {
        let mut bytes = failure.encode();
        bytes.truncate(self.channel.eager_bytes());
        self.channel.push(Kind::Failure, 0, call, &bytes);
    }

    pub(super) fn export(&mut self, call: u64, buffer: Buffer<C::Device>) {
        if let Some(failure) = self.refuse_unread(buffer.len()) {
            return self.push_failure(call, &failure);
        }
        self.channel.push_long(Kind::LongResponse, 0, call, &buffer);
        self.exported_bytes += buffer.len();
        self.exported.push((call, buffer));
    }
}
