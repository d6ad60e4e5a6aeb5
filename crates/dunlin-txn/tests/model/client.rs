//! A client: one transaction, by the coordinator of the crate.
use dunlin_txn::membership::{Configuration, Epoch};
use dunlin_txn::{
    Access, Action, Committed, Config, Coordinator, Event, Key, Logic, MachineId, Mistakes,
    Protocol, Step, TransactionId, View,
};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a transaction does: each key that it writes becomes a sum over all keys that it has read, so that values tell
/// the order of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) reads: &'static [usize],
    pub(crate) writes: &'static [usize],
    pub(crate) adds: u64,
}

impl Work {
    /// The new value of what it writes.
    fn value(self, of: impl Fn(usize) -> u64) -> u64 {
        let keys = self.reads.iter().chain(self.writes);
        keys.map(|&key| (key as u64 + 1) * 5 * of(key)).sum::<u64>() + self.adds
    }

    /// Executes it alone.
    pub(crate) fn apply(self, values: &mut [u64]) {
        let value = self.value(|key| values[key]);
        for &key in self.writes {
            values[key] = value;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Doing {
    pub(crate) work: Work,
    pub(crate) keys: Arc<[Key]>,
    pub(crate) asked: bool,
}

impl Logic for Doing {
    fn step(&mut self, view: View<'_>) -> Step {
        let key = |at: &usize| self.keys[*at].clone();
        if !std::mem::replace(&mut self.asked, true) {
            return Step::Access(Access {
                reads: self.work.reads.iter().map(key).collect(),
                writes: self.work.writes.iter().map(|at| (key(at), 8)).collect(),
            });
        }
        let of = |at: usize| match view.value(&self.keys[at]) {
            Some(value) => u64::from_le_bytes(value[..].try_into().unwrap()),
            None => u64::MAX / 1000,
        };
        let value = self.work.value(of).to_le_bytes();
        let value = || Some(value[..].into());
        Step::Commit(
            self.work
                .writes
                .iter()
                .map(|at| (key(at), value()))
                .collect(),
        )
    }
}

/// A coordinator in a state that two threads may look at. Its logic is of one thread alone.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Coordinator>);

impl Shared {
    fn get(&self) -> MutexGuard<'_, Coordinator> {
        self.0.lock().unwrap()
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.get().id()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.get().epoch()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.get().is_finished()
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.get().is_decided()
    }

    pub(crate) fn footprint(&self) -> Committed {
        self.get().footprint()
    }
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

/// What the application has been told.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Told {
    Committed(Committed),
    Aborted,
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) coordinator: Option<Shared>,
    pub(crate) dead: bool,
    pub(crate) told: Option<Told>,
    /// Transactions that had been reported as committed when this one began, as bits.
    pub(crate) after: u8,
    /// The latest epoch that it has heard of.
    pub(crate) noticed: Epoch,
    /// Whom it has asked last what has become of its transaction.
    pub(crate) inquiry: Option<(MachineId, u16)>,
}

impl Client {
    pub(crate) fn new() -> Client {
        Client {
            coordinator: None,
            dead: false,
            told: None,
            after: 0,
            noticed: Epoch::FIXED,
            inquiry: None,
        }
    }

    /// A copy without the coordinator.
    fn without(&self) -> Client {
        Client {
            coordinator: None,
            told: self.told.clone(),
            ..*self
        }
    }

    pub(crate) fn begin(
        &self,
        number: u64,
        doing: Doing,
        of: &Configuration,
        (protocol, mistakes): (Protocol, Mistakes),
    ) -> (Client, Vec<Action>) {
        let config = Config {
            protocol,
            placement: of.placement().unwrap(),
            log_replicas: of.log_replicas(number),
            epoch: of.epoch,
            attempts: 1,
            mistakes,
        };
        let id = TransactionId {
            coordinator: number,
            slot: 0,
            sequence: 1,
        };
        let (coordinator, actions) = Coordinator::begin(id, Arc::new(config), Box::new(doing));
        let mut client = self.without();
        client.coordinator = Some(Shared(Mutex::new(coordinator)));
        client.noticed = of.epoch;
        (client, actions)
    }

    pub(crate) fn handle(&self, doing: Doing, event: Event) -> Option<(Client, Vec<Action>)> {
        let coordinator = self.coordinator.as_ref().filter(|_| !self.dead)?;
        let mut copy = coordinator.get().copied(Box::new(doing));
        let actions = copy.handle(event);
        let mut client = self.without();
        client.coordinator = Some(Shared(Mutex::new(copy)));
        Some((client, actions))
    }

    pub(crate) fn killed(&self) -> Client {
        Client {
            dead: true,
            ..self.without()
        }
    }

    /// Whether nothing more will come of it.
    pub(crate) fn is_over(&self) -> bool {
        self.dead || self.coordinator.as_ref().is_some_and(Shared::is_finished)
    }

    /// Its coordinator, as long as it acts.
    pub(crate) fn running(&self) -> Option<&Shared> {
        let running = |coordinator: &&Shared| !self.dead && !coordinator.is_finished();
        self.coordinator.as_ref().filter(running)
    }
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.coordinator, self.dead, &self.told).hash(state);
        (self.after, self.noticed, self.inquiry).hash(state);
    }
}
