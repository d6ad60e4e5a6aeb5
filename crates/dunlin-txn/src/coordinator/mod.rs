//! The coordinator of one transaction: events in, actions out.
//!
//! It goes through the phases execute (once or more), validate, log, backups, commit; or release, when it aborts. A
//! phase sends all its requests at once and ends with the last answer. Every phase is a *step*, and a machine gets at
//! most one request of each, so an answer that is late or comes twice is known by its step.
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

/// What the coordinators of a process have in common.
#[derive(Clone, Debug)]
pub struct Config {
    /// The protocol.
    pub protocol: Protocol,
    /// Where keys are.
    pub placement: Placement,
    /// Where the coordinator logs, if its protocol does so.
    pub log_replicas: Vec<MachineId>,
    /// The epoch of the placement; machines of another refuse what this coordinator asks.
    pub epoch: Epoch,
    /// How often a request is sent before the machine counts as unavailable.
    pub attempts: u32,
    /// Deliberate mistakes.
    pub mistakes: Mistakes,
}

/// What the driver is to do. Actions of one list may go out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a request, and say [`Event::Overdue`] when its answer takes too long.
    Send {
        /// To whom.
        machine: MachineId,
        /// The request.
        request: Request,
    },
    /// READ a header.
    Read {
        /// Where.
        machine: MachineId,
        /// The header's address.
        address: Address,
        /// It is an item's, whose key stands behind it and is to be READ with it. Else it is that of absent keys.
        item: bool,
        /// The name of the operation.
        token: u32,
    },
    /// WRITE all items, then all headers, each in the order given.
    Write {
        /// Where.
        machine: MachineId,
        /// Items with their values.
        items: Vec<(Address, Option<Value>)>,
        /// Headers, unlocked.
        headers: Vec<(Address, Header)>,
        /// The name of the operation.
        token: u32,
    },
    /// Tell the application. It is told once.
    Report(Result<Committed, TransactionError>),
}

/// What the driver has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An answer has come.
    Answer(MachineId, Answer),
    /// A READ has brought a header's word.
    Header {
        /// The operation.
        token: u32,
        /// The word.
        word: u64,
        /// The key that was found behind it, as a number: an item's place may be another key's by now, under the same
        /// version. `None` where no place is ever another key's, as in memory stores.
        key: Option<u64>,
    },
    /// A WRITE is complete.
    Written {
        /// The operation.
        token: u32,
    },
    /// A one-sided operation has failed. It may have been executed, in part or whole, but is not executed from now on.
    Failed {
        /// The operation.
        token: u32,
    },
    /// The coordinator's epoch is over.
    Superseded,
    /// The answer to the request of this step takes too long, and the request may have been lost.
    Overdue {
        /// Who does not answer.
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
    /// The epoch ended when the transaction was being logged: machines of a later one know what became of it.
    Inquire,
    Finished,
}

/// A key that was executed.
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

/// A one-sided operation that is out.
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

/// One transaction.
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
    /// What of the read set is still to be validated, by machine.
    unchecked: LiteMap<MachineId, Vec<(Key, Version)>>,
    /// The machines that may hold locks of this transaction.
    holders: BTreeSet<MachineId>,
    updates: LiteMap<Key, (Option<Value>, Version)>,
    /// Headers of absent keys that locks of this transaction have raised.
    raised: Vec<(MachineId, Raised)>,
    reported: bool,
    /// Machines that do not know any more what became of it.
    forgotten: BTreeSet<MachineId>,
    /// How often machines that were asked for that have not answered.
    unanswered: LiteMap<MachineId, u32>,
    /// Nobody knows, and those who do not answer are not waited for any more.
    lost: bool,
    /// The logic leaves the next step to [`Coordinator::proceed`].
    waits: bool,
    actions: Vec<Action>,
}

impl Coordinator {
    /// Begins a transaction. The last one of the slot must be finished.
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

    /// The transaction.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The epoch that it began in.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// Whether nothing is out any more, so that the slot is free for the next transaction.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether it is finished without anybody knowing what became of it: all machines of its epoch are gone, or have
    /// forgotten it.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the decision to commit has been sent out, so that the transaction's changes may be visible.
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

    /// Takes the next step of a transaction that waits for it; of another nothing is taken.
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

    /// What it has read so far, and what it has sent out as its changes.
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

    /// Takes an event. What does not belong to the phase is ignored: it is late.
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

    /// Before the log nothing has left this process that could make the transaction commit.
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

    /// The version of a header that had this one, if nobody but this transaction has raised it since.
    fn raised_by_us(&self, machine: MachineId, header: Address, version: Version) -> Version {
        // In the order of the raises, so one pass follows them all.
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

    /// Begins a phase. Answers to the last one's requests are late from now on.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.step += 1;
        self.pending.clear();
        self.one_sided.clear();
    }

    /// Aborts: reports, and releases what may be locked.
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
