//! A cluster in virtual time whose machines crash, are stopped, are cut off and come back, and whose coordinators die.
mod clients;
mod faults;
mod judge;

use crate::disk::Disk;
use crate::machine::{Machine, Start, LEASE, MACHINES};
use crate::membership::Register;
use crate::network::{Cut, Links, Node, MEMBERSHIP};
use crate::simulation::{sent, Timeline};
use dunlin_txn::checker::{History, Violation};
use dunlin_txn::membership::peer::{PeerAnswer, PeerRequest};
use dunlin_txn::membership::plan::Proposal;
use dunlin_txn::membership::{Configuration, Epoch, Observed, Registration, Role};
use dunlin_txn::recovery::{Begins, Condition, Order};
use dunlin_txn::wire::{Body, Refusal, Request, Response};
use dunlin_txn::workload::{SmallBank, Workload};
use dunlin_txn::{
    Address, Config, Coordinator, Event, Key, MachineId, Mistake, Mistakes, Protocol, Store,
    TransactionId, Version,
};
pub(crate) use faults::Fault;
use faults::FAULTS_UNTIL;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: u64 = 4;
/// Transactions of a client at once. The first is always a read of the same key: it asks one machine alone, which so
/// has to know by itself whether it may answer.
const SLOTS: u16 = 4;
const WATCHER: u16 = 0;
const TRANSACTIONS: usize = 300;
/// Between two renewals of a lease.
const BEAT: u64 = LEASE / 5;
/// All is well again long before.
const END: u64 = 400_000;

type Life = (u16, u64);

enum Happening {
    Start(u64, u16),
    Request(MachineId, Epoch, Request),
    /// After the machine has looked at its lease.
    Execute(Life, Epoch, Request),
    Event(TransactionId, Event),
    Read(TransactionId, Life, Address, u32),
    Beat(Life),
    AtMembership(Registration, Duration),
    Observed(Life, Duration, Observed),
    Propose(Life, Proposal),
    Replace(u16, Proposal),
    Peer(Life, Life, PeerRequest),
    PeerAnswer(Life, u16, PeerRequest, PeerAnswer),
    Look(u64),
    View(u64, Configuration),
    Fault,
    /// What a life has appended up to a position is on its disk; the message that waited for that goes to a node.
    Synced(Life, u64, Option<(Node, Box<Happening>)>),
    Return(u16),
    Heal(Cut),
    Flap(Cut, u32),
}

#[derive(Default)]
pub(crate) struct Run {
    pub(crate) history: History,
    pub(crate) violations: Vec<Violation>,
    /// What is wrong beside the history.
    pub(crate) wrong: Option<String>,
    pub(crate) aborted: usize,
    pub(crate) superseded: usize,
    pub(crate) settled: usize,
    pub(crate) epochs: u64,
    pub(crate) faults: usize,
    pub(crate) locks_of_dead: usize,
}

pub(crate) struct Cluster {
    time: Timeline<Happening>,
    register: Register,
    machines: Vec<Machine>,
    lives: u64,
    links: Links,
    flapping: bool,
    faults: Vec<Fault>,
    proposal_delay: u64,
    /// The key that each client reads again and again.
    watched: Vec<Key>,
    views: Vec<Arc<Config>>,
    incarnations: Vec<Vec<u64>>,
    running: BTreeMap<(u64, u16), Coordinator>,
    /// The versions that were acknowledged when a transaction began.
    began: BTreeMap<TransactionId, BTreeMap<Key, Version>>,
    acknowledged: BTreeMap<Key, Version>,
    dead: Option<u64>,
    protocol: Protocol,
    mistakes: Mistakes,
    headers: usize,
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
        faults: Option<&[Fault]>,
    ) -> Cluster {
        let mut random = fastrand::Rng::with_seed(seed);
        let faults = faults.map_or_else(|| Fault::some(&mut random), <[Fault]>::to_vec);
        let keys: Vec<Key> = load.load().map(|(key, _)| key).collect();
        let watched = (0..CLIENTS).map(|_| keys[random.usize(0..keys.len())].clone());
        let watched = watched.collect();
        let has_disks = faults.contains(&Fault::Blackout);
        let machines = (0..MACHINES).map(|n| {
            let drift = (random.i64(-40..40), random.u64(0..1_000_000));
            let start = Start {
                incarnation: u64::from(n) + 1,
                begins: Begins::First,
                load: Some(load),
                disk: has_disks.then(Disk::default),
            };
            Machine::new(n, start, (headers, mistakes), drift)
        });
        let machines: Vec<Machine> = machines.collect();
        let proposal_delay = faults::proposal_delay(&faults, &mut random);
        let mut cluster = Cluster {
            time: Timeline::new(random),
            register: Register::default(),
            machines,
            lives: 100,
            links: Links::default(),
            flapping: false,
            proposal_delay,
            faults,
            watched,
            views: Vec::new(),
            incarnations: Vec::new(),
            running: BTreeMap::new(),
            began: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            dead: None,
            protocol,
            mistakes,
            headers,
            left: TRANSACTIONS,
            sequence: 0,
            run: Run::default(),
        };
        cluster.run.history.initial = load.load().collect();
        cluster
    }

    /// A message on its way; nothing where it is lost.
    fn send(&mut self, from: Node, to: Node, happening: Happening) {
        let lost = self.time.random.u8(..) < 6 || self.links.is_cut(from, to);
        let delay = self.time.delay();
        if !lost {
            self.time.later(delay, happening);
        }
    }

    fn at(&self, (number, incarnation): Life) -> Option<usize> {
        let machine = &self.machines[usize::from(number)];
        (machine.alive && machine.incarnation == incarnation).then_some(usize::from(number))
    }

    /// Runs until all is well again, and judges what has happened.
    pub(crate) fn run(mut self, load: &mut dyn Workload) -> Run {
        for n in 0..MACHINES {
            let incarnation = self.machines[usize::from(n)].incarnation;
            self.time
                .later(u64::from(n), Happening::Beat((n, incarnation)));
        }
        for client in 0..CLIENTS {
            self.time.later(100, Happening::Look(client));
        }
        let first = self.time.random.u64(1000..8000);
        self.time.later(first, Happening::Fault);
        while let Some(happening) = self.time.next() {
            let now = self.time.now;
            self.happen(happening, load);
            if now > FAULTS_UNTIL && self.time.count() % 64 == 0 && self.is_well() {
                break;
            }
            if now > END {
                self.run.wrong = Some(self.why_not_well());
                break;
            }
        }
        self.judge();
        self.run
    }

    fn happen(&mut self, happening: Happening, load: &mut dyn Workload) {
        match happening {
            Happening::Start(client, slot) => self.start(client, slot, load),
            Happening::Request(to, epoch, request) => {
                let number = usize::from(to.0);
                if self.machines[number].reads(self.time.now) {
                    return;
                }
                if self.postponed(number, |_| Happening::Request(to, epoch, request.clone())) {
                    return;
                }
                let machine = &self.machines[number];
                let asks = request.body == Body::Outcome;
                let life = (to.0, machine.incarnation);
                if !asks && !machine.has_lease(self.time.now) {
                    let response = Response::Refused(Refusal::Epoch);
                    let (node, reply) = self.reply(to, &request, response);
                    return self.send(u64::from(to.0), node, reply);
                }
                // It may be stopped after it has looked at its lease.
                let delay = self.within_handler(number);
                self.time
                    .later(delay, Happening::Execute(life, epoch, request));
            }
            Happening::Execute(life, epoch, request) => {
                if let Some(number) = self.at(life) {
                    let request = sent(&request);
                    let machine = &mut self.machines[number];
                    let answer = machine.local.participant.handle(&request, epoch);
                    let needed = machine.local.needed(&request.body);
                    let reply = self.reply(MachineId(life.0), &request, answer.response);
                    self.send_when_safe(life, needed, reply);
                }
            }
            Happening::Event(id, event) => self.event(id, event),
            Happening::Read(id, life, address, token) => {
                // Nobody at the machine has a part in it.
                let event = match self.at(life) {
                    Some(number) => {
                        let store = self.machines[number].local.participant.store();
                        let word = store.header_at(address).unwrap().0;
                        let key = None;
                        Event::Header { token, word, key }
                    }
                    None => Event::Failed { token },
                };
                let delay = self.time.delay();
                self.time.later(delay, Happening::Event(id, event));
            }
            Happening::Beat(life) => self.beat(life),
            Happening::AtMembership(me, asked) => {
                let life = (me.machine.0, me.incarnation);
                let observed = self.register.beat(me, self.time.now, LEASE);
                let observed = Happening::Observed(life, asked, observed);
                self.send(MEMBERSHIP, u64::from(life.0), observed);
            }
            Happening::Observed(life, asked, observed) => {
                let again = |o: &Observed| Happening::Observed(life, asked, o.clone());
                let Some(number) = self.at(life) else { return };
                if self.postponed(number, |_| again(&observed)) {
                    return;
                }
                if self.machines[number].reads(self.time.now) {
                    return self.reading(number, &observed);
                }
                match self.machines[number].agent.observed(asked, observed) {
                    Condition::Well => self.poll(number),
                    Condition::Fenced => self.restart(life.0),
                }
            }
            Happening::Propose(life, proposal) => {
                if self.at(life).is_some() {
                    let proposal = Happening::Replace(life.0, proposal);
                    self.send(u64::from(life.0), MEMBERSHIP, proposal);
                }
            }
            Happening::Replace(from, proposal) => {
                if self.register.replace(proposal, self.time.now) {
                    // It hears of it soon.
                    let incarnation = self.machines[usize::from(from)].incarnation;
                    self.time.later(50, Happening::Beat((from, incarnation)));
                }
            }
            Happening::Peer(from, to, request) => {
                let reads = |number: &usize| !self.machines[*number].reads(self.time.now);
                let Some(number) = self.at(to).filter(reads) else {
                    return;
                };
                if self.postponed(number, |_| Happening::Peer(from, to, request.clone())) {
                    return;
                }
                let mut bytes = Vec::new();
                request.encode(&mut bytes);
                let request = PeerRequest::decode(&bytes).unwrap();
                let machine = &mut self.machines[number];
                let answer = machine.agent.answer(&mut machine.local, &request);
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                let answer = PeerAnswer::decode(&bytes).unwrap();
                let back = Happening::PeerAnswer(from, to.0, request, answer);
                let needed = self.machines[number].local.appended();
                self.send_when_safe(to, needed, (u64::from(from.0), back));
            }
            Happening::PeerAnswer(to, from, request, answer) => {
                let Some(number) = self.at(to) else { return };
                let again =
                    |a: &PeerAnswer| Happening::PeerAnswer(to, from, request.clone(), a.clone());
                if self.postponed(number, |_| again(&answer)) {
                    return;
                }
                let machine = &mut self.machines[number];
                let local = &mut machine.local;
                machine
                    .agent
                    .answered(MachineId(from), &request, answer, local);
                let appended = machine.local.appended();
                self.later_safe(to, appended, None);
                self.poll(number);
            }
            Happening::Look(client) => self.look(client),
            Happening::View(client, of) => self.view(client, &of),
            Happening::Fault => self.fault(),
            Happening::Synced(life, position, then) => self.synced(life, position, then),
            Happening::Return(number) => self.restart(number),
            Happening::Heal(cut) => self.links.heal(&cut),
            Happening::Flap(cut, times) => self.flap(cut, times),
        }
    }

    /// Whether the machine is stopped: then it happens later. What happens to a dead machine happens not at all.
    fn postponed(&mut self, number: usize, again: impl FnOnce(&Self) -> Happening) -> bool {
        if !self.machines[number].alive {
            return true;
        }
        let until = self.machines[number].paused_until;
        if until <= self.time.now {
            return false;
        }
        let again = again(self);
        self.time.later(until - self.time.now, again);
        true
    }

    fn beat(&mut self, life: Life) {
        let Some(number) = self.at(life) else { return };
        if self.postponed(number, |_| Happening::Beat(life)) {
            return;
        }
        let machine = &self.machines[number];
        let asked = machine.clock(self.time.now);
        let mut me = machine.agent.registration().clone();
        me.whole &= !machine.reads(self.time.now);
        self.send(
            u64::from(life.0),
            MEMBERSHIP,
            Happening::AtMembership(me, asked),
        );
        self.poll(number);
        self.time.later(BEAT, Happening::Beat(life));
    }

    fn poll(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        if machine.reads(self.time.now) {
            return;
        }
        let clock = machine.clock(self.time.now);
        let from = (number as u16, machine.incarnation);
        let before = machine.local.appended();
        for order in machine.agent.poll(clock, &mut machine.local) {
            match order {
                Order::Replace(proposal) => {
                    let delay = match proposal.next.serving {
                        true => 0,
                        false => self.proposal_delay,
                    };
                    self.time.later(delay, Happening::Propose(from, proposal));
                }
                Order::Ask {
                    machine,
                    incarnation,
                    request,
                    ..
                } => {
                    let to = (machine.0, incarnation);
                    let peer = Happening::Peer(from, to, request);
                    self.send(number as u64, u64::from(machine.0), peer);
                }
            }
        }
        let appended = self.machines[number].local.appended();
        if appended > before {
            self.later_safe(from, appended, None);
        }
    }

    /// Another life of a machine: with what is on its disk where the others have not gone on without it, and without
    /// any memory of the last otherwise.
    fn restart(&mut self, number: u16) {
        self.lives += 1;
        let at = usize::from(number);
        let drift = self.machines[at].drift();
        let shape = (self.headers, self.mistakes);
        let disk = self.machines[at].local.disk.clone();
        let of = self.register.now.as_ref().map(|(_, of)| of);
        let mut begins = Begins::Empty;
        if let Some(disk) = &disk {
            let log = disk.entries();
            begins = Begins::of(&log, MachineId(number), of).unwrap();
            let is_behind = begins == Begins::Empty && of.is_some();
            if is_behind && self.mistakes == Mistakes::of(Mistake::BehindTakenForWhole) {
                // It would take whatever life is a member for one of its own.
                let member = of.and_then(|of| of.member(MachineId(number)));
                begins = Begins::Continues(member.map(|member| member.incarnation));
            }
        }
        let start = Start {
            incarnation: self.lives,
            begins,
            load: None,
            disk,
        };
        self.machines[at] = Machine::new(number, start, shape, drift);
        if matches!(begins, Begins::Continues(Some(_))) && self.time.random.bool() {
            let reads = self.time.random.u64(1..4 * LEASE);
            self.machines[at].reads_until = self.time.now + reads;
        }
        self.time.later(1, Happening::Beat((number, self.lives)));
    }

    /// What a machine that reads its log hears of the membership: whether the others have gone on without it.
    fn reading(&mut self, number: usize, observed: &Observed) {
        let machine = &self.machines[number];
        let of = observed.configuration.as_ref().map(|(_, of)| of);
        let may_succeed = |of| machine.agent.registration().may_succeed(of);
        if of.is_some_and(may_succeed)
            || self.mistakes == Mistakes::of(Mistake::BehindTakenForWhole)
        {
            return;
        }
        let start = Start {
            incarnation: machine.incarnation,
            begins: Begins::Empty,
            load: None,
            disk: machine.local.disk.clone(),
        };
        let (shape, drift) = ((self.headers, self.mistakes), machine.drift());
        self.machines[number] = Machine::new(number as u16, start, shape, drift);
    }

    /// Sends what a machine may say when what it has appended so far is on its disk.
    fn send_when_safe(&mut self, life: Life, position: u64, (to, message): (Node, Happening)) {
        let Some(number) = self.at(life) else { return };
        let disk = self.machines[number].local.disk.as_ref();
        let is_safe = disk.is_none_or(|disk| disk.is_safe(position));
        if is_safe || self.mistakes == Mistakes::of(Mistake::AnsweredBeforeDisk) {
            self.send(u64::from(life.0), to, message);
            if is_safe {
                return;
            }
            return self.later_safe(life, position, None);
        }
        self.later_safe(life, position, Some((to, Box::new(message))));
    }

    fn later_safe(&mut self, life: Life, position: u64, then: Option<(Node, Box<Happening>)>) {
        // Now and then a disk takes its time.
        let slow = [4, 4, 4, 40][self.time.random.usize(0..4)];
        let delay = self.time.delay() * slow;
        self.time
            .later(delay, Happening::Synced(life, position, then));
    }

    fn synced(&mut self, life: Life, position: u64, then: Option<(Node, Box<Happening>)>) {
        let Some(number) = self.at(life) else { return };
        let machine = &self.machines[number];
        if let Some(disk) = &machine.local.disk {
            disk.sync(position);
            // Now and then all is in a snapshot; one that copies makes none.
            let is_whole = machine.agent.registration().whole;
            if is_whole && self.time.random.u8(..) < 16 {
                machine.local.snapshot();
            }
        }
        if let Some((to, message)) = then {
            self.send(u64::from(life.0), to, *message);
        }
        self.poll(number);
    }
}
