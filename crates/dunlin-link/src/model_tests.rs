//! Tests the account against a model of the device: requests are posted, carried out, polled and lost in any order.

use std::collections::VecDeque;

use dunlin_verbs::{Completion, CompletionOpcode, CompletionStatus, SendFlags};
use proptest::prelude::*;

use crate::{Ended, InFlight, SendQueue, Ticket};

/// The possible next steps.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// A list of this many is posted, if there are entries; the last is signaled if `wanted` or if a signal is due.
    Post { count: usize, wanted: bool },
    /// One request is posted with the flags that the account returns, and holds a value.
    PostHolding,
    /// `signal_next` is called.
    SignalNext,
    /// The device carries out this many.
    CarryOut(usize),
    /// This many completions are taken.
    Poll(usize),
    /// A RECEIVE completes.
    Receive,
    /// The next request fails, and those behind it are flushed.
    Fail,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        8 => (1..6usize, any::<bool>()).prop_map(|(count, wanted)| Action::Post { count, wanted }),
        6 => Just(Action::PostHolding),
        1 => Just(Action::SignalNext),
        6 => (1..12usize).prop_map(Action::CarryOut),
        6 => (1..4usize).prop_map(Action::Poll),
        1 => Just(Action::Receive),
    ];
    // A failure ends a run, or nearly so.
    let failing = (
        proptest::collection::vec(action.clone(), 0..6),
        any::<bool>(),
    );
    (proptest::collection::vec(action, 1..120), failing).prop_map(|(mut run, (rest, fails))| {
        run.extend(fails.then_some(Action::Fail));
        run.extend(rest);
        run
    })
}

fn completion(opcode: CompletionOpcode, status: CompletionStatus) -> Completion {
    Completion {
        opcode,
        status,
        ..Completion::EMPTY
    }
}

/// The queue under test, and the model's state.
struct World {
    queue: SendQueue,
    entries: usize,
    signal_every: usize,
    /// Which requests were posted and signaled, by number, beginning with number 1.
    signaled: Vec<bool>,
    /// How many of them the device has carried out.
    done: usize,
    /// Numbers of the signaled requests whose completions have not been taken yet, or a failure.
    completions: VecDeque<Result<usize, CompletionStatus>>,
    /// The last number that a completion has reported.
    known: usize,
    broken: bool,
    /// How many had been posted when the account learned of the failure.
    failed_at: usize,
    tickets: Vec<(Ticket, usize)>,
    held: VecDeque<InFlight<usize>>,
    given_back: Vec<usize>,
}

impl World {
    fn new(entries: usize, signal_every: usize) -> Self {
        Self {
            queue: SendQueue::new(entries, signal_every),
            entries,
            signal_every,
            signaled: Vec::new(),
            done: 0,
            completions: VecDeque::new(),
            known: 0,
            broken: false,
            failed_at: usize::MAX,
            tickets: Vec::new(),
            held: VecDeque::new(),
            given_back: Vec::new(),
        }
    }

    fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Post { count, wanted } => self.post(count, wanted)?,
            Action::PostHolding if self.queue.has_entries(1) => {
                let flags = self.queue.enter();
                let signaled = flags.contains(SendFlags::SIGNALED);
                self.signaled.push(signaled);
                self.held.push_back(self.queue.hold(self.signaled.len()));
                self.tickets.push((self.queue.last(), self.signaled.len()));
            }
            Action::PostHolding => {}
            Action::SignalNext => {
                self.queue.signal_next();
                prop_assert!(self.queue.is_signal_due(1));
            }
            Action::CarryOut(count) => self.carry_out(count),
            Action::Poll(count) => self.poll(count)?,
            Action::Receive => {
                for opcode in [
                    CompletionOpcode::Receive,
                    CompletionOpcode::ReceiveWriteWithImmediate,
                ] {
                    let received = completion(opcode, CompletionStatus::Success);
                    prop_assert_eq!(self.queue.complete(&received), Ok(Ended::Receive));
                }
            }
            Action::Fail => {
                let left = self.signaled.len() - self.done;
                self.broken = true;
                let error = CompletionStatus::RetryExceeded;
                self.completions.extend((left > 0).then_some(Err(error)));
                let flushed =
                    std::iter::repeat_n(CompletionStatus::Flushed, left.saturating_sub(1));
                self.completions.extend(flushed.map(Err));
            }
        }
        self.check()
    }

    fn post(&mut self, count: usize, wanted: bool) -> Result<(), TestCaseError> {
        if !self.queue.has_entries(count) {
            return Ok(());
        }
        let signal = wanted || self.queue.is_signal_due(count);
        let last = self.queue.post(count, signal);
        let before = self.signaled.len();
        self.signaled.resize(before + count, false);
        self.signaled[before + count - 1] = signal;
        self.tickets.push((last, before + count));
        // Entries are freed eventually, whatever is posted: no run of unsignaled requests is longer.
        let run = self.signaled.iter().rev().take_while(|&&it| !it).count();
        prop_assert!(run < self.signal_every || self.failed_at < usize::MAX);
        Ok(())
    }

    fn carry_out(&mut self, count: usize) {
        let until = (self.done + count).min(self.signaled.len());
        while !self.broken && self.done < until {
            self.done += 1;
            if self.signaled[self.done - 1] {
                self.completions.push_back(Ok(self.done));
            }
        }
    }

    fn poll(&mut self, count: usize) -> Result<(), TestCaseError> {
        for _ in 0..count {
            match self.completions.pop_front() {
                Some(Ok(number)) => {
                    let ended = completion(CompletionOpcode::Write, CompletionStatus::Success);
                    let told = self.queue.complete(&ended);
                    prop_assert_eq!(told, Ok(Ended::Requests(number - self.known)));
                    self.known = number;
                }
                Some(Err(status)) => {
                    // The opcode of a failed request is not reliable.
                    let failed = completion(CompletionOpcode::Receive, status);
                    prop_assert_eq!(self.queue.complete(&failed), Err(status));
                    self.failed_at = self.failed_at.min(self.signaled.len());
                }
                None => break,
            }
            while let Some(value) = self.queue.finish_first(&mut self.held) {
                self.given_back.push(value.into_inner());
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let Self { queue, known, .. } = self;
        let outstanding = self.signaled.len() - known;
        prop_assert_eq!(queue.outstanding(), outstanding);
        for count in 0..=self.entries + 1 {
            prop_assert_eq!(
                queue.has_entries(count),
                outstanding + count <= self.entries
            );
        }
        // Requests posted to a queue that has failed are not waited for.
        let awaited = self.signaled.iter().take(self.failed_at).skip(*known);
        prop_assert_eq!(queue.signaled(), awaited.filter(|&&it| it).count());
        for &(ticket, number) in &self.tickets {
            prop_assert_eq!(queue.is_finished(ticket), number <= *known);
        }
        prop_assert!(queue.is_finished(Ticket::default()));
        prop_assert!(self.given_back.iter().all(|number| number <= known));
        prop_assert!(self.held.iter().all(|held| held.value() > known));
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_account_is_the_devices(
        (entries, signal_every) in (1..40usize).prop_flat_map(|entries| (Just(entries), 1..=entries)),
        actions in actions(),
    ) {
        let mut world = World::new(entries, signal_every);
        let mut lasts = Vec::new();
        for action in actions {
            world.act(action)?;
            lasts.push(world.queue.last());
        }
        prop_assert!(lasts.is_sorted());
        // In the end, everything that can be freed is freed.
        world.carry_out(usize::MAX >> 1);
        world.poll(usize::MAX)?;
        world.check()?;
        prop_assert!(world.broken || world.queue.outstanding() < signal_every);
    }

    /// A value is returned only by its own queue, and by no other that has progressed as far.
    #[test]
    fn queues_are_not_taken_for_each_other(requests in 1..20usize, renew in any::<bool>()) {
        let mut one = SendQueue::new(32, 1);
        let mut other = if renew { one.renewed() } else { SendQueue::new(32, 1) };
        let ended = completion(CompletionOpcode::Write, CompletionStatus::Success);
        for _ in 0..requests {
            other.enter();
            one.enter();
        }
        let held = one.hold(7);
        for _ in 0..requests {
            prop_assert_eq!(other.complete(&ended), Ok(Ended::Requests(1)));
        }
        let held = other.finish(held).expect_err("not its own");
        let held = one.finish(held).expect_err("not finished");
        for _ in 0..requests {
            prop_assert_eq!(one.complete(&ended), Ok(Ended::Requests(1)));
        }
        prop_assert_eq!(one.finish(held).expect("finished").into_inner(), 7);
    }
}
