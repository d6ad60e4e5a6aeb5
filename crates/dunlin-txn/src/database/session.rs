//! An async transaction, shared by the tasks that request its steps and the progress thread ([`super::progress`]) that
//! runs it: the next steps, the results so far, how it ended, and who waits.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dunlin_verbs::thread;
use litemap::LiteMap;

use super::write_set::WriteSet;
use super::DatabaseError;
use crate::logic::{Access, Logic, Step, View};
use crate::types::{Key, Value, Version};
use crate::wire::MAX_ITEMS;

/// An async transaction.
#[derive(Debug)]
pub(super) struct Session {
    /// It does not begin before this time.
    pub(super) not_before: Instant,
    /// It must have begun by this time.
    pub(super) deadline: Instant,
    state: Mutex<State>,
}

/// The state of the session between task and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// The thread has not been notified of the session.
    #[default]
    New,
    /// The thread has been notified of a step, and will take it.
    Told,
    /// A step is in progress; the next one is taken when it is done.
    Running,
    /// All steps are done.
    Waiting,
    Over,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) set: WriteSet,
    standing: Standing,
    /// Steps that have not been taken yet, in order, each with its number.
    steps: VecDeque<(u64, Step)>,
    /// The number of the last step that was requested; below, that was taken and that is done.
    asked: u64,
    taken: u64,
    done: u64,
    /// The last step taken is the commit.
    commits: bool,
    seen: LiteMap<Key, (Version, Option<Value>)>,
    /// Its slot in the driver.
    pub(super) slot: Option<u16>,
    ended: Option<Result<(), DatabaseError>>,
    wakers: Vec<(u64, Waker)>,
}

impl State {
    pub(super) fn view(&self) -> View<'_> {
        View { seen: &self.seen }
    }

    pub(super) fn is_over(&self) -> bool {
        self.standing == Standing::Over
    }

    /// Whether the thread has been notified and has work to do for it.
    pub(super) fn is_told(&self) -> bool {
        self.standing == Standing::Told
    }

    /// Appends a step to those that have not been taken; accesses to keys are merged. Returns the step's number, and
    /// whether the thread has to be notified.
    pub(super) fn ask(&mut self, step: Step) -> (u64, bool) {
        self.asked += 1;
        let asked = self.asked;
        match (self.steps.back_mut(), step) {
            (Some((number, Step::Access(last))), Step::Access(more))
                if last.keys() + more.keys() <= MAX_ITEMS =>
            {
                last.reads.extend(more.reads);
                last.writes.extend(more.writes);
                *number = asked;
            }
            (_, step) => self.steps.push_back((asked, step)),
        }
        let tells = matches!(self.standing, Standing::New | Standing::Waiting);
        if tells {
            self.standing = Standing::Told;
        }
        (asked, tells)
    }

    /// Takes the next step, if there is one.
    pub(super) fn next(&mut self) -> Option<Step> {
        let Some((number, step)) = self.steps.pop_front() else {
            self.standing = Standing::Waiting;
            return None;
        };
        self.standing = Standing::Running;
        self.taken = number;
        self.commits = matches!(step, Step::Commit(_));
        Some(step)
    }

    /// Returns what still has to be requested for these keys, if anything.
    pub(super) fn missing(&mut self, keys: &[Key], lock: bool) -> Option<Access> {
        let Self { set, seen, .. } = self;
        set.missing(keys, lock, |key| seen.contains_key(key))
    }

    /// Returns the error if it has failed, in full to the first caller.
    pub(super) fn take_failure(&mut self) -> Option<DatabaseError> {
        let failure = self.ended.take_if(|ended| ended.is_err());
        failure.and_then(Result::err)
    }

    /// Why it takes no more steps.
    pub(super) fn failure(&self) -> DatabaseError {
        match &self.ended {
            Some(Err(error)) => error.again(),
            _ => DatabaseError::Over,
        }
    }

    /// Whether it has committed.
    pub(super) fn has_committed(&self) -> bool {
        matches!(self.ended, Some(Ok(())))
    }

    /// The wakers of tasks that wait for steps up to this one.
    fn waiting_for(&mut self, done: u64) -> Vec<Waker> {
        let waiting = self.wakers.extract_if(.., |(number, _)| *number <= done);
        waiting.map(|(_, waker)| waker).collect()
    }
}

impl Session {
    pub(super) fn new(not_before: Instant, deadline: Instant) -> Arc<Self> {
        Arc::new(Self {
            not_before,
            deadline,
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        thread::lock(&self.state)
    }

    /// The owner has dropped it: it is aborted, unless it is already committing. Returns whether the thread has to be
    /// notified.
    pub(super) fn abandon(&self) -> bool {
        let mut state = self.state();
        if state.commits || matches!(state.standing, Standing::New | Standing::Over) {
            return false;
        }
        state.steps.clear();
        state.ask(Step::Abort).1
    }

    /// Ends the session.
    pub(super) fn end(&self, result: Result<(), DatabaseError>) {
        let mut state = self.state();
        state.standing = Standing::Over;
        if result.is_ok() {
            // The commit is its last step; no further steps are taken.
            state.done = state.taken;
        }
        state.ended = Some(result);
        let waiting = state.waiting_for(u64::MAX);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until a step is done.
    pub(super) fn done(&self, number: u64) -> Done<'_> {
        Done {
            session: self,
            number,
        }
    }
}

/// Resolves at the end of a step. If it is dropped, the step still goes on.
pub(super) struct Done<'s> {
    session: &'s Session,
    number: u64,
}

impl Future for Done<'_> {
    type Output = Result<(), DatabaseError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are foreign code: none is cloned or dropped under the lock.
        let waker = context.waker().clone();
        let mut state = self.session.state();
        if state.done >= self.number {
            return Poll::Ready(Ok(()));
        }
        if state.is_over() {
            return Poll::Ready(Err(state.failure()));
        }
        let mine = |(number, _): &(u64, Waker)| *number == self.number;
        let former = match state.wakers.iter().position(mine) {
            Some(at) => Some(std::mem::replace(&mut state.wakers[at].1, waker)),
            None => {
                state.wakers.push((self.number, waker));
                None
            }
        };
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let mut state = self.session.state();
        let mine = state
            .wakers
            .extract_if(.., |(number, _)| *number == self.number);
        let mine: Vec<_> = mine.collect();
        drop(state);
        drop(mine);
    }
}

/// The steps of a session, as the logic of its coordinator.
#[derive(Debug)]
pub(super) struct Steps(pub(super) Arc<Session>);

impl Logic for Steps {
    fn step(&mut self, view: View<'_>) -> Step {
        let mut state = self.0.state();
        for (key, seen) in view.seen.iter() {
            if !state.seen.contains_key(key) {
                state.seen.insert(key.clone(), seen.clone());
            }
        }
        state.done = state.taken;
        let done = state.done;
        let waiting = state.waiting_for(done);
        let step = state.next().unwrap_or(Step::Wait);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        step
    }
}
