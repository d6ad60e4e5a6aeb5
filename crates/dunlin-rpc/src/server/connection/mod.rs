//! One client's connection at the server: takes requests, runs their handlers or hands the requests to them, sends
//! responses.

mod answering;
mod attaching;
mod backlog;
mod ending;
mod long;
mod outcome;

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use dunlin_verbs::{Device, QueuePair, Work};

use crate::admission::lane::Admitted;
use crate::channel::buffers::{Buffer, BufferPool, BytesMut, Landed};
use crate::channel::message::{Header, Kind};
use crate::channel::upcoming::Upcoming;
use crate::channel::{Asked, Channel, ChannelError};
use crate::effort;
use crate::error::{FailureReason, WireFailure};
use crate::server::away::Away;
use crate::server::caller::Caller;
use crate::server::deadlines::{expired, handler_of, Deadline, Deadlines};
use crate::server::dispatch::Dispatch;
use crate::server::handler::{
    Execution, Exporter, HandlerError, HandlerFunction, HandlerTable, Limits, Request, Responder,
};
use crate::server::region::ServedRegions;
use crate::server::statistics::Counters;
use crate::{memory, HandlerId};
use backlog::Backlog;
use ending::Ending;
use long::Fetching;
pub(in crate::server) use outcome::{execute, Outcome};

/// Number of requests taken from one connection before the next gets its turn.
const POLL_BUDGET: usize = 64;
/// Maximum number of a client's long requests being fetched; at this limit no more of its messages are taken.
const MAX_FETCHES: usize = 64;
/// Maximum size of them in bytes; a request that is the only one is fetched whatever its length.
const MAX_FETCHING_BYTES: usize = 64 << 20;
/// Maximum number of a client's calls whose handlers run elsewhere, and of answers that wait for room in its ring.
const MAX_PENDING: usize = 4096;

/// Result of serving short requests.
struct Served {
    /// Number of messages taken.
    messages: usize,
    /// The last of them, if its answer has not been sent.
    other: Option<Header>,
    /// How its handler ended, if it ran.
    outcome: Option<Outcome>,
}

/// What a poller's connections share.
pub(in crate::server) struct Context {
    pub(in crate::server) handlers: HandlerTable,
    pub(in crate::server) dispatch: Dispatch,
    pub(in crate::server) counters: Arc<Counters>,
}

impl Context {
    /// Logs and counts the end of a client's connection.
    #[cold]
    pub(in crate::server) fn ended(&self, client: u64, error: &ChannelError) {
        let violation = error.is_violation();
        if violation {
            tracing::warn!(connection = client, %error, "connection ended");
        } else {
            tracing::debug!(connection = client, %error, "connection ended");
        }
        self.counters.closed(violation);
    }
}

/// A connection.
pub(in crate::server) struct Connection<C: Channel> {
    pub(in crate::server) id: u64,
    pub(in crate::server) channel: C,
    /// Long responses that the client has not released yet, by call.
    exported: Vec<(u64, Buffer<C::Device>)>,
    exported_bytes: usize,
    /// Long requests that are being fetched.
    fetching: Vec<Fetching>,
    /// Answers that found no room.
    backlog: Backlog,
    /// Calls whose handlers run elsewhere.
    away: Away,
    deadlines: Deadlines,
    caller: Caller,
    draining: bool,
    ending: Ending,
    poller: usize,
    /// Credits, if the client uses them.
    admitted: Option<Admitted>,
    regions: Arc<ServedRegions<C::Device>>,
    /// Regions that this client has attached: their index in the list, and the client's own registration.
    attached: Vec<(usize, <C::Device as Device>::Region)>,
}

impl<D: Device> Exporter for Arc<BufferPool<D>> {
    fn export(&self, length: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
        match self.take(length) {
            Ok(buffer) => Ok(Box::new(buffer)),
            Err(error) => Err(HandlerError::no_memory(error)),
        }
    }
}

impl<C: Channel> Connection<C> {
    /// If the peer's memory is mapped here, a READ is complete once it is posted.
    const READS_ARE_COPIES: bool = <C::Device as Device>::QueuePair::MAPS_PEERS;

    pub(in crate::server) fn new(
        id: u64,
        poller: usize,
        channel: C,
        (admitted, deadlines, caller): (Option<Admitted>, Deadlines, Caller),
        regions: Arc<ServedRegions<C::Device>>,
    ) -> Self {
        Self {
            id,
            backlog: Backlog::new(channel.eager_bytes()),
            channel,
            exported: Vec::new(),
            exported_bytes: 0,
            fetching: Vec::new(),
            away: Away::default(),
            deadlines,
            caller,
            draining: false,
            ending: Ending::default(),
            poller,
            admitted,
            regions,
            attached: Vec::new(),
        }
    }

    /// Takes and answers what has arrived, and returns the amount of work done.
    #[inline]
    pub(in crate::server) fn poll(&mut self, context: &Context) -> Result<usize, ChannelError> {
        if self.channel.is_idle() && self.backlog.is_empty() && !self.wants_attention() {
            C::Device::charge(Work::Poll);
            return Ok(0);
        }
        let mut taken = 0;
        if !self.backlog.is_empty() {
            taken += self.send_backlog()?;
        }
        let admitted = self.admitted.as_ref();
        let together = admitted.map_or(POLL_BUDGET, Admitted::answered_together);
        while taken < POLL_BUDGET && !self.is_full() {
            let served = self.serve(together.min(POLL_BUDGET - taken), context)?;
            taken += served.messages;
            let Some(header) = served.other else {
                if served.messages < together {
                    break;
                }
                self.channel.flush()?;
                continue;
            };
            match served.outcome {
                Some(outcome) => self.respond(header.call, outcome)?,
                None => self.dispatch(header, context)?,
            }
            if Self::READS_ARE_COPIES && header.kind == Kind::LongRequest {
                // The request is here already: its handler runs while it is in the cache, and the next one is fetched
                // into the same buffer.
                taken += self.progress(context)?;
            }
        }
        if self.channel.is_fetching() {
            taken += self.progress(context)?;
        }
        if taken > 0 {
            self.channel.tell_consumed()?;
            self.channel.flush()?;
        }
        if let Some((admitted, ring)) = self.admitted.as_mut().zip(self.channel.ring()) {
            admitted.attend(ring, taken)?;
        }
        Ok(taken)
    }

    fn limits(&self) -> Limits {
        Limits {
            eager: self.channel.eager_bytes(),
            longest: self.channel.longest(),
        }
    }

    /// Runs the handlers of short requests on this thread, as long as their answers are short, too. Stops at a message
    /// of another kind, or at a handler that ended otherwise.
    #[inline]
    fn serve(&mut self, most: usize, context: &Context) -> Result<Served, ChannelError> {
        let limits = self.limits();
        let Self {
            channel,
            admitted,
            id,
            draining,
            deadlines,
            caller,
            ..
        } = self;
        let deadline = deadlines.default();
        let granted = caller.granted();
        let mut ran = 0;
        let mut running = None;
        let mut outcome = None;
        let mut run = |asked: Asked<'_, C::Device>| {
            let Some(Execution::Inline(function)) = context.handlers.get(asked.handler) else {
                return None;
            };
            // What is refused here is refused again, with the reason, at the dispatch.
            let refused = |admitted: &mut Admitted| admitted.take().is_err();
            if *draining
                || granted.is_some_and(|granted| !granted.may_call(asked.handler))
                || admitted.as_mut().is_some_and(refused)
            {
                return None;
            }
            C::Device::charge(effort::SERVED);
            ran += 1;
            running = Some(asked.call);
            let mut responder = Responder::new(asked.place, &limits, asked.exports);
            let request = Request {
                handler: asked.handler,
                payload: asked.payload,
                connection: *id,
                caller,
                deadline,
                fate: None,
            };
            let result = function(&request, &mut responder);
            running = None;
            if let (Ok(()), Some(length)) = (&result, responder.written_in_place()) {
                return Some(length);
            }
            outcome = Some(Outcome::new(Ok(result), responder.elsewhere()));
            None
        };
        let mut ahead = |upcoming: Upcoming<'_>| context.handlers.prefetch(upcoming);
        // A panic is caught once for all of them: the handler that caused it is known, and the channel is in the state
        // before the handler ran.
        let served = catch_unwind(AssertUnwindSafe(|| {
            channel.serve(most, &mut ahead, &mut run)
        }));
        context.counters.requests(ran);
        let (messages, other) = match (served, running) {
            (Ok(served), _) => served?,
            (Err(_), Some(call)) => {
                outcome = Some(Outcome::panicked());
                (ran as usize, Some(Header::new(Kind::Request, 0, call, 0)))
            }
            // Not the panic of a handler.
            (Err(panic), None) => resume_unwind(panic),
        };
        Ok(Served {
            messages,
            other,
            outcome,
        })
    }

    /// Whether it has brought no request since the last call of this, and the server wants none from it.
    pub(in crate::server) fn is_quiet_now(&mut self) -> bool {
        self.admitted.as_mut().is_some_and(Admitted::is_quiet_now)
    }

    /// Whether credits need attention, whether or not requests have come.
    #[inline]
    fn wants_attention(&self) -> bool {
        self.admitted.as_ref().is_some_and(Admitted::is_due)
    }

    /// As [`Connection::poll`], for one message; returns the handler's id if it was a short request.
    #[cold]
    pub(in crate::server) fn poll_one(
        &mut self,
        context: &Context,
    ) -> Result<(usize, Option<HandlerId>), ChannelError> {
        if self.is_full() || self.channel.is_fetching() {
            return Ok((self.poll(context)?, None));
        }
        self.channel.end_batch()?;
        if !self.channel.make_room(self.channel.eager_bytes())? {
            return Ok((0, None));
        }
        let Some(header) = self.channel.receive()? else {
            return Ok((0, None));
        };
        let handler = (header.kind == Kind::Request)
            .then(|| handler_of(header.handler, self.channel.payload(header)));
        self.dispatch(header, context)?;
        self.channel.flush()?;
        Ok((1, handler))
    }

    /// Whether requests must wait in the ring, for room for answers or for memory.
    #[inline]
    fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.fetches_enough()
    }

    /// Whether no further long request may be fetched until the client has let a READ complete.
    #[inline]
    fn fetches_enough(&self) -> bool {
        !self.fetching.is_empty()
            && (self.fetching.len() >= MAX_FETCHES
                || self.channel.fetching_bytes() >= MAX_FETCHING_BYTES)
    }

    /// Checks for what does not show in messages: that the client has gone without notice, completions, failures,
    /// requests for credits, and deadlines that have passed by `now`.
    pub(in crate::server) fn check(
        &mut self,
        now: Instant,
        context: &Context,
    ) -> Result<(), ChannelError> {
        self.channel.probe_at_intervals(now)?;
        self.away.expire(now);
        self.progress(context).map(drop)
    }

    /// Takes completions, and checks for failures.
    fn progress(&mut self, context: &Context) -> Result<usize, ChannelError> {
        self.channel.progress()?;
        self.channel.flush()?;
        if let Some((admitted, ring)) = self.admitted.as_mut().zip(self.channel.ring()) {
            admitted.decide(ring)?;
        }
        let mut taken = 0;
        while let Some((fetched, buffer)) = self.channel.take_fetched() {
            taken += 1;
            let found = self.fetching.iter().position(|one| one.call == fetched);
            let Some(index) = found else { continue };
            let long = self.fetching.swap_remove(index);
            self.run_long(long, Landed::new(buffer), context)?;
        }
        if taken > 0 {
            self.channel.flush()?;
        }
        Ok(taken)
    }

    #[inline]
    fn dispatch(&mut self, header: Header, context: &Context) -> Result<(), ChannelError> {
        match header.kind {
            Kind::Request => self.run_short(header, context),
            Kind::LongRequest => self.begin_long(header, context),
            Kind::Attach => self.attach(header),
            Kind::Release => {
                if let Some(index) = self
                    .exported
                    .iter()
                    .position(|&(call, _)| call == header.call)
                {
                    let (_, buffer) = self.exported.swap_remove(index);
                    self.exported_bytes -= buffer.len();
                }
                Ok(())
            }
            Kind::Cancel => {
                self.cancel(header.call);
                Ok(())
            }
            Kind::Goodbye => Err(ChannelError::peer_gone()),
            Kind::Response | Kind::Failure | Kind::LongResponse => Err(ChannelError::violation(
                "an answer from a client to its server",
            )),
            _ => Err(ChannelError::violation(
                "a message of a different kind of channel",
            )),
        }
    }

    #[inline]
    fn run_short(&mut self, header: Header, context: &Context) -> Result<(), ChannelError> {
        context.counters.request();
        if let Some(admitted) = &mut self.admitted {
            admitted.take()?;
        }
        if self.draining {
            let failure = WireFailure::new(FailureReason::ShuttingDown, 0, "");
            return self.fail(header.call, failure);
        }
        let request = self.channel.payload(header);
        let timed = self.deadlines.of(header.handler, request)?;
        if timed.is_over {
            return self.fail(header.call, expired(false));
        }
        let (call, handler, deadline) = (header.call, timed.handler, timed.deadline);
        let header = Header {
            handler,
            length: timed.length as u32,
            ..header
        };
        match context.handlers.get(handler) {
            Some(_) if !self.caller.may_call(handler) => self.forbid(call, handler),
            Some(Execution::Inline(function)) => {
                self.run(function.as_ref(), (header, deadline), None, true)
            }
            Some(_) => match memory::copied(self.channel.payload(header)) {
                Ok(payload) => self.hand_out(call, (handler, deadline), Box::new(payload), context),
                Err(error) => self.fail(call, WireFailure::no_memory(error)),
            },
            None => self.fail_unknown(call, handler),
        }
    }

    /// Runs a handler on this thread, for the request received last or one that has been fetched. `has_place` says that
    /// there is room for its answer, and that no other answer waits before it.
    #[inline]
    fn run(
        &mut self,
        function: &HandlerFunction,
        (header, deadline): (Header, Deadline),
        landed: Option<&[u8]>,
        has_place: bool,
    ) -> Result<(), ChannelError> {
        let limits = self.limits();
        C::Device::charge(effort::SERVED);
        let (payload, place, exporter) = self.channel.exchange(header, has_place);
        let mut responder = Responder::new(place, &limits, exporter);
        let request = Request {
            handler: header.handler,
            payload: landed.unwrap_or(payload),
            connection: self.id,
            caller: &self.caller,
            deadline,
            fate: None,
        };
        let ended = execute(function, &request, &mut responder);
        if let (Ok(Ok(())), Some(length)) = (&ended, responder.written_in_place()) {
            self.channel.commit(header.call, length);
            return Ok(());
        }
        let outcome = Outcome::new(ended, responder.elsewhere());
        self.respond(header.call, outcome)
    }

    /// Whether long requests are being fetched.
    pub(in crate::server) fn is_fetching(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// Whether a message that can be taken has begun to arrive. If there is no room for its answer, it waits until the
    /// client has read others, which wakes a sleeping poller; if enough requests are being fetched, until a READ has
    /// completed, before which the poller pauses only briefly.
    #[inline]
    pub(in crate::server) fn has_arrival(&self) -> bool {
        self.channel.has_arrival() && self.channel.may_have_room() && !self.fetches_enough()
            || self.admitted.as_ref().is_some_and(Admitted::has_news)
    }

    /// See [`crate::channel::carrier::Carrier::prepare_sleep`].
    pub(in crate::server) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        // What found no free entry in the send queue.
        self.channel.flush()?;
        self.channel.prepare_sleep()
    }
}
