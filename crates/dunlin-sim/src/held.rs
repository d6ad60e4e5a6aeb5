//! All parts of a cluster in one hand, for what happens one after the other.

use std::sync::MutexGuard;

use crate::event::{Ps, HORIZON};
use crate::inner::Inner;
use crate::pace::Pace;
use crate::world::{After, World};

/// The worlds of all parts, locked. Those with more parts than one are driven by one real thread at a time.
pub(crate) struct Held<'a> {
    inner: &'a Inner,
    worlds: Vec<MutexGuard<'a, World>>,
    driver: Option<MutexGuard<'a, Pace>>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self::with(inner, inner.driver())
    }

    /// With the right to drive them.
    pub(crate) fn with(inner: &'a Inner, driver: Option<MutexGuard<'a, Pace>>) -> Self {
        let mut held = Self {
            inner,
            worlds: Vec::with_capacity(inner.parts()),
            driver,
        };
        held.lock();
        held
    }

    /// What whoever drives several parts knows of their pace.
    pub(crate) fn pace(&mut self) -> Option<&mut Pace> {
        self.driver.as_deref_mut()
    }

    /// Lets the worlds go, and keeps the right to drive them.
    pub(crate) fn release(self) -> Option<MutexGuard<'a, Pace>> {
        self.driver
    }

    /// Takes all locks, in their order.
    fn lock(&mut self) {
        for part in 0..self.inner.parts() {
            self.worlds.push(self.inner.part(part));
        }
        self.deliver();
    }

    /// Gives what parts have sent to each other to whom it is for.
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
                // The next one needs no allocation.
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

    /// When something happens next.
    pub(crate) fn next_time(&self) -> Option<Ps> {
        self.next().map(|(at, _)| at)
    }

    /// Whether nothing is going to happen.
    pub(crate) fn is_quiet(&self) -> bool {
        self.next().is_none()
    }

    pub(crate) fn now(&self) -> Ps {
        self.worlds[0].now
    }

    /// It is this time, unless it is later.
    pub(crate) fn reach(&mut self, time: Ps) {
        for world in &mut self.worlds {
            world.now = world.now.max(time);
        }
    }

    /// Lets one event happen. Others may have the locks while a thread takes its step. False when there is no event.
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
                    // What the thread owned is given back through the lock.
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
