//! Long requests, which are fetched before their handlers run, and the handing over of requests to handlers elsewhere.

use std::sync::Arc;

use super::{Connection, MAX_PENDING};
use crate::call::timeout::TIMED;
use crate::channel::buffers::{Beginning, Bytes, Landed};
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError};
use crate::error::{FailureReason, WireFailure};
use crate::server::connection::Context;
use crate::server::deadlines::{expired, Deadline};
use crate::server::dispatch::Apart;
use crate::server::handler::Execution;
use crate::HandlerId;

/// A long request that is being fetched.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) call: u64,
    handler: HandlerId,
    /// Whether the caller has given up the call.
    cancelled: bool,
}

impl<C: Channel> Connection<C> {
    pub(super) fn begin_long(
        &mut self,
        header: Header,
        context: &Context,
    ) -> Result<(), ChannelError> {
        context.counters.request();
        if let Some(admitted) = &mut self.admitted {
            admitted.take()?;
        }
        let call = header.call;
        if self.draining {
            return self.fail(call, WireFailure::new(FailureReason::ShuttingDown, 0, ""));
        }
        // For a request with a trailer, the handler's id is in the part still to be fetched.
        if header.handler != TIMED && context.handlers.get(header.handler).is_none() {
            return self.fail_unknown(call, header.handler);
        }
        if !self.caller.may_call(header.handler) {
            return self.forbid(call, header.handler);
        }
        let descriptor = self.channel.descriptor(header)?;
        self.fetching.push(Fetching {
            call,
            handler: header.handler,
            cancelled: false,
        });
        match self.channel.fetch(call, &descriptor) {
            Err(error) if error.is_memory() => {
                let words = error.to_string();
                self.fetching.pop();
                self.fail(call, WireFailure::new(FailureReason::Overloaded, 0, words))
            }
            other => other,
        }
    }

    /// Cancels a call whose caller has given up: its handler is told, or not run.
    pub(super) fn cancel(&mut self, call: u64) {
        self.away.cancel(call);
        let mut fetching = self.fetching.iter_mut();
        if let Some(one) = fetching.find(|one| one.call == call) {
            one.cancelled = true;
        }
    }

    pub(super) fn run_long(
        &mut self,
        Fetching {
            call,
            handler,
            cancelled,
        }: Fetching,
        landed: Landed<C::Device>,
        context: &Context,
    ) -> Result<(), ChannelError> {
        if cancelled {
            return self.fail(call, expired(false));
        }
        let timed = self.deadlines.of(handler, landed.bytes())?;
        if timed.is_over {
            return self.fail(call, expired(false));
        }
        let (handler, length, deadline) = (timed.handler, timed.length, timed.deadline);
        match context.handlers.get(handler) {
            Some(_) if !self.caller.may_call(handler) => self.forbid(call, handler),
            Some(Execution::Inline(function)) => {
                let header = Header::new(Kind::LongRequest, handler, call, 0);
                let eager = self.channel.eager_bytes();
                let has_place = self.backlog.is_empty() && self.channel.make_room(eager)?;
                let payload = Some(&landed.bytes()[..length]);
                self.run(function.as_ref(), (header, deadline), payload, has_place)
            }
            Some(_) => {
                let payload = Box::new(Beginning(Box::new(landed), length));
                self.hand_out(call, (handler, deadline), payload, context)
            }
            None => self.fail_unknown(call, handler),
        }
    }

    pub(super) fn hand_out(
        &mut self,
        call: u64,
        (handler, deadline): (HandlerId, Deadline),
        payload: Box<dyn Bytes>,
        context: &Context,
    ) -> Result<(), ChannelError> {
        let Some(execution) = context.handlers.get(handler) else {
            return self.fail_unknown(call, handler);
        };
        if self.away.len() >= MAX_PENDING {
            let words = format!(
                "limit reached: {MAX_PENDING} calls of the connection have not been answered yet"
            );
            return self.fail(call, WireFailure::new(FailureReason::Overloaded, 0, words));
        }
        let Some(fate) = self.away.begin(call, deadline.instant()) else {
            let words = "a call in the slot of an unanswered call";
            return Err(ChannelError::violation(words));
        };
        let apart = Apart {
            poller: self.poller,
            connection: self.id,
            caller: self.caller.clone(),
            call,
            handler,
            payload,
            exporter: Box::new(Arc::clone(self.channel.exports())),
            limits: self.limits(),
            fate,
        };
        if !context.dispatch.start(apart, execution) {
            self.away.end(call);
            let words = "the server has no room for the call";
            return self.fail(call, WireFailure::new(FailureReason::Overloaded, 0, words));
        }
        Ok(())
    }
}
