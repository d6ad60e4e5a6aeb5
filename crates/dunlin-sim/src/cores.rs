//! Cores and the threads on them.
//!
//! A simulated thread is a state machine with a step (design §3.3), not a stack of its own. A step runs to its end at
//! one instant: it sees memory and completions as they are when it begins, its charges add up to virtual time, and what
//! it posts reaches the NIC at the time that its charges have reached by then. Between steps the thread polls (it keeps
//! its core, and is woken only by writes and completions) or blocks.

use crate::event::{Event, Ps, NS};
use crate::world::World;

/// When a thread's next step is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once, when the time of this step has passed.
    Again,
    /// The thread polls: the step is due when a peer writes into memory that the thread has looked at, or a completion
    /// arrives in a queue that it has polled.
    Poll,
    /// Like `Poll`, but at this time in nanoseconds at the latest.
    PollUntil(u64),
    /// The thread sleeps in the kernel and gives up its core: the step is due when an event arrives at a completion
    /// channel that it waits for, or by [`crate::Cluster::wake`].
    Block,
    /// Like `Block`, but at this time in nanoseconds at the latest.
    BlockUntil(u64),
    /// As soon as the other threads of the core that are ready have had their turn.
    Yield,
    /// Like `PollUntil`, but the thread yields its core to others between polls instead of keeping it.
    YieldUntil(u64),
    /// Never.
    Done,
}

/// A simulated thread. Closures from the time in nanoseconds to [`Next`] are threads.
pub trait Step: Send {
    /// Does what can be done at `now_ns`.
    fn step(&mut self, now_ns: u64) -> Next;
}

impl<F: FnMut(u64) -> Next + Send> Step for F {
    fn step(&mut self, now_ns: u64) -> Next {
        self(now_ns)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Ready,
    Polling,
    /// Polls, and yields its core between polls.
    Yielding,
    Blocked,
    Done,
}

impl ThreadState {
    /// Whether a thread whose step ends in this state gives up its core.
    fn leaves(self) -> bool {
        matches!(self, Self::Yielding | Self::Blocked | Self::Done)
    }
}

pub(crate) struct Thread {
    pub(crate) host: u16,
    pub(crate) core: u32,
    pub(crate) step: Option<Box<dyn Step>>,
    pub(crate) state: ThreadState,
    /// End of the thread's last step.
    pub(crate) busy_until: Ps,
    /// Time until which its writes to the NIC wait for the link.
    stalled_until: Ps,
    /// Time for which the next step is planned, or the end of time.
    planned: Ps,
    stamp: u32,
    /// Whether a step was due while another thread had the core.
    missed: bool,
    /// Whether the thread has a stack: it looks at memory at many times within a step, so wakeups during a step are
    /// kept.
    pub(crate) stacked: bool,
    /// Whether a wakeup came since the thread began to look.
    news: bool,
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread")
            .field("host", &self.host)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Thread {
    /// How long the step at `now` waits for the link to the NIC.
    pub(crate) fn stalled(&self, now: Ps) -> Ps {
        self.stalled_until.saturating_sub(now)
    }
}

/// A core and the threads that share it.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) threads: Vec<u32>,
    current: usize,
    /// End of the last step on the core, of whichever thread, or of the switch to the thread that has it.
    busy_until: Ps,
    slice_stamp: u32,
    /// Whether the end of the slice is planned. It is not while none of the core's threads has anything due.
    slicing: bool,
    /// Start of the slice.
    slice_from: Ps,
    /// The slice is over: the current thread gives the core up at the end of its step.
    due: bool,
    /// The current thread was given the core and has not begun its step: a thread that becomes ready during the switch
    /// waits for that step. Otherwise threads that keep waking would starve one that only computes.
    given: bool,
}

impl World {
    /// Puts a thread on a core; its first step is due now. `None` when the host has had its maximum number of threads.
    pub(crate) fn spawn(
        &mut self,
        host: u16,
        core: u32,
        step: Box<dyn Step>,
        stacked: bool,
    ) -> Option<u32> {
        let number = self.threads.next(host)?;
        let core = self.hosts[usize::from(host)].first_core + core;
        self.threads.push(Thread {
            host,
            core,
            step: Some(step),
            state: ThreadState::Ready,
            busy_until: self.now,
            stalled_until: 0,
            planned: Ps::MAX,
            stamp: 0,
            missed: false,
            stacked,
            news: false,
        });
        if let [last] = self.cores[core as usize].threads[..] {
            if self.threads[last].state == ThreadState::Done {
                self.cores[core as usize].threads.clear();
            }
        }
        let threads = &mut self.cores[core as usize].threads;
        threads.push(number);
        self.plan(number, self.now);
        Some(number)
    }

    /// Number of threads of a core that have not ended.
    pub(crate) fn live_threads(&self, core: u32) -> usize {
        let threads = self.cores[core as usize].threads.iter();
        threads
            .filter(|&&number| self.threads[number].state != ThreadState::Done)
            .count()
    }

    /// Gives the core to the thread at this place, and removes threads that have ended.
    fn give_core(&mut self, core: u32, place: usize) {
        let (shared, threads) = (&mut self.cores[core as usize], &self.threads);
        let holder = shared.threads[place];
        let ended = |number: u32| number != holder && threads[number].state == ThreadState::Done;
        if shared.threads.iter().any(|&number| ended(number)) {
            shared.threads.retain(|&number| !ended(number));
        }
        let place = shared.threads.iter().position(|&number| number == holder);
        shared.current = place.unwrap_or(0);
    }

    /// Stalls a thread until the link to its NIC has taken its writes: a doorbell ends with a fence.
    pub(crate) fn stall(&mut self, number: u32, until: Ps) {
        if let Some(thread) = self.threads.get_mut(number) {
            thread.stalled_until = thread.stalled_until.max(until);
        }
    }

    /// Plans the next step of a thread, unless an earlier one is planned.
    fn plan(&mut self, number: u32, at: Ps) {
        let thread = &mut self.threads[number];
        if at >= thread.planned {
            return;
        }
        thread.planned = at;
        thread.stamp = thread.stamp.wrapping_add(1);
        let (host, stamp, core) = (thread.host, thread.stamp, thread.core);
        self.queue.push(
            at,
            host,
            Event::Thread {
                thread: number,
                stamp,
            },
        );
        self.resume_slices(core);
    }

    /// Resumes the slices of a core because one of its threads has something due; they continue from where they would
    /// be by now.
    fn resume_slices(&mut self, core: u32) {
        let shared = &self.cores[core as usize];
        if shared.slicing || shared.threads.len() < 2 {
            return;
        }
        let host = self.threads[shared.threads[0]].host;
        let slice = self.hosts[usize::from(host)].parameters.time_slice.max(1);
        let passed = self.now.saturating_sub(shared.slice_from) / slice;
        if passed > 0 && shared.busy_until > self.now {
            // A step outlasts the slice: the next thread has its turn when the step ends.
            let end = shared.busy_until;
            self.cores[core as usize].due = true;
            return self.plan_slice(core, end);
        }
        let count = shared.threads.len();
        let polls = |&place: &usize| {
            let state = self.threads[shared.threads[place]].state;
            matches!(state, ThreadState::Ready | ThreadState::Polling)
        };
        let turns: Vec<usize> = (1..=count)
            .map(|step| (shared.current + step) % count)
            .filter(polls)
            .collect();
        let current = match turns.len() as u64 {
            0 => shared.current,
            _ if passed == 0 => shared.current,
            those => turns[((passed - 1) % those) as usize],
        };
        let shared = &mut self.cores[core as usize];
        shared.given &= current == shared.current;
        shared.current = current;
        shared.slice_from += passed * slice;
        let end = shared.slice_from + slice;
        self.plan_slice(core, end);
    }

    /// Wakes a thread that polls, at time `now`.
    pub(crate) fn wake_thread(&mut self, number: u32, now: Ps) {
        let thread = &mut self.threads[number];
        thread.news = thread.stacked;
        let host = &self.hosts[usize::from(thread.host)];
        let prices = &host.parameters;
        let detect = prices.detect + host.dram.delay(now, number);
        let delay = match thread.state {
            ThreadState::Polling => detect,
            ThreadState::Yielding => {
                let core = &self.cores[thread.core as usize];
                let away = core.threads[core.current] != number;
                detect + if away { prices.context_switch } else { 0 }
            }
            _ => return,
        };
        let at = (now + delay).max(thread.busy_until);
        self.plan(number, at);
    }

    /// Wakes a thread that sleeps or polls.
    pub(crate) fn rouse_thread(&mut self, number: u32, now: Ps) {
        let thread = &mut self.threads[number];
        if thread.state == ThreadState::Blocked {
            thread.news = thread.stacked;
            let wake = self.hosts[usize::from(thread.host)].parameters.wake;
            let at = (now + wake).max(thread.busy_until);
            self.plan(number, at);
        } else {
            self.wake_thread(number, now);
        }
    }

    /// Takes the thread's step if it may run now. The caller runs it and calls [`World::stepped`].
    pub(crate) fn begin_step(&mut self, number: u32, stamp: u32) -> Option<Box<dyn Step>> {
        let thread = &mut self.threads[number];
        if thread.stamp != stamp
            || thread.state == ThreadState::Done
            || self.hosts[usize::from(thread.host)].crashed
        {
            return None;
        }
        thread.planned = Ps::MAX;
        let core = thread.core;
        let paused_until = self.hosts[usize::from(thread.host)].paused_until;
        if paused_until > self.now {
            self.plan(number, paused_until);
            return None;
        }
        let busy_until = self.cores[core as usize].busy_until;
        if self.cores[core as usize].threads.len() > 1 {
            if !self.take_core(number, core) {
                return None;
            }
        } else {
            let alone = &mut self.cores[core as usize];
            (alone.given, alone.due) = (false, false);
            if busy_until > self.now {
                // The thread has woken itself in the middle of a step.
                self.plan(number, busy_until);
                return None;
            }
        }
        debug_assert!(busy_until <= self.now);
        let thread = &mut self.threads[number];
        if thread.state != ThreadState::Ready {
            // The thread looks again.
            thread.news = false;
        }
        // Otherwise a thread that has ended would be given a slice that it never uses.
        thread.missed = false;
        thread.step.take()
    }

    /// With several threads on a core: whether it is this thread's turn; if not, its turn is planned or its step is
    /// marked as missed. A thread that was blocked takes the core from one that polls. Nobody gets the core before the
    /// last step on it has ended, and the switch to the thread that has it.
    fn take_core(&mut self, number: u32, core: u32) -> bool {
        let now = self.now;
        let shared = &mut self.cores[core as usize];
        let holder = shared.threads[shared.current];
        let (busy_until, given) = (shared.busy_until, shared.given);
        let rests = busy_until <= now;
        if holder == number {
            if !rests {
                // Woken while the core switches to it.
                self.plan(number, busy_until);
                return false;
            }
            let keeps = std::mem::take(&mut shared.given) || !shared.due;
            self.threads[number].missed |= !keeps;
            return keeps;
        }
        let was_blocked = self.threads[number].state == ThreadState::Blocked;
        let leaves = self.threads[holder].state.leaves();
        if !rests || given || !(leaves || was_blocked) {
            self.threads[number].missed = true;
            if was_blocked {
                // A woken thread goes before one that computes, from the end of that one's step.
                self.cores[core as usize].due = true;
                self.plan_slice(core, busy_until.max(now));
            }
            return false;
        }
        let place = shared.threads.iter().position(|&one| one == number);
        shared.due = false;
        self.give_core(core, place.unwrap_or(0));
        true
    }

    /// Ends a step after `charged`. Returns the step when it was the last.
    pub(crate) fn stepped(
        &mut self,
        number: u32,
        step: Box<dyn Step>,
        next: Next,
        charged: Ps,
    ) -> Option<Box<dyn Step>> {
        let host = usize::from(self.threads[number].host);
        // A step takes at least a nanosecond, so that time advances.
        let time = ((charged as f64 * self.hosts[host].slowness) as Ps).max(NS);
        let end = self.now + time;
        let counters = &mut self.hosts[host].nic.counters;
        counters.busy_ps += time;
        counters.steps += 1;
        let thread = &mut self.threads[number];
        thread.busy_until = end;
        let core = thread.core;
        self.cores[core as usize].busy_until = end;
        let (state, at) = match next {
            Next::Again => (ThreadState::Ready, Some(end)),
            Next::Poll => (ThreadState::Polling, None),
            Next::PollUntil(at) => (ThreadState::Polling, Some(end.max(at.saturating_mul(NS)))),
            Next::Block => (ThreadState::Blocked, None),
            Next::BlockUntil(at) => (ThreadState::Blocked, Some(end.max(at.saturating_mul(NS)))),
            // When other threads share the core, the next turn is one of this thread's slices.
            Next::Yield if self.cores[core as usize].threads.len() > 1 => {
                thread.missed = true;
                (ThreadState::Ready, None)
            }
            Next::Yield => (ThreadState::Ready, Some(end)),
            Next::YieldUntil(at) => (ThreadState::Yielding, Some(end.max(at.saturating_mul(NS)))),
            Next::Done => (ThreadState::Done, None),
        };
        let at = if thread.news && !matches!(state, ThreadState::Ready | ThreadState::Done) {
            Some(end)
        } else {
            at
        };
        thread.state = state;
        // A finished step is dropped by the caller, which does not hold the world then.
        let left = if state == ThreadState::Done {
            self.hosts[host].regions.end_watches(number);
            Some(step)
        } else {
            thread.step = Some(step);
            None
        };
        if let Some(at) = at {
            self.plan(number, at);
        }
        if (state.leaves() || next == Next::Yield) && self.cores[core as usize].threads.len() > 1 {
            self.plan_slice(core, end);
        }
        left
    }

    fn plan_slice(&mut self, core: u32, at: Ps) {
        let shared = &mut self.cores[core as usize];
        shared.slice_stamp = shared.slice_stamp.wrapping_add(1);
        shared.slicing = true;
        let stamp = shared.slice_stamp;
        let host = self.threads[shared.threads[0]].host;
        self.queue.push(at, host, Event::Slice { core, stamp });
    }

    /// Ends the time slice of a core: the next thread that is ready has its turn.
    pub(crate) fn slice_event(&mut self, core: u32, stamp: u32) {
        let shared = &self.cores[core as usize];
        if shared.slice_stamp != stamp {
            return;
        }
        let crashed = self.hosts[usize::from(self.threads[shared.threads[0]].host)].crashed;
        let awaited = |&thread: &u32| {
            let thread = &self.threads[thread];
            thread.missed || thread.planned != Ps::MAX
        };
        if crashed || !shared.threads.iter().any(awaited) {
            let shared = &mut self.cores[core as usize];
            shared.slicing = false;
            shared.due = false;
            return;
        }
        let (count, current) = (shared.threads.len(), shared.current);
        let host = usize::from(self.threads[shared.threads[current]].host);
        if shared.busy_until > self.now {
            let at = shared.busy_until;
            self.cores[core as usize].due = true;
            return self.plan_slice(core, at);
        }
        self.cores[core as usize].due = false;
        let shared = &self.cores[core as usize];
        let (slice, switch) = {
            let p = &self.hosts[host].parameters;
            (p.time_slice, p.context_switch)
        };
        let wants = |&place: &usize| {
            let thread = &self.threads[shared.threads[place]];
            thread.missed || matches!(thread.state, ThreadState::Ready | ThreadState::Polling)
        };
        let chosen = (1..=count).map(|step| (current + step) % count).find(wants);
        let Some(chosen) = chosen else {
            self.cores[core as usize].slicing = false;
            return;
        };
        let number = shared.threads[chosen];
        let begin = self.now + if chosen == current { 0 } else { switch };
        self.give_core(core, chosen);
        let shared = &mut self.cores[core as usize];
        shared.slice_from = begin;
        shared.busy_until = shared.busy_until.max(begin);
        let thread = &mut self.threads[number];
        thread.busy_until = thread.busy_until.max(begin);
        if std::mem::take(&mut thread.missed) {
            self.cores[core as usize].given = true;
            self.plan(number, begin);
        }
        self.plan_slice(core, begin + slice);
    }
}
