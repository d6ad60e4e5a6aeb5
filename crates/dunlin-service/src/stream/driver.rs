//! The driver of a client's streams: a task that pushes frames to the server, pulls frames from it, and polls the tasks
//! that send the user's streams. There is one for each channel that has streams.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin::{thread, CallError, CallFuture, Client, Execution, HandlerId, Ready, Reply};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::frame::{prefix, verdict, PULL_PREFIX, PUSH_PREFIX};
use super::session::Session;
use crate::tasks::Task;
use crate::wire::{PULL, PUSH};
use crate::Status;

/// Maximum time that a pull waits at the server; after that a push checks whether the server is still there.
const PULL_TIME: Duration = Duration::from_secs(5);
/// Longer than any wait.
const FAR: Duration = Duration::from_secs(1 << 30);
/// Not the number of any push: a server that knows the session treats it as already taken, and others begin no session
/// for it.
const BEFORE_FIRST: u32 = 0;
/// Number of consecutive calls that may fail before the streams fail.
const MOST_FAULTS: u32 = 8;

/// The task that drives a client's streams.
pub(crate) struct Driver {
    session: Arc<Session>,
    client: Client,
    id: u128,
    pumps: FuturesUnordered<Task>,
    push: Option<Call>,
    pushed: u32,
    /// When the server is considered gone if the push is not answered, and when the call that carries the push ends.
    push_until: Instant,
    push_call_until: Instant,
    /// Whether a push has been answered, so that the server knows the session.
    is_known: bool,
    /// Whether the server may have taken the first push although no answer has arrived.
    may_be_known: bool,
    pull: Option<Call>,
    pull_until: Instant,
    heard: u32,
    faults: u32,
}

/// One of the two calls.
struct Call {
    /// The client with the call's timeout.
    client: Client,
    handler: HandlerId,
    bytes: Vec<u8>,
    state: State,
}

enum State {
    /// As many calls are outstanding as are allowed.
    Waiting(Ready),
    Out(CallFuture),
}

impl Call {
    fn new(client: Client, handler: HandlerId, bytes: Vec<u8>) -> Self {
        let state = State::Out(client.call_async(handler, &bytes));
        Self {
            client,
            handler,
            bytes,
            state,
        }
    }

    /// A call that ends at this time, with an answer or without.
    fn until(until: Instant, client: &Client, handler: HandlerId, bytes: Vec<u8>) -> Self {
        let time = until.saturating_duration_since(thread::now());
        let client = client.within(time.max(Duration::from_millis(1)));
        Self::new(client, handler, bytes)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, CallError>> {
        loop {
            self.state = match &mut self.state {
                State::Waiting(ready) => match Pin::new(ready).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(permit)) => State::Out(permit.call(self.handler, &self.bytes)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                },
                State::Out(call) => match Pin::new(call).poll(context) {
                    Poll::Ready(Err(CallError::TooManyOutstanding { .. })) => {
                        State::Waiting(self.client.ready())
                    }
                    polled => return polled,
                },
            };
        }
    }
}

impl Driver {
    pub(crate) fn new(session: Arc<Session>, client: Client, id: u128) -> Self {
        Self {
            session,
            client,
            id,
            pumps: FuturesUnordered::new(),
            push: None,
            pushed: 0,
            push_until: thread::now(),
            push_call_until: thread::now(),
            is_known: false,
            may_be_known: false,
            pull: None,
            pull_until: thread::now(),
            heard: 0,
            faults: 0,
        }
    }

    /// Pushes the waiting frames, if any; `even_nothing`: pushes in any case, to check whether the server is there.
    fn push(&mut self, even_nothing: bool, first_deadline: Option<Instant>) {
        let chunk = self.session.take_chunk();
        let chunk = chunk.or_else(|| even_nothing.then(|| vec![0; PUSH_PREFIX]));
        if let Some(mut chunk) = chunk {
            self.pushed = self.pushed.wrapping_add(1);
            chunk[..PUSH_PREFIX].copy_from_slice(&prefix(self.id, self.pushed));
            self.begin_push(chunk, first_deadline);
        }
    }

    fn begin_push(&mut self, chunk: Vec<u8>, first_deadline: Option<Instant>) {
        self.push_until = thread::now() + self.client.deadline().min(FAR);
        self.call_push(chunk, first_deadline);
    }

    /// Sends the push, for the first time or again: it is numbered, so the server takes it only once. At the first
    /// deadline of a stream a pull wakes this side. No pull is made before the server knows the session: until then the
    /// push does so.
    fn call_push(&mut self, chunk: Vec<u8>, first_deadline: Option<Instant>) {
        let first = first_deadline.filter(|first| !self.is_known && *first < self.push_until);
        self.push_call_until = first.unwrap_or(self.push_until);
        self.push = Some(match first {
            Some(first) => Call::until(first, &self.client, PUSH, chunk),
            None => Call::until(self.push_until, &self.client, PUSH, chunk),
        });
    }

    fn pull(&mut self, first_deadline: Option<Instant>) {
        let now = thread::now();
        let until = now + PULL_TIME;
        self.pull_until = first_deadline.map_or(until, |first| first.min(until));
        let bytes = prefix(self.id, self.heard).to_vec();
        self.pull = Some(Call::until(self.pull_until, &self.client, PULL, bytes));
    }

    /// Repeats the waiting push with a shorter or longer time: the current call is abandoned.
    fn change_time(&mut self, first_deadline: Option<Instant>) {
        if let Some(call) = self.push.take() {
            self.may_be_known |= matches!(call.state, State::Out(_));
            self.call_push(call.bytes, first_deadline);
        }
    }

    /// Returns what to push after a push has failed. A server that knows the session never takes a push twice. One that
    /// does not, because it was restarted or has meanwhile forgotten the session, would take the first push again and
    /// so run the handlers of its streams again. It is asked instead, by a push without frames that begins no session.
    fn again(&self, bytes: Vec<u8>) -> Vec<u8> {
        match !self.is_known && self.may_be_known {
            true => prefix(self.id, BEFORE_FIRST).to_vec(),
            false => bytes,
        }
    }

    /// Decides whether a call that has failed is made again.
    fn try_again(&mut self, error: CallError) -> Result<(), Status> {
        self.faults += 1;
        let may_pass = match &error {
            CallError::ConnectionLost { .. }
            | CallError::PacketLost { .. }
            | CallError::NoMemory { .. }
            | CallError::Overloaded(_)
            | CallError::Connect(_) => true,
            // The call was answered, but the answer cannot be retrieved.
            other => other.is_retryable() && other.execution() == Execution::NotExecuted,
        };
        if may_pass && self.faults <= MOST_FAULTS {
            return Ok(());
        }
        let is_known = self.is_known || self.may_be_known;
        match is_known && error.execution() == Execution::NotExecuted {
            // This call was not executed, but one before it may have been, and with it what the streams asked for.
            true => Err(Status::unavailable(format!(
                "lost the connection to the server: {error}"
            ))),
            false => Err(error.into()),
        }
    }

    fn take_push(
        &mut self,
        answer: Result<Reply, CallError>,
        first_deadline: Option<Instant>,
    ) -> Result<(), Status> {
        match answer {
            Ok(answer) => {
                judge(&answer)?;
                self.push = None;
                self.faults = 0;
                self.is_known = true;
            }
            Err(error) if has_no_time_left(&error) && thread::now() < self.push_until => {
                // The deadline of a stream has passed.
                self.may_be_known |= error.execution() != Execution::NotExecuted;
                if let Some(call) = self.push.take() {
                    self.call_push(call.bytes, None);
                }
            }
            Err(CallError::TooLong { bytes: 1.., limit }) => {
                if let Some(call) = self.push.take() {
                    let mut part = self.session.with(|mux| mux.divide(&call.bytes, limit));
                    part[..PUSH_PREFIX].copy_from_slice(&call.bytes[..PUSH_PREFIX]);
                    self.begin_push(part, first_deadline);
                }
            }
            Err(error) if has_no_time_left(&error) => {
                return Err(Status::unavailable(format!(
                    "no response from the server: {error}"
                )));
            }
            Err(error) => {
                self.may_be_known |= error.execution() != Execution::NotExecuted;
                self.try_again(error)?;
                if let Some(call) = self.push.take() {
                    self.begin_push(self.again(call.bytes), first_deadline);
                }
            }
        }
        Ok(())
    }

    /// Takes the answer to a pull; returns `false` if it brought nothing.
    fn take_pull(&mut self, answer: Result<Reply, CallError>) -> Result<bool, Status> {
        self.pull = None;
        match answer {
            Ok(answer) => {
                judge(&answer)?;
                let broken = || Status::internal("malformed answer to a pull from the server");
                let (prefix, frames) = answer
                    .split_first_chunk::<PULL_PREFIX>()
                    .ok_or_else(broken)?;
                let number = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                self.faults = 0;
                // An answer may arrive again after it was taken.
                if number == self.heard.wrapping_add(1) {
                    self.heard = number;
                    let taken = self.session.with(|mux| mux.receive(frames, |_, _| {}));
                    taken.map_err(|violation| {
                        Status::internal(format!(
                            "the server violated the protocol of streams: {}",
                            violation.0
                        ))
                    })?;
                }
                Ok(!frames.is_empty())
            }
            Err(error) if has_no_time_left(&error) => Ok(false),
            Err(error) => self.try_again(error).map(|()| false),
        }
    }

    /// Tells the server, as far as the messages arrive in time, that all streams are given up. If an earlier push was
    /// not sent, its missing number ends the streams at the server, too.
    fn give_up_streams(&mut self) {
        self.push = None;
        for mut chunk in self.session.give_up_all() {
            self.pushed = self.pushed.wrapping_add(1);
            chunk[..PUSH_PREFIX].copy_from_slice(&prefix(self.id, self.pushed));
            // The call is sent once its future exists; nobody needs the answer.
            drop(self.client.call_async(PUSH, &chunk));
        }
    }

    /// Runs while there is something to do. `Ok(true)`: the session has ended with its last stream.
    fn work(&mut self, context: &mut Context<'_>) -> Result<bool, Status> {
        loop {
            let Some(turn) = self.session.turn(context.waker()) else {
                return Ok(true);
            };
            self.pumps.extend(turn.pumps);
            while let Poll::Ready(Some(())) = self.pumps.poll_next_unpin(context) {}
            let is_sooner = |until| turn.first_deadline.is_some_and(|first| first < until);
            if self.push.is_none() {
                self.push(false, turn.first_deadline);
            }
            let mut moved = false;
            if let Some(call) = &mut self.push {
                if let Poll::Ready(answer) = call.poll(context) {
                    self.take_push(answer, turn.first_deadline)?;
                    moved = true;
                } else if !self.is_known && is_sooner(self.push_call_until) {
                    self.change_time(turn.first_deadline);
                    moved = true;
                }
            }
            if self.pull.is_some() && is_sooner(self.pull_until) {
                // Its answer would come too late; the server answers the next pull as it would have answered this one.
                self.pull = None;
            }
            // Pulls even without streams: the server forgets a session that has been silent for long, so this side goes
            // on until a pull brings nothing, and then ends the session.
            if self.pull.is_none() && self.is_known {
                self.pull(turn.first_deadline);
            }
            if let Some(call) = &mut self.pull {
                if let Poll::Ready(answer) = call.poll(context) {
                    let in_vain = answer.as_ref().is_err_and(has_no_time_left);
                    let brought = self.take_pull(answer)?;
                    if !brought && self.push.is_none() {
                        if self.session.end_if_idle() {
                            return Ok(true);
                        }
                        if in_vain {
                            self.push(true, turn.first_deadline);
                        }
                    }
                    moved = true;
                }
            }
            let is_done = turn.closing && self.push.is_none() && self.session.end_if_idle();
            if is_done || !moved {
                return Ok(is_done);
            }
        }
    }
}

/// Whether the time of a call is over, by this side's clock or the server's.
fn has_no_time_left(error: &CallError) -> bool {
    matches!(
        error,
        CallError::DeadlineExceeded { .. } | CallError::Expired { .. }
    )
}

/// Evaluates the verdict in the answer to a push or a pull.
fn judge(answer: &[u8]) -> Result<(), Status> {
    match answer.split_first() {
        Some((&verdict::TAKEN, _)) => Ok(()),
        Some((&verdict::UNKNOWN_SESSION, _)) => Err(Status::unavailable(
            "the server no longer knows the streams: it was restarted, or has not heard from this client for too long",
        )),
        Some((&verdict::TOO_MANY, _)) => Err(Status::resource_exhausted(
            "limit reached: the server has streams of as many clients as allowed (max_sessions, \
             max_sessions_per_connection)",
        )),
        Some((&verdict::VIOLATION, why)) => {
            let why = String::from_utf8_lossy(why);
            Err(Status::internal(format!("the server reports that the client violated the protocol of streams: {why}")))
        }
        _ => Err(Status::internal("malformed answer to a push or a pull from the server")),
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        match this.work(context) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(()),
            Err(status) => {
                this.session.end(&status);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.session.is_over() && self.pushed > 0 {
            // Otherwise the server would consider this client busy, and run its handlers for half a minute.
            self.give_up_streams();
        }
        // For streams that are left over: the runtime has ended.
        let status = Status::unavailable(
            "the driver of the channel's streams has stopped because its runtime has shut down",
        );
        self.session.end(&status);
    }
}
