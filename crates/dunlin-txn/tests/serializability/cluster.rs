//! A cluster in virtual time: messages are late, lost and doubled, one-sided operations fail, coordinators pause and
//! die.
use crate::simulation::{answered, sent, Timeline};
use dunlin_txn::checker::{History, Violation};
use dunlin_txn::wire::Request;
use dunlin_txn::workload::Workload;
use dunlin_txn::{
    Action, Config, Coordinator, Event, MachineId, MemoryStore, Mistakes, Participant, Placement,
    Protocol, Store, TransactionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const MACHINES: u16 = 3;
const CLIENTS: u64 = 4;
const SLOTS: u16 = 3;

enum Happening {
    Start(u64, u16),
    Request(MachineId, Request),
    Event(TransactionId, Event),
    Items(
        MachineId,
        Vec<(dunlin_txn::Address, Option<dunlin_txn::Value>)>,
    ),
    Headers(MachineId, Vec<(dunlin_txn::Address, dunlin_txn::Header)>),
    Read(TransactionId, MachineId, dunlin_txn::Address, u32),
}

pub(crate) struct Run {
    pub(crate) history: History,
    pub(crate) violations: Vec<Violation>,
    pub(crate) aborted: usize,
    pub(crate) locks_of_dead: usize,
    pub(crate) unfinished: usize,
    pub(crate) foreign_locks: usize,
    pub(crate) backups_differ: bool,
    pub(crate) money: Option<(i64, i64)>,
    pub(crate) crashed: bool,
}

pub(crate) struct Cluster {
    time: Timeline<Happening>,
    machines: Vec<Participant<MemoryStore>>,
    running: BTreeMap<(u64, u16), Coordinator>,
    paused: BTreeMap<u64, u64>,
    dead: Option<u64>,
    config: Arc<Config>,
    left: usize,
    sequence: u64,
    run: Run,
}

impl Cluster {
    pub(crate) fn new(
        seed: u64,
        protocol: Protocol,
        mistakes: Mistakes,
        headers: usize,
        load: &dyn Workload,
    ) -> Cluster {
        let placement = Placement::round(MACHINES, 3).unwrap();
        let mut machines = Vec::new();
        for _ in 0..MACHINES {
            let mut store = MemoryStore::new(&placement, headers, 1000);
            load.load()
                .for_each(|(key, value)| store.load(key, value).unwrap());
            let mut participant = Participant::new(store, 1000);
            participant.make(mistakes);
            machines.push(participant);
        }
        let log_replicas = vec![MachineId(0), MachineId(1)];
        let config = Config {
            protocol,
            placement,
            log_replicas,
            epoch: dunlin_txn::membership::Epoch::FIXED,
            attempts: 8,
            mistakes,
        };
        let history = History {
            initial: load.load().collect(),
            ..History::default()
        };
        Cluster {
            time: Timeline::new(fastrand::Rng::with_seed(seed)),
            machines,
            running: BTreeMap::new(),
            paused: BTreeMap::new(),
            dead: None,
            config: Arc::new(config),
            left: 60,
            sequence: 0,
            run: Run {
                history,
                violations: vec![],
                aborted: 0,
                locks_of_dead: 0,
                unfinished: 0,
                foreign_locks: 0,
                backups_differ: false,
                money: None,
                crashed: false,
            },
        }
    }

    /// Runs until nothing is left to happen, and judges what has happened.
    pub(crate) fn run(mut self, load: &mut dyn Workload) -> Run {
        for client in 0..CLIENTS {
            (0..SLOTS).for_each(|slot| {
                self.time
                    .later(u64::from(slot), Happening::Start(client, slot))
            });
        }
        let dies = self
            .time
            .random
            .bool()
            .then(|| self.time.random.u64(200..4000));
        let mut steps = 0_u32;
        while let Some(happening) = self.time.next() {
            steps += 1;
            assert!(steps < 200_000, "the run does not come to an end");
            let now = self.time.now;
            if dies.is_some_and(|at| now >= at) && self.dead.is_none() {
                self.dead = Some(0);
                self.run.crashed = true;
            }
            self.happen(happening, load);
        }
        self.judge();
        self.run
    }

    fn happen(&mut self, happening: Happening, load: &mut dyn Workload) {
        match happening {
            Happening::Start(client, slot) => {
                if self.left == 0 || self.dead == Some(client) {
                    return;
                }
                self.left -= 1;
                self.sequence += 1;
                let id = TransactionId {
                    coordinator: client,
                    slot,
                    sequence: self.sequence,
                };
                let logic = load.next(&mut self.time.random);
                let (coordinator, actions) = Coordinator::begin(id, self.config.clone(), logic);
                self.running.insert((client, slot), coordinator);
                self.act(id, actions);
            }
            Happening::Request(machine, request) => {
                let request = sent(&request);
                let answer = self.machines[usize::from(machine.0)]
                    .handle(&request, dunlin_txn::membership::Epoch::FIXED);
                let answer = answered(&answer);
                if self.time.random.u8(..) > 8 {
                    let delay = self.time.delay();
                    self.time.later(
                        delay,
                        Happening::Event(request.transaction, Event::Answer(machine, answer)),
                    );
                }
            }
            Happening::Event(id, event) => self.event(id, event),
            Happening::Read(id, machine, address, token) => {
                let store = self.machines[usize::from(machine.0)].store();
                let word = store.header_at(address).unwrap().0;
                let (delay, key) = (self.time.delay(), None);
                let event = Event::Header { token, word, key };
                self.time.later(delay, Happening::Event(id, event));
            }
            Happening::Items(machine, items) => {
                let store = self.machines[usize::from(machine.0)].store_mut();
                items
                    .into_iter()
                    .for_each(|(at, value)| assert!(store.write_item_at(at, value)));
            }
            Happening::Headers(machine, headers) => {
                let store = self.machines[usize::from(machine.0)].store_mut();
                headers.into_iter().for_each(|(at, h)| {
                    assert!(store.write_header_at(at, dunlin_txn::Version(h.version())))
                });
            }
        }
    }

    fn event(&mut self, id: TransactionId, event: Event) {
        let name = (id.coordinator, id.slot);
        if self.dead == Some(id.coordinator) {
            return;
        }
        let until = self.paused.get(&id.coordinator).copied().unwrap_or(0);
        if until > self.time.now {
            return self
                .time
                .later(until - self.time.now, Happening::Event(id, event));
        }
        if self.time.random.u16(..) < 60 {
            self.paused.insert(id.coordinator, self.time.now + 3000);
        }
        let Some(coordinator) = self.running.get_mut(&name).filter(|c| c.id() == id) else {
            return;
        };
        let actions = coordinator.handle(event);
        self.act(id, actions);
    }

    fn act(&mut self, id: TransactionId, actions: Vec<Action>) {
        for action in actions {
            let delay = self.time.delay();
            match action {
                Action::Send { machine, request } => {
                    let step = request.step;
                    let overdue = 300 + self.time.random.u64(0..300);
                    self.time.later(
                        overdue,
                        Happening::Event(id, Event::Overdue { machine, step }),
                    );
                    if self.time.random.u8(..) < 12 {
                        let late = self.time.random.u64(1..3000);
                        self.time
                            .later(late, Happening::Request(machine, request.clone()));
                    }
                    if self.time.random.u8(..) > 8 {
                        self.time.later(delay, Happening::Request(machine, request));
                    }
                }
                Action::Read {
                    machine,
                    address,
                    token,
                    ..
                } => {
                    self.time
                        .later(delay, Happening::Read(id, machine, address, token));
                }
                Action::Write {
                    machine,
                    items,
                    headers,
                    token,
                } => {
                    let fate = self.time.random.u8(..);
                    let gap = self.time.random.u64(1..60);
                    let first =
                        self.config.mistakes == Mistakes::of(dunlin_txn::Mistake::HeaderBeforeItem);
                    let (at_items, at_headers) = if first {
                        (delay + gap, delay)
                    } else {
                        (delay, delay + gap)
                    };
                    if fate > 12 {
                        self.time.later(at_items, Happening::Items(machine, items));
                    }
                    if fate > 24 {
                        self.time
                            .later(at_headers, Happening::Headers(machine, headers));
                    }
                    let failed = fate < 48;
                    let event = if failed {
                        Event::Failed { token }
                    } else {
                        Event::Written { token }
                    };
                    let back = if failed { 400 } else { self.time.delay() };
                    self.time
                        .later(delay + gap + back, Happening::Event(id, event));
                }
                Action::Report(result) => self.report(id, result),
            }
        }
        let name = (id.coordinator, id.slot);
        if self
            .running
            .get(&name)
            .is_some_and(|c| c.id() == id && c.is_finished())
        {
            let coordinator = self.running.remove(&name).unwrap();
            // Reported as unknown, and resolved since.
            if self.run.history.unknown.remove(&id).is_some() {
                self.run
                    .history
                    .committed
                    .insert(id, coordinator.footprint());
            }
            self.time
                .later(1, Happening::Start(id.coordinator, id.slot));
        }
    }

    fn report(
        &mut self,
        id: TransactionId,
        result: Result<dunlin_txn::Committed, dunlin_txn::TransactionError>,
    ) {
        match result {
            Ok(committed) => {
                self.run.history.committed.insert(id, committed);
            }
            Err(dunlin_txn::TransactionError::Unknown { .. }) => {
                let footprint = self.running[&(id.coordinator, id.slot)].footprint();
                self.run.history.unknown.insert(id, footprint);
            }
            Err(_) => self.run.aborted += 1,
        }
    }

    fn judge(&mut self) {
        for ((client, _), coordinator) in &self.running {
            if self.dead != Some(*client) {
                self.run.unfinished += 1;
            } else if coordinator.is_decided()
                && !self.run.history.committed.contains_key(&coordinator.id())
            {
                self.run
                    .history
                    .unknown
                    .insert(coordinator.id(), coordinator.footprint());
            }
        }
        for machine in &self.machines {
            for owner in machine.store().owners() {
                if self.dead == Some(owner.coordinator) {
                    self.run.locks_of_dead += 1;
                } else {
                    self.run.foreign_locks += 1;
                }
            }
        }
        let mut total = 0;
        let mut expected: i64 = 0;
        let balance = dunlin_txn::workload::SmallBank::balance;
        let mut keys: std::collections::BTreeSet<_> =
            self.run.history.initial.keys().cloned().collect();
        keys.extend(
            self.machines
                .iter()
                .flat_map(|m| m.store().contents().into_keys()),
        );
        for key in &keys {
            let primary = self.config.placement.primary(key);
            let found = self.machines[usize::from(primary.0)].store().read(key);
            total += found.value.as_ref().and_then(balance).unwrap_or(0);
            expected += self
                .run
                .history
                .initial
                .get(key)
                .and_then(balance)
                .unwrap_or(0);
            for backup in self.config.placement.backups(key) {
                let copy = self.machines[usize::from(backup.0)].store().read(key);
                self.run.backups_differ |= found.owner.is_none() && copy.value != found.value;
            }
        }
        for committed in self.run.history.committed.values() {
            for update in &committed.writes {
                let seen = committed.reads.iter().find(|(key, ..)| *key == update.key);
                let before = seen
                    .and_then(|(_, _, value)| value.as_ref())
                    .and_then(balance)
                    .unwrap_or(0);
                expected += update.value.as_ref().and_then(balance).unwrap_or(0) - before;
            }
        }
        self.run.money = (!self.run.crashed).then_some((total, expected));
        self.run.violations = self.run.history.check();
    }
}
