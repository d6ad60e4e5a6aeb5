//! All parts of a cluster under one lock guard, for running events one after the other.

use std::sync::MutexGuard;

use crate::event::{Ps, HORIZON};
use crate::inner::Inner;
use crate::pace::Pace;
use crate::world::{After, World};

/// The worlds of all parts, locked. A cluster of several parts is driven by one real thread at a time.
pub(crate) struct Held<'a> {
    inner: &'a Inner,
    worlds: Vec<MutexGuard<'a, World>>,
    driver: Option<MutexGuard<'a, Pace>>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self::with(inner, inner.driver())
    }

    /// Locks the worlds; `driver` is the right to drive them.
    pub(crate) fn with(inner: &'a Inner, driver: Option<MutexGuard<'a, Pace>>) -> Self {
        let mut held = Self {
            inner,
            worlds: Vec::with_capacity(inner.parts()),
            driver,
        };
        held.lock();
        held
    }

    /// The pace, if there are several parts.
    pub(crate) fn pace(&mut self) -> Option<&mut Pace> {
        self.driver.as_deref_mut()
    }

    /// Unlocks the worlds, and returns the right to drive them.
    pub(crate) fn release(self) -> Option<MutexGuard<'a, Pace>> {
        self.driver
    }

    /// Takes all locks, in order.
    fn lock(&mut self) {
        for part in 0..self.inner.parts() {
            self.worlds.push(self.inner.part(part));
        }
        self.deliver();
    }

    /// Delivers what parts have sent to each other.
    fn deliver(&mut self) {
        let parts = self.worlds.len();
        if parts == 1 {
            return;
        }
        for from in 0..parts {
            for to in 0..parts {
                if self.worlds[from].outbox[to].is_empty() {
                    continue;
                }
                let mut sent = std::mem::take(&mut self.worlds[from].outbox[to]);
                for crossing in sent.drain(..) {
                    self.worlds[to].take_in(crossing);
                }
                // The emptied buffer is reused, so that the next round needs no allocation.
                self.worlds[from].outbox[to] = sent;
            }
        }
    }

    /// The worlds, by part.
    pub(crate) fn worlds(&self) -> impl Iterator<Item = &World> + use<'_, 'a> {
        self.worlds.iter().map(|world| &**world)
    }

    /// The world of a host.
    pub(crate) fn of_host(&mut self, host: u16) -> &mut World {
        let part = self.inner.division.of_host(host);
        &mut self.worlds[part]
    }

    /// The part whose event is next, with its time.
    fn next(&self) -> Option<(Ps, usize)> {
        let nexts = self.worlds.iter().enumerate();
        let nexts = nexts.filter_map(|(part, world)| Some((world.queue.next()?, part)));
        let next = nexts.min().map(|((at, _), part)| (at, part));
        next.filter(|&(at, _)| at <= HORIZON)
    }

    /// Time of the next event.
    pub(crate) fn next_time(&self) -> Option<Ps> {
        self.next().map(|(at, _)| at)
    }

    /// Whether no events are left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.next().is_none()
    }

    pub(crate) fn now(&self) -> Ps {
        self.worlds[0].now
    }

    /// Advances virtual time to `time`, unless it is later already.
    pub(crate) fn reach(&mut self, time: Ps) {
        for world in &mut self.worlds {
            world.now = world.now.max(time);
        }
    }

    /// Runs one event. The locks are released while a thread takes its step. Returns false when there is no event.
    pub(crate) fn happen(&mut self) -> bool {
        let Some((at, part)) = self.next() else {
            return false;
        };
        if self.worlds.len() > 1 {
            self.reach(at);
        }
        match self.worlds[part].next_event() {
            None => return false,
            Some(After::Nothing) => {}
            Some(After::Step(ready)) => {
                self.worlds.clear();
                let stepped = self.inner.take_step(part, ready);
                self.lock();
                let left = self.worlds[part].after(stepped);
                if left.is_some() {
                    // Dropping what the thread owned takes the lock.
                    self.worlds.clear();
                    drop(left);
                    self.lock();
                }
            }
        }
        self.deliver();
        true
    }
}
