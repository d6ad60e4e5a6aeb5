//! Clients: they ask for the membership, run transactions and tell what has become of them.
use super::{Cluster, Happening, SLOTS, TRANSACTIONS, WATCHER};
use crate::cluster::faults::FAULTS_UNTIL;
use crate::machine::MACHINES;
use crate::network::{client_node, Node};
use crate::simulation::answered;
use dunlin_txn::membership::Configuration;
use dunlin_txn::wire::{Answer, Request, Response};
use dunlin_txn::workload::Workload;
use dunlin_txn::{
    Access, Action, Committed, Config, Coordinator, Event, Key, Logic, MachineId, Once, Step,
    TransactionError, TransactionId,
};
use std::sync::Arc;

/// Logic that reads one key.
fn reads(key: Key) -> Box<dyn Logic> {
    let access = Access {
        reads: vec![key],
        writes: Vec::new(),
    };
    Box::new(Once::new(access, |_| Step::Commit(Vec::new())))
}

impl Cluster {
    /// A client asks some machine what the membership is.
    pub(super) fn look(&mut self, client: u64) {
        let number = self.time.random.usize(0..usize::from(MACHINES));
        let machine = &self.machines[number];
        let known = machine.agent.configuration().filter(|of| of.serving);
        let awake = machine.alive && machine.paused_until <= self.time.now;
        let node = client_node(client);
        if let Some(of) = known.filter(|_| awake).cloned() {
            self.send(number as u64, node, Happening::View(client, of));
        }
        self.time.later(300, Happening::Look(client));
    }

    pub(super) fn view(&mut self, client: u64, of: &Configuration) {
        let config = Config {
            protocol: self.protocol,
            placement: of.placement().unwrap(),
            log_replicas: of.log_replicas(client),
            epoch: of.epoch,
            attempts: 8,
            mistakes: self.mistakes,
        };
        let incarnations = of.members.iter().map(|member| member.incarnation).collect();
        let at = client as usize;
        // Clients first look in their order.
        if self.views.len() <= at {
            if self.views.len() == at {
                self.views.push(Arc::new(config));
                self.incarnations.push(incarnations);
                (0..SLOTS).for_each(|slot| self.time.later(1, Happening::Start(client, slot)));
            }
            return;
        }
        if self.views[at].epoch >= of.epoch {
            return;
        }
        self.views[at] = Arc::new(config);
        self.incarnations[at] = incarnations;
        for slot in 0..SLOTS {
            let running = self.running.get(&(client, slot));
            if let Some(id) = running.map(Coordinator::id) {
                self.time.later(1, Happening::Event(id, Event::Superseded));
            }
        }
    }

    pub(super) fn start(&mut self, client: u64, slot: u16, load: &mut dyn Workload) {
        if self.left == 0 || self.dead == Some(client) {
            return;
        }
        // Some are left for the time after the last fault.
        if slot != WATCHER && self.left < TRANSACTIONS / 6 && self.time.now < FAULTS_UNTIL {
            return self.time.later(1000, Happening::Start(client, slot));
        }
        let logic = match slot {
            WATCHER => reads(self.watched[client as usize].clone()),
            _ => {
                self.left -= 1;
                load.next(&mut self.time.random)
            }
        };
        self.sequence += 1;
        let id = TransactionId {
            coordinator: client,
            slot,
            sequence: self.sequence,
        };
        let config = Arc::clone(&self.views[client as usize]);
        let (coordinator, actions) = Coordinator::begin(id, config, logic);
        self.running.insert((client, slot), coordinator);
        self.began.insert(id, self.acknowledged.clone());
        self.act(id, actions);
    }

    pub(super) fn reply(
        &self,
        from: MachineId,
        request: &Request,
        response: Response,
    ) -> (Node, Happening) {
        let answer = Answer {
            transaction: request.transaction,
            step: request.step,
            response,
        };
        let answer = answered(&answer);
        let event = Happening::Event(request.transaction, Event::Answer(from, answer));
        (client_node(request.transaction.coordinator), event)
    }

    pub(super) fn event(&mut self, id: TransactionId, event: Event) {
        if self.dead == Some(id.coordinator) {
            return;
        }
        let running = self.running.get_mut(&(id.coordinator, id.slot));
        let Some(coordinator) = running.filter(|c| c.id() == id) else {
            return;
        };
        let actions = coordinator.handle(event);
        self.act(id, actions);
    }

    pub(super) fn act(&mut self, id: TransactionId, actions: Vec<Action>) {
        let name = (id.coordinator, id.slot);
        let client = id.coordinator as usize;
        let node = client_node(id.coordinator);
        let epoch = self.running[&name].epoch();
        for action in actions {
            match action {
                Action::Send { machine, request } => {
                    let step = request.step;
                    let overdue = 300 + self.time.random.u64(0..300);
                    let event = Event::Overdue { machine, step };
                    self.time.later(overdue, Happening::Event(id, event));
                    let to = u64::from(machine.0);
                    if self.time.random.u8(..) < 12 {
                        let late = self.time.random.u64(1..3000);
                        self.time
                            .later(late, Happening::Request(machine, epoch, request.clone()));
                    }
                    self.send(node, to, Happening::Request(machine, epoch, request));
                }
                Action::Read {
                    machine,
                    address,
                    token,
                    ..
                } => {
                    let known = self.incarnations[client][usize::from(machine.0)];
                    let life = (machine.0, known);
                    if self.links.is_cut(node, u64::from(machine.0)) {
                        self.time
                            .later(800, Happening::Event(id, Event::Failed { token }));
                    } else {
                        let delay = self.time.delay();
                        self.time
                            .later(delay, Happening::Read(id, life, address, token));
                    }
                }
                Action::Write { .. } => unreachable!("no protocol here WRITEs"),
                Action::Report(result) => self.report(id, result),
            }
        }
        let ended = |c: &Coordinator| c.id() == id && c.is_finished();
        if self.running.get(&name).is_some_and(ended) {
            let coordinator = self.running.remove(&name).unwrap();
            let is_lost = coordinator.is_lost();
            if !is_lost && self.run.history.unknown.remove(&id).is_some() {
                self.run.settled += 1;
                if coordinator.is_decided() {
                    self.committed(id, coordinator.footprint());
                }
            }
            let well = self.run.history.committed.contains_key(&id);
            let pause = self.time.random.u64(1..if well { 300 } else { 2000 });
            self.time
                .later(pause, Happening::Start(id.coordinator, id.slot));
        }
    }

    pub(super) fn report(
        &mut self,
        id: TransactionId,
        result: Result<Committed, TransactionError>,
    ) {
        match result {
            Ok(committed) => self.committed(id, committed),
            Err(TransactionError::Unknown { .. }) => {
                let footprint = self.running[&(id.coordinator, id.slot)].footprint();
                self.run.history.unknown.insert(id, footprint);
            }
            Err(TransactionError::Superseded) => self.run.superseded += 1,
            Err(_) => self.run.aborted += 1,
        }
    }
}
