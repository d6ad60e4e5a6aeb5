//! The handlers. Each takes the namespace's lock, executes its request, and passes changes to the journal under the
//! lock.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin::{HandlerError, OwnedResponder, Responder};

use super::journal::{Entry, Journal};
use super::waiting::{Waiter, Waiting};
use crate::namespace::{Done, Namespace, Now, Waits};
use crate::types::{Errno, Ino, Outcome, Refused};
use crate::wire::{decode, encode, Answer, Ask, Change, Envelope, Watch, Watched, Welcome};

/// The error code of a malformed request.
const MALFORMED: u32 = 1;

#[derive(Debug)]
pub(super) struct Service {
    state: Mutex<State>,
    pub(super) journal: Journal,
    epoch: u64,
    lease: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) namespace: Namespace,
    waiting: Waiting,
}

/// The current time, of both clocks.
pub(super) fn now() -> Now {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        wall: wall.map_or(0, |since| since.as_nanos() as i64),
        steady_ms: BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64,
    }
}

#[cold]
fn malformed() -> HandlerError {
    HandlerError::new(MALFORMED, "not a request of this version of dunlin-fs")
}

impl Service {
    pub(super) fn new(namespace: Namespace, journal: Journal, epoch: u64, lease: Duration) -> Self {
        let waiting = Waiting::default();
        Self {
            state: Mutex::new(State { namespace, waiting }),
            journal,
            epoch,
            lease,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }

    /// On the polling thread: does not wait for the journal, but returns that the caller has to.
    pub(super) fn ask(
        &self,
        payload: &[u8],
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let ask: Ask<'_> = decode(payload).ok_or_else(malformed)?;
        let (outcome, rests_on) = self.lock().namespace.ask(&ask);
        if self.journal.progress.has(rests_on) {
            reply.write(&encode(&outcome))
        } else {
            reply.write(&encode(&Outcome::<Answer>::Err(Refused(Errno::AGAIN))))
        }
    }

    pub(super) fn ask_durable(&self, payload: &[u8], responder: OwnedResponder) {
        let Some(ask) = decode::<Ask<'_>>(payload) else {
            return responder.fail(malformed());
        };
        let state = self.lock();
        let (outcome, rests_on) = state.namespace.ask(&ask);
        self.journal.keep(Entry {
            records: Vec::new(),
            rests_on,
            answer: Some((responder, encode(&outcome))),
        });
    }

    pub(super) fn change(&self, payload: &[u8], responder: OwnedResponder) {
        let Some(envelope) = decode::<Envelope<'_>>(payload) else {
            return responder.fail(malformed());
        };
        let mut state = self.lock();
        if let Change::Release { ino } | Change::Keep { ino } = envelope.change {
            // A session has one thread at a time for each file's lease: it has given up what still waits, and a lease
            // granted after this would be one that it does not know of.
            for waiter in state.waiting.withdraw(envelope.session, ino) {
                let refused = Outcome::<Answer>::Err(Refused(Errno::AGAIN));
                waiter.responder.reply(encode(&refused));
            }
        }
        let waiter = Waiter {
            payload: payload.to_vec(),
            responder,
        };
        match envelope.change {
            Change::Lease { ino, .. }
                if state.waiting.is_contended(ino)
                    && !state.namespace.holds(envelope.session, ino) =>
            {
                state.waiting.wait(ino, waiter);
            }
            _ => {
                if let Some((ino, waiter)) = self.attempt(&mut state, waiter) {
                    state.waiting.wait(ino, waiter);
                }
            }
        }
        if matches!(
            envelope.change,
            Change::Release { .. } | Change::Keep { .. } | Change::Settle { .. } | Change::Bye
        ) {
            self.grant(&mut state);
        }
        self.tell(&mut state);
    }

    /// Executes a change; returns it if it has to wait.
    fn attempt(&self, state: &mut State, waiter: Waiter) -> Option<(Ino, Waiter)> {
        let Some(envelope) = decode::<Envelope<'_>>(&waiter.payload) else {
            waiter.responder.fail(malformed());
            return None;
        };
        match state.namespace.change(&envelope, now()) {
            Done::Answered { answer, rests_on } => {
                self.journal.keep(Entry {
                    records: state.namespace.take_records(),
                    rests_on,
                    answer: Some((waiter.responder, answer)),
                });
                None
            }
            Done::Waits(Waits { ino, holders }) => {
                state.waiting.recall(ino, &holders);
                Some((ino, waiter))
            }
        }
    }

    /// Tries all waiting lease requests in order, and recalls conflicting leases again.
    pub(super) fn grant(&self, state: &mut State) {
        let files: Vec<Ino> = state.waiting.leases.keys().copied().collect();
        for ino in files {
            let Some(mut queue) = state.waiting.leases.remove(&ino) else {
                continue;
            };
            while let Some(waiter) = queue.pop_front() {
                if waiter.responder.is_cancelled() {
                    continue;
                }
                if let Some((_, waiter)) = self.attempt(state, waiter) {
                    queue.push_front(waiter);
                    break;
                }
            }
            if !queue.is_empty() {
                state.waiting.leases.insert(ino, queue);
            }
        }
    }

    /// Answers the long polls that have something to report.
    fn tell(&self, state: &mut State) {
        for (responder, recalled) in state.waiting.due(now().steady_ms) {
            let epoch = self.epoch;
            responder.reply(encode(&Outcome::Ok(Watched { epoch, recalled })));
        }
    }

    pub(super) fn hello(&self, _payload: &[u8], responder: OwnedResponder) {
        let mut state = self.lock();
        let expires_ms = now().steady_ms + self.lease_ms();
        let begun = crate::random()
            .map_err(|_| Refused(Errno::IO))
            .and_then(|session| {
                state.namespace.begin_session(session, expires_ms)?;
                Ok(Welcome {
                    session,
                    lease_ms: self.lease_ms(),
                    epoch: self.epoch,
                })
            });
        self.keep(&mut state, Some((responder, encode(&begun))));
    }

    pub(super) fn watch(&self, payload: &[u8], responder: OwnedResponder) {
        let Some(watch) = decode::<Watch>(payload) else {
            return responder.fail(malformed());
        };
        let mut state = self.lock();
        let now_ms = now().steady_ms;
        let current = watch.epoch == self.epoch;
        let renewed = state
            .namespace
            .renew(watch.session, now_ms + self.lease_ms(), current);
        if let Err(refused) = renewed {
            return responder.reply(encode(&Outcome::<Watched>::Err(refused)));
        }
        self.keep(&mut state, None);
        self.grant(&mut state);
        let poll = state.waiting.polls.entry(watch.session).or_default();
        // The client has given up an earlier one that is still waiting.
        poll.responder = Some(responder);
        poll.until_ms = match current {
            true => now_ms + self.lease_ms() / 4,
            false => now_ms,
        };
        self.tell(&mut state);
    }

    /// Passes the namespace's changes to the journal.
    pub(super) fn keep(&self, state: &mut State, answer: Option<(OwnedResponder, Vec<u8>)>) {
        let records = state.namespace.take_records();
        if answer.is_some() || !records.is_empty() {
            let rests_on = state.namespace.sequence();
            self.journal.keep(Entry {
                records,
                rests_on,
                answer,
            });
        }
    }

    /// Time-driven work: sessions end, long polls are answered, lease requests are retried.
    pub(super) fn tick(&self) {
        let mut state = self.lock();
        state.namespace.end_expired(now());
        self.keep(&mut state, None);
        self.grant(&mut state);
        self.tell(&mut state);
    }
}
