//! Executes requests that are complete and new: the handler runs here or elsewhere.

use dunlin_verbs::{Device, Work};

use super::{Session, Tools};
use crate::channel::buffers::{Beginning, Bytes, BytesMut};
use crate::channel::call_id::slot_of;
use crate::channel::datagram::spare::LongBytes;
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::error::{FailureReason, WireFailure};
use crate::memory::NoMemory;
use crate::server::connection::{execute, Outcome};
use crate::server::deadlines::{expired, Deadline};
use crate::server::dispatch::Apart;
use crate::server::handler::{
    Execution, Exporter, HandlerError, HandlerFunction, Limits, Request, Responder,
};
use crate::{memory, HandlerId};

/// An exporter for responses that are never filled in registered memory.
struct NoExports;

impl Exporter for NoExports {
    fn export(&self, length: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
        let bytes = memory::zeros(length).map_err(HandlerError::no_memory)?;
        Ok(Box::new(bytes.into_boxed_slice()))
    }
}

/// A request that can be handed to a handler elsewhere.
pub(super) trait Kept {
    fn kept(self) -> Result<Box<dyn Bytes>, NoMemory>;
}

impl Kept for &[u8] {
    fn kept(self) -> Result<Box<dyn Bytes>, NoMemory> {
        Ok(Box::new(memory::copied(self)?))
    }
}

impl Kept for LongBytes {
    fn kept(self) -> Result<Box<dyn Bytes>, NoMemory> {
        Ok(Box::new(self))
    }
}

/// The bytes of a response that was filled in place.
pub(super) fn filled(buffer: Box<dyn BytesMut>) -> Box<[u8]> {
    match buffer.into_any().downcast::<Box<[u8]>>() {
        Ok(bytes) => *bytes,
        Err(_) => unreachable!("they are not exported"),
    }
}

impl Session {
    /// Ends a call whose request has arrived and for which there is no memory.
    #[cold]
    pub(super) fn starve<D: Device>(
        &mut self,
        header: Header,
        bytes: usize,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        self.begin(header.call)?;
        tools.context.counters.request();
        self.refuse(header.call, WireFailure::no_memory(NoMemory(bytes)), tools)
    }

    /// Executes a request that is complete and new.
    #[inline]
    pub(super) fn run_new<D: Device>(
        &mut self,
        header: Header,
        payload: impl AsRef<[u8]> + Kept,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let is_wanted = self.begin(header.call)?;
        tools.context.counters.request();
        *tools.requests = tools.requests.wrapping_add(1);
        if tools.draining {
            let failure = WireFailure::new(FailureReason::ShuttingDown, 0, "");
            return self.refuse(header.call, failure, tools);
        }
        let timed = self.deadlines.of(header.handler, payload.as_ref())?;
        if timed.is_over || !is_wanted {
            return self.refuse(header.call, expired(false), tools);
        }
        let (handler, length, deadline) = (timed.handler, timed.length, timed.deadline);
        let header = Header { handler, ..header };
        match tools.context.handlers.get(handler) {
            Some(_) if !self.caller.may_call(handler) => {
                let failure = self.caller.refuse_call(handler);
                self.refuse(header.call, failure, tools)
            }
            Some(Execution::Inline(function)) => {
                let payload = &payload.as_ref()[..length];
                self.run(function.as_ref(), (header, deadline), payload, tools)
            }
            Some(_) => match payload.kept() {
                Ok(payload) => {
                    let payload = Box::new(Beginning(payload, length));
                    self.hand_out(header.call, (handler, deadline), payload, tools)
                }
                Err(error) => self.refuse(header.call, WireFailure::no_memory(error), tools),
            },
            None => self.fail_unknown(header.call, handler, tools),
        }
    }

    /// Runs a handler on this thread, which writes its response into the packet that will be sent.
    #[inline]
    pub(super) fn run<D: Device>(
        &mut self,
        function: &HandlerFunction,
        (header, deadline): (Header, Deadline),
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        if self.answerer.is_some() {
            return self.run_kept(function, (header, deadline), payload, tools);
        }
        let room = (*tools.usual).min(self.capacity);
        let packet =
            tools
                .outgoing
                .packet(&mut self.open_packet, &self.target, room, tools.endpoint)?;
        let limits = Limits {
            eager: self.longest,
            longest: self.longest,
        };
        let mut responder = Responder::new(packet.space(), &limits, &NoExports);
        let request = Request {
            handler: header.handler,
            payload,
            connection: self.id,
            caller: &self.caller,
            deadline,
            fate: None,
        };
        let ended = execute(function, &request, &mut responder);
        if let (Ok(Ok(())), Some(length)) = (&ended, responder.written_in_place()) {
            D::charge(Work::Copy(length));
            packet.commit(Header::new(Kind::Response, 0, header.call, length));
            *tools.usual = length;
            self.slots[slot_of(header.call)].working = false;
            return Ok(());
        }
        let outcome = Outcome::new(ended, responder.elsewhere());
        self.respond(header.call, outcome, tools)
    }

    /// As [`Session::run`], with a response that is kept.
    #[inline]
    pub(super) fn run_kept<D: Device>(
        &mut self,
        function: &HandlerFunction,
        (header, deadline): (Header, Deadline),
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Some(answerer) = &mut self.answerer else {
            return Ok(());
        };
        let limits = Limits {
            eager: self.longest,
            longest: self.longest,
        };
        let mut responder = Responder::new(answerer.place(header.call), &limits, &NoExports);
        let request = Request {
            handler: header.handler,
            payload,
            connection: self.id,
            caller: &self.caller,
            deadline,
            fate: None,
        };
        let ended = execute(function, &request, &mut responder);
        if let (Ok(Ok(())), Some(length)) = (&ended, responder.written_in_place()) {
            answerer.placed(header.call, length);
            self.slots[slot_of(header.call)].working = false;
            return self.put_response(header.call, 0, tools);
        }
        let outcome = Outcome::new(ended, responder.elsewhere());
        self.respond(header.call, outcome, tools)
    }

    pub(super) fn hand_out<D: Device>(
        &mut self,
        call: u64,
        (handler, deadline): (HandlerId, Deadline),
        payload: Box<dyn Bytes>,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Some(execution) = tools.context.handlers.get(handler) else {
            return self.fail_unknown(call, handler, tools);
        };
        let Some(fate) = self.away.begin(call, deadline.instant()) else {
            let words = "a call in the slot of an unanswered call";
            return Err(ChannelError::violation(words));
        };
        let apart = Apart {
            poller: tools.poller,
            connection: self.id,
            caller: self.caller.clone(),
            call,
            handler,
            payload,
            exporter: Box::new(NoExports),
            limits: Limits {
                eager: self.longest,
                longest: self.longest,
            },
            fate,
        };
        if !tools.context.dispatch.start(apart, execution) {
            self.away.end(call);
            let words = "the server has no room for the call";
            let failure = WireFailure::new(FailureReason::Overloaded, 0, words);
            return self.refuse(call, failure, tools);
        }
        Ok(())
    }

    /// Takes the answer of a handler that ran elsewhere.
    pub(in crate::server::datagram) fn finished<D: Device>(
        &mut self,
        call: u64,
        outcome: Outcome,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        // The caller of a cancelled call still waits for its slot, but not for the bytes.
        let outcome = match self.away.end(call) {
            None => return Ok(()),
            Some(true) => Outcome::Short(Vec::new()),
            Some(false) => outcome,
        };
        if self.answerer.is_some() {
            self.slots[slot_of(call)].working = false;
            return self.keep(call, outcome, true, tools);
        }
        self.respond(call, outcome, tools)
    }

    pub(super) fn fail_unknown<D: Device>(
        &mut self,
        call: u64,
        handler: HandlerId,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let failure = WireFailure::new(FailureReason::UnknownHandler, handler.into(), "");
        self.refuse(call, failure, tools)
    }
}
