//! The driver of coordinators: one thread runs many transactions at once and never blocks on one of them.
//!
//! It passes events to coordinators and executes their actions. Everything that they want to send between two polls is
//! sent together, whatever the destination. It keeps the deadlines: a request without an answer is sent again, which is
//! safe because participants recognize a step that they have executed; a one-sided READ that is not answered has failed
//! by the time at which a request would have; a one-sided WRITE is never repeated.

pub(crate) mod local;
pub(crate) mod remote;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{thread, Work};

use crate::coordinator::{Action, Config, Coordinator, Event};
use crate::effort;
use crate::error::{Committed, TransactionError};
use crate::logic::{Logic, Step};
use crate::types::{MachineId, TransactionId};
use wire::{Arrival, Kind, Source, Tag, Way, Wire};

/// Default number of transactions that a thread runs at once (FaSST §4, FLOCK §8.5.2).
pub const TRANSACTIONS: u16 = 20;
/// Maximum number of transactions that a thread can run at once.
pub const TRANSACTIONS_MAX: u16 = 1000;
/// Time that an answer may take before the request is sent again. Far above a round trip, even where servers share few
/// cores: a request that is repeated needlessly is processed twice.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);
/// Time that an answer may take before the machine is suspected of having been replaced. The others are then asked for
/// the membership, which costs little.
const SUSPECT_AFTER: Duration = Duration::from_millis(25);
/// The first pause before a request is sent again after its connection broke; it doubles up to [`ANSWER_WITHIN`].
const LOST_PAUSE: Duration = Duration::from_millis(5);
/// Polls between two checks of the deadlines.
const POLLS_PER_LOOK: u32 = 64;

/// What a driver reports about a transaction.
#[derive(Debug)]
pub enum Report {
    /// It has ended, or its outcome is unknown.
    Ended(Result<Committed, TransactionError>),
    /// A transaction of unknown outcome turned out to have committed.
    Settled(Committed),
    /// A transaction of unknown outcome turned out to have had no effect.
    Undone,
}

/// A running transaction of a driver.
#[derive(Debug)]
struct Running {
    coordinator: Coordinator,
    /// The caller's name for it.
    name: u64,
    /// Its outcome has been reported as unknown.
    unknown: bool,
    sent: Vec<Sent>,
    /// READs that have not been answered: their tokens, and when they were sent.
    reads: Vec<(u32, Instant)>,
}

/// An outstanding request.
#[derive(Debug)]
struct Sent {
    machine: MachineId,
    step: u16,
    sent: Instant,
    due: Instant,
    pause: Duration,
}

/// Runs many transactions in one thread. Returned by [`crate::Database::driver`].
#[derive(Debug)]
pub struct Driver {
    wire: Box<dyn Wire>,
    config: Arc<Config>,
    /// Present if the membership may change.
    source: Option<Arc<dyn Source>>,
    coordinator: u64,
    slots: Vec<Option<Running>>,
    free: Vec<u16>,
    /// The sequence number of the next transaction, whatever its slot.
    sequence: u64,
    arrived: Vec<Arrival>,
    polls: u32,
    reports: Vec<(u64, TransactionId, Report)>,
    /// Charges work to a simulated core; `None` on real ones.
    charge: Option<fn(Work)>,
}

impl Driver {
    /// Creates a driver of at most this number of transactions at once, under a number that no other coordinator has or
    /// has had.
    pub(crate) fn new(
        (wire, config): Way,
        source: Option<Arc<dyn Source>>,
        coordinator: u64,
        transactions: u16,
    ) -> Driver {
        let transactions = transactions.clamp(1, TRANSACTIONS_MAX);
        Driver {
            wire,
            config,
            source,
            coordinator,
            slots: (0..transactions).map(|_| None).collect(),
            free: (0..transactions).rev().collect(),
            sequence: 0,
            arrived: Vec::new(),
            polls: 0,
            reports: Vec::new(),
            charge: None,
        }
    }

    /// Charges its work by this function.
    pub(crate) fn charging(mut self, charge: Option<fn(Work)>) -> Driver {
        self.charge = charge;
        self
    }

    fn charge(&self, work: Work) {
        if let Some(charge) = self.charge {
            charge(work);
        }
    }

    /// The number of transactions that can begin now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The number of transactions that are not over, including those that have been reported and still have operations
    /// outstanding.
    pub fn running(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no transaction has anything outstanding: each waits for [`Driver::proceed`].
    pub(crate) fn all_wait(&self) -> bool {
        let mut running = self.slots.iter().flatten();
        running.all(|running| running.coordinator.is_waiting())
    }

    /// The number of machines.
    pub fn machines(&self) -> usize {
        self.config.placement.shards()
    }

    /// Begins a transaction under a name chosen by the caller; returns `None` if the maximum number is running.
    /// Requests are sent with the next poll.
    pub fn begin(&mut self, name: u64, logic: Box<dyn Logic>) -> Option<TransactionId> {
        let slot = self.free.pop()?;
        self.charge(effort::BEGUN);
        self.sequence += 1;
        let id = TransactionId {
            coordinator: self.coordinator,
            slot,
            sequence: self.sequence,
        };
        let (coordinator, actions) = Coordinator::begin(id, Arc::clone(&self.config), logic);
        self.slots[usize::from(slot)] = Some(Running {
            coordinator,
            name,
            unknown: false,
            sent: Vec::new(),
            reads: Vec::new(),
        });
        self.act(slot, actions, thread::now());
        Some(id)
    }

    /// Takes the next step of a transaction whose logic waits for it.
    pub(crate) fn proceed(&mut self, slot: u16, step: Step) {
        if let Some(running) = &mut self.slots[usize::from(slot)] {
            let actions = running.coordinator.proceed(step);
            self.act(slot, actions, thread::now());
        }
    }

    /// The coordinator of a slot, unless its transaction is over.
    pub(crate) fn coordinator(&self, slot: u16) -> Option<&Coordinator> {
        let running = self.slots.get(usize::from(slot))?.as_ref()?;
        Some(&running.coordinator)
    }

    /// The last error of a machine, and since when it has not answered.
    pub(crate) fn trouble(&self, machine: MachineId) -> Option<(Instant, String)> {
        self.wire.trouble(machine)
    }

    /// Sends what is pending, handles what has arrived, and reports how transactions have ended. Returns whether
    /// anything has arrived; if not, the thread should call [`Driver::rest`].
    pub fn poll(&mut self, mut report: impl FnMut(u64, TransactionId, Report)) -> bool {
        let now = thread::now();
        self.follow(now);
        let mut arrived = std::mem::take(&mut self.arrived);
        self.wire.poll(now, &mut arrived);
        let busy = !arrived.is_empty();
        for arrival in arrived.drain(..) {
            self.charge(effort::TOOK);
            self.take(arrival, now);
        }
        self.arrived = arrived;
        self.polls = self.polls.wrapping_add(1);
        if self.polls % POLLS_PER_LOOK == 0 {
            self.look_at_deadlines(now);
        }
        for (name, id, what) in self.reports.drain(..) {
            report(name, id, what);
        }
        busy
    }

    /// Switches to a later epoch if there is one. Running transactions belong to an earlier one, and end.
    fn follow(&mut self, now: Instant) {
        let newer = self.source.as_ref();
        let newer = newer.and_then(|source| source.newer(self.config.epoch, self.coordinator));
        let Some((wire, config)) = newer else {
            return;
        };
        (self.wire, self.config) = (wire, config);
        for slot in 0..self.slots.len() as u16 {
            if let Some(running) = &mut self.slots[usize::from(slot)] {
                running.sent.clear();
                running.reads.clear();
                let actions = running.coordinator.handle(Event::Superseded);
                self.act(slot, actions, now);
            }
        }
    }

    fn suspect(&self) {
        if let Some(source) = &self.source {
            source.suspect();
        }
    }

    /// After a poll without events: yields to threads that have work.
    pub fn rest(&mut self) {
        self.wire.rest();
    }

    fn take(&mut self, arrival: Arrival, now: Instant) {
        let (slot, event) = match arrival {
            Arrival::Answer(machine, answer) => {
                let slot = answer.transaction.slot;
                (slot, Event::Answer(machine, answer))
            }
            Arrival::Lost(machine, tag) => return self.lost(machine, tag, now),
            Arrival::Header(tag, word, key) => {
                let token = tag.part();
                (self.slot_of(tag), Event::Header { token, word, key })
            }
            Arrival::Written(tag) => {
                let token = tag.part();
                (self.slot_of(tag), Event::Written { token })
            }
            Arrival::Failed(tag) => {
                let token = tag.part();
                (self.slot_of(tag), Event::Failed { token })
            }
        };
        let place = self.slots.get_mut(usize::from(slot));
        if let Some(running) = place.and_then(Option::as_mut) {
            if let Event::Header { token, .. } | Event::Failed { token } = event {
                running.reads.retain(|(of, _)| *of != token);
            }
            let actions = running.coordinator.handle(event);
            self.act(slot, actions, now);
        }
    }

    /// The slot of a tag if it still runs the tag's transaction; otherwise a slot that does not exist.
    fn slot_of(&self, tag: Tag) -> u16 {
        let running = self.coordinator(tag.slot());
        match running.is_some_and(|coordinator| tag.is_of(coordinator.id())) {
            true => tag.slot(),
            false => u16::MAX,
        }
    }

    /// The request or its answer was lost: it is sent again after a pause.
    fn lost(&mut self, machine: MachineId, tag: Tag, now: Instant) {
        self.suspect();
        let slot = self.slot_of(tag);
        let place = self.slots.get_mut(usize::from(slot));
        let Some(running) = place.and_then(Option::as_mut) else {
            return;
        };
        for sent in &mut running.sent {
            if sent.machine == machine && u32::from(sent.step) == tag.part() {
                sent.pause = (sent.pause * 2).min(ANSWER_WITHIN);
                sent.due = sent.due.min(now + sent.pause);
            }
        }
    }

    fn look_at_deadlines(&mut self, now: Instant) {
        if let Some(source) = &self.source {
            let is_late = |sent: Instant| sent + SUSPECT_AFTER <= now;
            let mut running = self.slots.iter().flatten();
            if running.any(|running| {
                running.sent.iter().any(|sent| is_late(sent.sent))
                    || running.reads.iter().any(|(_, sent)| is_late(*sent))
            }) {
                source.suspect();
            }
        }
        self.end_late_reads(now);
        for slot in 0..self.slots.len() as u16 {
            while let Some(running) = &mut self.slots[usize::from(slot)] {
                let Some(at) = running.sent.iter().position(|sent| sent.due <= now) else {
                    break;
                };
                let Sent { machine, step, .. } = running.sent[at];
                let pause = running.sent.swap_remove(at).pause;
                let actions = running.coordinator.handle(Event::Overdue { machine, step });
                self.act(slot, actions, now);
                if let Some(running) = &mut self.slots[usize::from(slot)] {
                    let again = running.sent.iter_mut().filter(|sent| sent.step == step);
                    again.for_each(|sent| sent.pause = pause);
                }
            }
        }
    }

    /// READs that take as long as all attempts of a request have failed: a queue pair may leave one unanswered for much
    /// longer, and its transaction holds locks. A result that comes later is ignored.
    fn end_late_reads(&mut self, now: Instant) {
        let within = ANSWER_WITHIN * self.config.attempts;
        for slot in 0..self.slots.len() as u16 {
            while let Some(running) = &mut self.slots[usize::from(slot)] {
                let is_over = |(_, sent): &(u32, Instant)| *sent + within <= now;
                let Some(at) = running.reads.iter().position(is_over) else {
                    break;
                };
                let (token, _) = running.reads.swap_remove(at);
                let actions = running.coordinator.handle(Event::Failed { token });
                self.act(slot, actions, now);
            }
        }
    }

    fn act(&mut self, slot: u16, actions: Vec<Action>, now: Instant) {
        let Some(running) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        let id = running.coordinator.id();
        let epoch = running.coordinator.epoch();
        if let Some(charge) = self.charge {
            let each = actions.iter().map(effort::of_action);
            each.for_each(charge);
        }
        for action in actions {
            match action {
                Action::Send { machine, request } => {
                    // Earlier steps are over when a later one begins.
                    running.sent.retain(|sent| sent.step == request.step);
                    running.sent.push(Sent {
                        machine,
                        step: request.step,
                        sent: now,
                        due: now + ANSWER_WITHIN,
                        pause: LOST_PAUSE,
                    });
                    let tag = Tag::new(Kind::Request, id, u32::from(request.step));
                    self.wire.send(machine, &request, epoch, tag);
                }
                Action::Read {
                    machine,
                    address,
                    item,
                    token,
                } => {
                    running.reads.push((token, now));
                    let tag = Tag::new(Kind::Read, id, token);
                    self.wire.read(machine, address, item, tag);
                }
                Action::Write {
                    machine,
                    items,
                    headers,
                    token,
                } => {
                    let tag = Tag::new(Kind::Write, id, token);
                    self.wire.write(machine, items, headers, tag);
                }
                Action::Report(result) => {
                    running.unknown = matches!(result, Err(TransactionError::Unknown { .. }));
                    if let (Err(TransactionError::Superseded), Some(source)) =
                        (&result, &self.source)
                    {
                        source.suspect();
                    }
                    let report = Report::Ended(result);
                    self.reports.push((running.name, id, report));
                }
            }
        }
        if running.coordinator.is_finished() {
            if running.unknown && !running.coordinator.is_lost() {
                let report = match running.coordinator.is_decided() {
                    true => Report::Settled(running.coordinator.footprint()),
                    false => Report::Undone,
                };
                self.reports.push((running.name, id, report));
            }
            self.slots[usize::from(slot)] = None;
            self.free.push(slot);
        }
    }
}
