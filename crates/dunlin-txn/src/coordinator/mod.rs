//! The coordinator of one transaction: a state machine that takes events and returns actions.
//!
//! It goes through the phases execute (once or more), validate, log, backups, commit; or release, when it aborts. A
//! phase sends all its requests at once and ends with the last answer. Every phase is a *step*, and a machine gets at
//! most one request in each, so a late or duplicate answer is recognized by its step.
mod commit;
#[cfg(feature = "mistakes")]
mod copied;
mod execute;
mod inquire;
mod validate;

use crate::error::{Committed, TransactionError};
use crate::logic::{Logic, Step, View};
use crate::membership::Epoch;
use crate::mistakes::Mistakes;
use crate::placement::Placement;
use crate::protocol::Protocol;
use crate::types::{Address, Key, MachineId, Place, Raised, TransactionId, Update, Value, Version};
use crate::wire::{Answer, Body, Refusal, Request, Response};
use dunlin_store::Header;
use litemap::LiteMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The configuration that the coordinators of a process share.
#[derive(Clone, Debug)]
pub struct Config {
    /// The protocol.
    pub protocol: Protocol,
    /// The placement of keys.
    pub placement: Placement,
    /// The machines to which the coordinator logs, if its protocol uses log replicas.
    pub log_replicas: Vec<MachineId>,
    /// The epoch of the placement; machines in another epoch refuse this coordinator's requests.
    pub epoch: Epoch,
    /// Number of times that a request is sent before the machine counts as unavailable.
    pub attempts: u32,
    /// Deliberate mistakes, for tests.
    pub mistakes: Mistakes,
}

/// An action for the driver. The actions of one list may be sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a request, and report [`Event::Overdue`] if its answer takes too long.
    Send {
        /// The receiver.
        machine: MachineId,
        /// The request.
        request: Request,
    },
    /// READ a header.
    Read {
        /// The machine.
        machine: MachineId,
        /// The header's address.
        address: Address,
        /// Whether the header is an item's, whose key is stored behind it and is READ with it. Otherwise it is a header
        /// of absent keys.
        item: bool,
        /// Identifies the operation.
        token: u32,
    },
    /// WRITE all items, then all headers, each in the given order.
    Write {
        /// The machine.
        machine: MachineId,
        /// Items with their values.
        items: Vec<(Address, Option<Value>)>,
        /// Headers, unlocked.
        headers: Vec<(Address, Header)>,
        /// Identifies the operation.
        token: u32,
    },
    /// Report the result to the application. Happens once.
    Report(Result<Committed, TransactionError>),
}

/// An event reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An answer has arrived.
    Answer(MachineId, Answer),
    /// A READ has returned a header's word.
    Header {
        /// The operation.
        token: u32,
        /// The word.
        word: u64,
        /// The key that was read behind it, as a number: an item's place may belong to another key by now, under the
        /// same version. `None` where a place never changes its key, as in memory stores.
        key: Option<u64>,
    },
    /// A WRITE has completed.
    Written {
        /// The operation.
        token: u32,
    },
    /// A one-sided operation has failed. It may have been executed in part or completely, but will not be executed from
    /// now on.
    Failed {
        /// The operation.
        token: u32,
    },
    /// The coordinator's epoch is over.
    Superseded,
    /// The answer to the request of this step takes too long; the request may have been lost.
    Overdue {
        /// The machine that does not answer.
        machine: MachineId,
        /// The request's step.
        step: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Execute,
    Validate,
    Log,
    Backups,
    Commit,
    Release,
    /// The epoch ended while the transaction was being logged: machines of a later one know its outcome.
    Inquire,
    Finished,
}

/// The state of a key after execution.
#[derive(Clone, Copy, Debug, Hash)]
struct Accessed {
    machine: MachineId,
    place: Place,
    locked: bool,
}

#[derive(Debug, Hash, Clone)]
struct Pending {
    request: Request,
    sent: u32,
}

/// An outstanding one-sided operation.
#[derive(Debug, Hash, Clone)]
enum OneSided {
    Read {
        machine: MachineId,
        key: Key,
        version: Version,
    },
    Write {
        machine: MachineId,
    },
}

/// The coordinator of one transaction.
#[derive(Debug)]
pub struct Coordinator {
    id: TransactionId,
    config: Arc<Config>,
    logic: Box<dyn Logic>,
    phase: Phase,
    step: u16,
    pending: LiteMap<MachineId, Pending>,
    one_sided: LiteMap<u32, OneSided>,
    next_token: u32,
    seen: LiteMap<Key, (Version, Option<Value>)>,
    accessed: LiteMap<Key, Accessed>,
    /// The part of the read set that is still to be validated, by machine.
    unchecked: LiteMap<MachineId, Vec<(Key, Version)>>,
    /// The machines that may hold locks of this transaction.
    holders: BTreeSet<MachineId>,
    updates: LiteMap<Key, (Option<Value>, Version)>,
    /// Headers of absent keys that were raised by locks of this transaction.
    raised: Vec<(MachineId, Raised)>,
    reported: bool,
    /// Machines that no longer know the outcome.
    forgotten: BTreeSet<MachineId>,
    /// For each machine, the number of inquiries that it has left unanswered.
    unanswered: LiteMap<MachineId, u32>,
    /// The outcome is known to no machine that answers, and the others are no longer waited for.
    lost: bool,
    /// The logic leaves the next step to [`Coordinator::proceed`].
    waits: bool,
    actions: Vec<Action>,
}

impl Coordinator {
    /// Begins a transaction. The previous one of the slot must be finished.
    pub fn begin(
        id: TransactionId,
        config: Arc<Config>,
        logic: Box<dyn Logic>,
    ) -> (Coordinator, Vec<Action>) {
        let mut coordinator = Coordinator {
            id,
            config,
            logic,
            phase: Phase::Execute,
            step: 0,
            pending: LiteMap::new(),
            one_sided: LiteMap::new(),
            next_token: 0,
            seen: LiteMap::new(),
            accessed: LiteMap::new(),
            unchecked: LiteMap::new(),
            holders: BTreeSet::new(),
            updates: LiteMap::new(),
            raised: Vec::new(),
            reported: false,
            forgotten: BTreeSet::new(),
            unanswered: LiteMap::new(),
            lost: false,
            waits: false,
            actions: Vec::new(),
        };
        coordinator.ask_logic();
        let actions = std::mem::take(&mut coordinator.actions);
        (coordinator, actions)
    }

    /// The transaction's number.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The epoch in which it began.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// Whether nothing is outstanding any more, so that the slot is free for the next transaction.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether it has finished with an outcome that nobody knows: all machines of its epoch are gone, or have forgotten
    /// it.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the decision to commit has been sent, so that the transaction's changes may be visible.
    pub fn is_decided(&self) -> bool {
        matches!(
            self.phase,
            Phase::Log | Phase::Backups | Phase::Commit | Phase::Inquire
        ) || (self.phase == Phase::Finished && !self.updates.is_empty())
    }

    /// Whether the logic has left the next step to [`Coordinator::proceed`].
    pub fn is_waiting(&self) -> bool {
        self.waits && self.phase == Phase::Execute
    }

    /// Takes the next step of a transaction that waits for one; otherwise does nothing.
    pub fn proceed(&mut self, step: Step) -> Vec<Action> {
        if self.is_waiting() {
            self.take_step(step);
        }
        std::mem::take(&mut self.actions)
    }

    /// What it has seen so far.
    pub fn view(&self) -> View<'_> {
        View { seen: &self.seen }
    }

    /// What it has read so far, and what it has sent as its changes.
    pub fn footprint(&self) -> Committed {
        let reads = self
            .seen
            .iter()
            .map(|(key, (version, value))| (key.clone(), *version, value.clone()));
        let writes = self.updates.keys().map(|key| self.update(key));
        Committed {
            reads: reads.collect(),
            writes: writes.collect(),
        }
    }

    /// Handles an event. Events that do not belong to the current phase are late and are ignored.
    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Answer(machine, answer) => self.answered(machine, answer),
            Event::Header { token, word, key } => self.header(token, Some((Header(word), key))),
            Event::Written { token } => {
                if self.one_sided.remove(&token).is_some() {
                    self.advance_when_answered();
                }
            }
            Event::Failed { token } => match self.one_sided.get(&token) {
                Some(OneSided::Read { .. }) => self.header(token, None),
                Some(OneSided::Write { machine }) => {
                    let machine = *machine;
                    self.write_failed(token, machine);
                }
                None => {}
            },
            Event::Overdue { machine, step } => self.overdue(machine, step),
            Event::Superseded => self.superseded(),
        }
        std::mem::take(&mut self.actions)
    }

    fn answered(&mut self, machine: MachineId, answer: Answer) {
        let expected = answer.transaction == self.id && answer.step == self.step;
        if !expected || !self.pending.contains_key(&machine) {
            return;
        }
        if answer.response == Response::Refused(Refusal::Epoch) {
            return self.refused(machine);
        }
        match self.phase {
            Phase::Inquire => self.inquired(machine, answer.response),
            Phase::Execute => self.executed(machine, answer.response),
            Phase::Validate => self.validated(machine, answer.response),
            _ => self.done(machine, answer.response),
        }
    }

    fn overdue(&mut self, machine: MachineId, step: u16) {
        if step != self.step {
            return;
        }
        if self.phase == Phase::Inquire {
            return self.inquire_of_next(machine);
        }
        let Some(pending) = self.pending.get_mut(&machine) else {
            return;
        };
        if pending.sent < self.config.attempts || !self.may_abort() {
            let Some(pending) = self.pending.get_mut(&machine) else {
                return;
            };
            pending.sent = pending.sent.saturating_add(1);
            let request = pending.request.clone();
            let exhausted = pending.sent > self.config.attempts;
            self.actions.push(Action::Send { machine, request });
            if exhausted && self.phase != Phase::Release {
                self.report(Err(TransactionError::Unknown {
                    machine,
                    refusal: None,
                }));
            }
            return;
        }
        self.fail(TransactionError::Unavailable { machine });
    }

    /// Before the log phase this process has sent nothing that could make the transaction commit.
    fn may_abort(&self) -> bool {
        matches!(self.phase, Phase::Execute | Phase::Validate)
    }

    fn report(&mut self, result: Result<Committed, TransactionError>) {
        if !self.reported {
            self.reported = true;
            self.actions.push(Action::Report(result));
        }
    }

    fn send(&mut self, machine: MachineId, body: Body) {
        let request = Request {
            transaction: self.id,
            step: self.step,
            body,
        };
        self.actions.push(Action::Send {
            machine,
            request: request.clone(),
        });
        self.pending.insert(machine, Pending { request, sent: 1 });
    }

    /// Returns the current version of a header that had this version, provided that only this transaction has raised it
    /// since.
    fn raised_by_us(&self, machine: MachineId, header: Address, version: Version) -> Version {
        // The raises are in order, so one pass follows them all.
        self.raised.iter().fold(version, |version, (at, raised)| {
            let ours = *at == machine && raised.header == header && raised.from == version;
            if ours {
                raised.to
            } else {
                version
            }
        })
    }

    fn token(&mut self) -> u32 {
        self.next_token += 1;
        self.next_token
    }

    /// Enters a phase. Answers to requests of the previous phase are late from now on.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.step += 1;
        self.pending.clear();
        self.one_sided.clear();
    }

    /// Aborts: reports the error, and releases what may be locked.
    fn fail(&mut self, error: TransactionError) {
        self.report(Err(error));
        self.enter(Phase::Release);
        for machine in std::mem::take(&mut self.holders) {
            self.send(machine, Body::Release);
        }
        self.advance_when_answered();
    }

    fn update(&self, key: &Key) -> Update {
        let (value, version) = self.updates[key].clone();
        Update {
            key: key.clone(),
            value,
            version,
        }
    }

    fn advance_when_answered(&mut self) {
        if !self.pending.is_empty() || !self.one_sided.is_empty() {
            return;
        }
        match self.phase {
            Phase::Execute => self.ask_logic(),
            Phase::Validate => self.check_on(),
            Phase::Log => self.update_backups(),
            Phase::Backups => self.commit(),
            Phase::Commit => self.finish(),
            Phase::Release => self.phase = Phase::Finished,
            Phase::Inquire | Phase::Finished => {}
        }
    }
}
