//! Long requests, which are fetched before their handlers run, and what goes to workers.

use std::sync::Arc;

use super::{Connection, MAX_PENDING};
use crate::channel::buffers::{Bytes, Landed};
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError};
use crate::error::{FailureReason, WireFailure};
use crate::server::connection::Context;
use crate::server::handler::Execution;
use crate::server::workers::Job;
use crate::HandlerId;

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
        if context.handlers.get(header.handler).is_none() {
            return self.fail_unknown(call, header.handler);
        }
        let descriptor = self.channel.descriptor(header)?;
        self.fetching.push((call, header.handler));
        match self.channel.fetch(call, &descriptor) {
            Err(error) if error.is_memory() => {
                let words = error.to_string();
                self.fetching.pop();
                self.fail(call, WireFailure::new(FailureReason::Overloaded, 0, words))
            }
            other => other,
        }
    }

    pub(super) fn run_long(
        &mut self,
        call: u64,
        handler: HandlerId,
        landed: Landed<C::Device>,
        context: &Context,
    ) -> Result<(), ChannelError> {
        match context.handlers.get(handler) {
            Some(Execution::Inline(function)) => {
                let header = Header::new(Kind::LongRequest, handler, call, 0);
                let eager = self.channel.eager_bytes();
                let has_place = self.backlog.is_empty() && self.channel.make_room(eager)?;
                self.run(function.as_ref(), header, Some(landed.bytes()), has_place)
            }
            Some(Execution::Worker(_)) => self.hand_out(call, handler, Box::new(landed), context),
            None => self.fail_unknown(call, handler),
        }
    }

    pub(super) fn hand_out(
        &mut self,
        call: u64,
        handler: HandlerId,
        payload: Box<dyn Bytes>,
        context: &Context,
    ) -> Result<(), ChannelError> {
        let Some((workers, Execution::Worker(function))) =
            context.workers.as_ref().zip(context.handlers.get(handler))
        else {
            return self.fail_unknown(call, handler);
        };
        let job = Job {
            poller: self.poller,
            connection: self.id,
            call,
            handler,
            function: Arc::clone(function),
            payload,
            exporter: Box::new(Arc::clone(self.channel.exports())),
            eager_bytes: self.channel.eager_bytes(),
            longest: self.channel.longest(),
        };
        if self.on_workers >= MAX_PENDING || !workers.offer(job) {
            let words = "the worker pool has no room for the call";
            return self.fail(call, WireFailure::new(FailureReason::Overloaded, 0, words));
        }
        self.on_workers += 1;
        Ok(())
    }
}
