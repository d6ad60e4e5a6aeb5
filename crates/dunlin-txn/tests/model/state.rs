//! A state of the cluster, and what each step makes of it.
use crate::client::{Client, Told};
use crate::machine::{Machine, Place, LATER, MACHINES};
use crate::part::Part;
use crate::{Faults, Scenario};
use dunlin_txn::membership::peer::{PeerAnswer, PeerRequest};
use dunlin_txn::membership::plan::Proposal;
use dunlin_txn::membership::{Configuration, Epoch, Observed, Registration};
use dunlin_txn::recovery::{Condition, Order};
use dunlin_txn::wire::{Answer, Body, Refusal, Request, Response};
use dunlin_txn::{Action as Todo, Address, Event, MachineId};
use std::hash::{Hash, Hasher};

/// What is on its way. Nothing is lost but what was sent to a machine that has died, and nothing has an order.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Message {
    Request(MachineId, Epoch, Request),
    Answer(MachineId, Answer),
    /// A one-sided READ, which is answered as soon as it is executed.
    Read {
        client: usize,
        of: MachineId,
        life: u64,
        address: Address,
        token: u32,
    },
    /// A configuration that a machine has proposed.
    Proposal(Proposal),
    /// A question of a life of one machine to a life of another.
    Ask {
        from: (MachineId, u64),
        to: (MachineId, u64),
        request: PeerRequest,
    },
}

/// The membership: one place that decides alone.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Register {
    pub(crate) now: Option<(u64, Configuration)>,
    /// Who has a lease.
    alive: Vec<Registration>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) machines: Vec<Place>,
    pub(crate) clients: Vec<Part<Client>>,
    pub(crate) register: Part<Register>,
    /// All configurations that have served.
    pub(crate) served: Vec<Part<Configuration>>,
    pub(crate) mail: Vec<Part<Message>>,
    /// Faults that may happen yet.
    pub(crate) left: Faults,
    lives: u64,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.machines, &self.clients, &self.register).hash(state);
        (&self.served, &self.mail, self.left, self.lives).hash(state);
    }
}

impl State {
    /// Three machines of an epoch that serves, and clients that have not begun.
    pub(crate) fn new(scenario: &Scenario) -> State {
        let machine = |number: u16| {
            let (id, keys) = (MachineId(number), &scenario.keys[..]);
            let life = 1 + u64::from(number);
            Machine::new(id, life, scenario.replicas, scenario.mistakes, Some(keys))
        };
        let clients = scenario.works.iter().map(|_| Part::new(Client::new()));
        let mut state = State {
            machines: (0..MACHINES).map(|n| Some(Part::new(machine(n)))).collect(),
            clients: clients.collect(),
            register: Part::new(Register::default()),
            served: Vec::new(),
            mail: Vec::new(),
            left: scenario.faults,
            lives: u64::from(MACHINES),
        };
        while let Some(number) = (0..state.machines.len()).find(|n| state.may_observe(*n)) {
            state.observe(number);
            // The first configuration serves at once, and so has come to the membership already.
            state.mail.clear();
        }
        state
    }

    /// The machine of this life, if it lives.
    fn life(&self, (id, incarnation): (MachineId, u64)) -> Option<&Part<Machine>> {
        let machine = self.machines[usize::from(id.0)].as_ref();
        machine.filter(|machine| machine.incarnation == incarnation)
    }

    pub(crate) fn now(&self) -> &Configuration {
        let now = self.register.now.as_ref();
        &now.expect("the database has begun").1
    }

    fn put(&mut self, message: Message) {
        let message = Part::new(message);
        let place = self
            .mail
            .binary_search_by_key(&message.digest, |m| m.digest);
        if let Err(place) = place {
            self.mail.insert(place, message);
        }
    }

    fn set(&mut self, machine: Machine) {
        let number = usize::from(machine.own.me.0);
        self.machines[number] = Some(Part::new(machine));
    }

    /// Whether the membership has something to say to the machine, or it to the membership.
    pub(crate) fn may_observe(&self, number: usize) -> bool {
        self.machines[number].as_ref().is_some_and(|machine| {
            let known = self.register.alive.contains(machine.agent.registration());
            !known || machine.saw != self.register.digest
        })
    }

    /// A machine renews its lease, is told what is so, and does what follows from it.
    pub(crate) fn observe(&mut self, number: usize) {
        let Some(machine) = &self.machines[number] else {
            return;
        };
        let mut machine = machine.copied();
        let mut register = Register::clone(&self.register);
        let me = machine.agent.registration().clone();
        register.alive.retain(|one| one.machine != me.machine);
        register.alive.push(me);
        register.alive.sort_by_key(|one| one.machine);
        self.register = Part::new(register);
        let observed = Observed {
            configuration: self.register.now.clone(),
            alive: self.register.alive.clone(),
        };
        machine.saw = self.register.digest;
        match machine.agent.observed(machine.clock, observed) {
            Condition::Fenced => self.end(number),
            Condition::Well => {
                let now = machine.agent.configuration();
                machine.leased = now.is_some_and(|of| machine.is_member_of(of));
                machine.looked = false;
                self.poll(machine);
            }
        }
    }

    /// The agent of a machine says what is to be done, and that is begun.
    fn poll(&mut self, mut machine: Machine) {
        for order in machine.agent.poll(machine.clock, &mut machine.own) {
            match order {
                // That an epoch serves changes nothing that anybody else could propose meanwhile.
                Order::Replace(proposal) if proposal.next.serving => self.replace(&proposal),
                Order::Replace(proposal) => self.put(Message::Proposal(proposal)),
                Order::Ask {
                    machine: to,
                    incarnation,
                    request,
                    ..
                } => {
                    let (from, to) = ((machine.own.me, machine.incarnation), (to, incarnation));
                    if self.life(to).is_some() {
                        self.put(Message::Ask { from, to, request });
                    }
                }
            }
        }
        self.set(machine);
    }

    /// Who has proposed what was refused looks again.
    fn proposed(&mut self, proposal: &Proposal) {
        let before = self.register.digest;
        self.replace(proposal);
        let proposer = &self.machines[usize::from(proposal.next.manager.0)];
        if let Some(machine) = proposer.as_ref().filter(|_| self.register.digest == before) {
            let mut machine = machine.copied();
            machine.saw = 0;
            self.set(machine);
        }
    }

    fn replace(&mut self, proposal: &Proposal) {
        let revision = self
            .register
            .now
            .as_ref()
            .map_or(0, |(revision, _)| *revision);
        let alive = |(machine, life): &(MachineId, u64)| {
            let mut alive = self.register.alive.iter();
            alive.any(|one| one.machine == *machine && one.incarnation == *life)
        };
        if revision != proposal.revision || proposal.absent.iter().any(alive) {
            return;
        }
        if proposal.next.serving {
            self.served.push(Part::new(proposal.next.clone()));
        }
        let mut register = Register::clone(&self.register);
        register.now = Some((revision + 1, proposal.next.clone()));
        self.register = Part::new(register);
    }

    /// A life of a machine is over, and its lease.
    pub(crate) fn end(&mut self, number: usize) {
        let id = MachineId(number as u16);
        self.machines[number] = None;
        self.end_lease(id);
        self.mail.retain(|message| match &**message {
            Message::Request(to, ..) => *to != id,
            Message::Ask { to, .. } => to.0 != id,
            Message::Answer(..) | Message::Read { .. } | Message::Proposal(_) => true,
        });
    }

    fn end_lease(&mut self, id: MachineId) {
        let mut register = Register::clone(&self.register);
        register.alive.retain(|one| one.machine != id);
        self.register = Part::new(register);
    }

    /// The lease of a machine ends though it lives. A handler may have looked at it before.
    pub(crate) fn cut(&mut self, number: usize) {
        if let Some(machine) = &self.machines[number] {
            let mut machine = machine.copied();
            (machine.leased, machine.looked) = (false, true);
            self.set(machine);
            self.end_lease(MachineId(number as u16));
        }
    }

    /// The next life of a machine, without anything.
    pub(crate) fn come_back(&mut self, number: usize, scenario: &Scenario) {
        self.lives += 1;
        let (id, life) = (MachineId(number as u16), self.lives);
        let machine = Machine::new(id, life, scenario.replicas, scenario.mistakes, None);
        self.set(machine);
    }

    /// So much time goes by at a machine that a coordinator which has done nothing meanwhile is taken for dead.
    pub(crate) fn wait(&mut self, number: usize) {
        for _ in 0..3 {
            if let Some(machine) = &self.machines[number] {
                let mut machine = machine.copied();
                machine.clock += LATER;
                self.poll(machine);
            }
        }
    }

    /// Whether a message arrives, or stays on its way.
    pub(crate) fn deliver(&self, at: usize, late: bool, scenario: &Scenario) -> Option<State> {
        let mut next = self.clone();
        let message = next.mail.remove(at);
        let arrives = match &*message {
            Message::Request(to, epoch, request) => next.request(*to, *epoch, request, late),
            Message::Answer(from, answer) => {
                let client = answer.transaction.coordinator as usize;
                next.event(client, Event::Answer(*from, answer.clone()), scenario);
                true
            }
            Message::Read {
                client,
                of,
                life,
                address,
                token,
            } => {
                let token = *token;
                let store = self.life((*of, *life)).map(|m| m.own.participant.store());
                let header = store.and_then(|store| store.header_at(*address));
                let event = match header {
                    Some(header) => Event::Header {
                        token,
                        word: header.0,
                        key: None,
                    },
                    None => Event::Failed { token },
                };
                next.event(*client, event, scenario);
                true
            }
            Message::Proposal(proposal) => {
                next.proposed(proposal);
                true
            }
            Message::Ask { from, to, request } => next.ask(*from, *to, request),
        };
        arrives.then_some(next)
    }

    /// A message arrives, and is on its way still.
    pub(crate) fn double(&self, at: usize, scenario: &Scenario) -> Option<State> {
        let mut next = self.deliver(at, false, scenario)?;
        next.left.doubles -= 1;
        next.put(Message::clone(&self.mail[at]));
        Some(next)
    }

    fn request(&mut self, to: MachineId, epoch: Epoch, request: &Request, late: bool) -> bool {
        let Some(machine) = &self.machines[usize::from(to.0)] else {
            return true;
        };
        // A coordinator that may still abort does so when it is refused; others ask again, as though it came later.
        let may_abort = matches!(request.body, Body::Execute { .. } | Body::Validate(_));
        let inquires = request.body == Body::Outcome;
        let has_lease = machine.has_lease() || (late && machine.looked);
        let participant = &machine.own.participant;
        let is_behind = participant.epoch() < epoch
            || (participant.epoch() == epoch && !participant.is_serving());
        if !inquires && ((!has_lease && !may_abort) || (has_lease && is_behind)) {
            return false;
        }
        let answer = if inquires || has_lease {
            let mut machine = machine.copied();
            machine.looked &= !late;
            let answer = machine.own.participant.handle(request, epoch);
            self.set(machine);
            answer
        } else {
            Answer {
                transaction: request.transaction,
                step: request.step,
                response: Response::Refused(Refusal::Epoch),
            }
        };
        let client = &self.clients[request.transaction.coordinator as usize];
        let is_heard = may_abort || answer.response != Response::Refused(Refusal::Epoch);
        if is_heard && client.running().is_some() {
            self.put(Message::Answer(to, answer));
        }
        true
    }

    fn ask(&mut self, from: (MachineId, u64), to: (MachineId, u64), request: &PeerRequest) -> bool {
        let Some(asked) = self.life(to) else {
            return true;
        };
        let before = asked.digest;
        let mut asked = asked.copied();
        let answer = asked.agent.answer(&mut asked.own, request);
        let is_refused = matches!(answer, PeerAnswer::No);
        self.set(asked);
        let has_changed = self
            .life(to)
            .is_some_and(|machine| machine.digest != before);
        // Who asks for what is not too late asks again.
        if is_refused && !has_changed && request.epoch() >= self.now().epoch {
            return false;
        }
        if let Some(asker) = self.life(from) {
            let mut asker = asker.copied();
            let own = &mut asker.own;
            asker.agent.answered(to.0, request, answer, own);
            self.poll(asker);
        }
        true
    }

    /// A client begins its transaction, with what it knows of the membership.
    pub(crate) fn begin(&mut self, client: usize, view: usize, scenario: &Scenario) {
        let doing = scenario.doing(client, false);
        let of = self.served[view].clone();
        let how = (scenario.protocol, scenario.mistakes);
        let (mut begun, todo) = self.clients[client].begin(client as u64, doing, &of, how);
        for (number, other) in self.clients.iter().enumerate() {
            let committed = matches!(other.told, Some(Told::Committed(_)));
            begun.after |= u8::from(committed) << number;
        }
        self.act(client, begun, todo);
    }

    pub(crate) fn event(&mut self, client: usize, event: Event, scenario: &Scenario) {
        let handled = self.clients[client].handle(scenario.doing(client, true), event);
        if let Some((changed, todo)) = handled {
            self.act(client, changed, todo);
        }
    }

    /// A client hears of the epoch that serves.
    pub(crate) fn notice(&mut self, client: usize, scenario: &Scenario) {
        let handled = self.clients[client].handle(scenario.doing(client, true), Event::Superseded);
        if let Some((mut changed, todo)) = handled {
            changed.noticed = self.now().epoch;
            self.act(client, changed, todo);
        }
    }

    pub(crate) fn kill(&mut self, client: usize) {
        self.clients[client] = Part::new(self.clients[client].killed());
        self.forget_answers(client);
    }

    fn forget_answers(&mut self, client: usize) {
        self.mail.retain(|message| match &**message {
            Message::Answer(_, answer) => answer.transaction.coordinator != client as u64,
            Message::Read { client: of, .. } => *of != client,
            Message::Request(..) | Message::Ask { .. } | Message::Proposal(_) => true,
        });
    }

    fn act(&mut self, number: usize, mut client: Client, todo: Vec<Todo>) {
        let epoch = client
            .coordinator
            .as_ref()
            .map_or(Epoch::FIXED, |one| one.epoch());
        let of = self.served.iter().find(|of| of.epoch == epoch).cloned();
        for todo in todo {
            match todo {
                Todo::Send { machine, request } => {
                    if request.body == Body::Outcome {
                        client.inquiry = Some((machine, request.step));
                    }
                    if self.machines[usize::from(machine.0)].is_some() {
                        self.put(Message::Request(machine, epoch, request));
                    }
                }
                Todo::Read {
                    machine: at,
                    address,
                    token,
                    ..
                } => {
                    let member = of.as_ref().and_then(|of| of.member(at));
                    self.put(Message::Read {
                        client: number,
                        of: at,
                        life: member.map_or(0, |member| member.incarnation),
                        address,
                        token,
                    });
                }
                Todo::Write { .. } => unreachable!("no protocol here WRITEs"),
                Todo::Report(Ok(committed)) => client.told = Some(Told::Committed(committed)),
                Todo::Report(Err(dunlin_txn::TransactionError::Unknown { .. })) => {
                    client.told = Some(Told::Unknown);
                }
                Todo::Report(Err(_)) => client.told = Some(Told::Aborted),
            }
        }
        let is_over = client.is_over();
        self.clients[number] = Part::new(client);
        if is_over {
            self.forget_answers(number);
        }
    }

    /// Whether nobody will answer what a client has asked last, and another would.
    pub(crate) fn is_overdue(&self, number: usize) -> Option<(MachineId, u16)> {
        let client = &self.clients[number];
        let (epoch, (machine, step)) = (client.running()?.epoch(), client.inquiry?);
        let is_out = |message: &Part<Message>| match &**message {
            Message::Request(_, _, request) => {
                request.transaction.coordinator == number as u64 && request.step == step
            }
            Message::Answer(_, answer) => {
                answer.transaction.coordinator == number as u64 && answer.step == step
            }
            Message::Read { .. } | Message::Ask { .. } | Message::Proposal(_) => false,
        };
        let knows = |place: &Place| {
            let participant = place.as_ref().map(|machine| &machine.own.participant);
            participant.is_some_and(|one| one.is_serving() && one.epoch() > epoch)
        };
        let answered = self.machines.iter().any(knows) && !self.mail.iter().any(is_out);
        answered.then_some((machine, step))
    }
}
