//! What is explored: transactions, the faults that may happen, and the steps of a state.
use crate::client::{Doing, Work};
use crate::invariants;
use crate::machine::MACHINES;
use crate::state::{Message, State};
use dunlin_txn::{Event, Key, MachineId, Mistakes, Placement, Protocol};
use stateright::{Model, Property};
use std::fmt;
use std::sync::Arc;

/// How many faults of each kind may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
pub(crate) struct Faults {
    /// A machine dies.
    pub(crate) crashes: u8,
    /// A machine loses its lease, and lives.
    pub(crate) cuts: u8,
    /// A machine that has died comes back, without anything.
    pub(crate) returns: u8,
    /// A client dies.
    pub(crate) kills: u8,
    /// A message comes twice.
    pub(crate) doubles: u8,
}

/// What is explored.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) protocol: Protocol,
    pub(crate) replicas: u16,
    pub(crate) works: Vec<Work>,
    pub(crate) faults: Faults,
    pub(crate) mistakes: Mistakes,
    pub(crate) keys: Arc<[Key]>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A client begins, with the n-th configuration that has served.
    Begin(usize, usize),
    /// A machine hears of the membership.
    Observe(usize),
    /// A client hears of it.
    Notice(usize),
    /// A client does not wait any more.
    Overdue(usize),
    /// A message arrives.
    Deliver(usize),
    /// Much time goes by at a machine, at which a dead client has a lock.
    Wait(usize),
    /// A request arrives at a handler that had looked at its machine's lease when there was one.
    Late(usize),
    /// A message arrives for the first of two times.
    Double(usize),
    Crash(usize),
    Cut(usize),
    Return(usize),
    Kill(usize),
}

impl Scenario {
    /// With two keys, whose primaries are the first machine and the second.
    pub(crate) fn new(
        protocol: Protocol,
        replicas: u16,
        works: &[Work],
        faults: Faults,
    ) -> Scenario {
        let placement = Placement::round(MACHINES, replicas).unwrap();
        let key = |machine| {
            let mut keys = (0..).map(|number| Key::number(0, number));
            keys.find(|key| placement.primary(key) == MachineId(machine))
                .unwrap()
        };
        Scenario {
            protocol,
            replicas,
            works: works.to_vec(),
            faults,
            mistakes: Mistakes::NONE,
            keys: [key(0), key(1)].into(),
        }
    }

    pub(crate) fn doing(&self, client: usize, asked: bool) -> Doing {
        Doing {
            work: self.works[client],
            keys: Arc::clone(&self.keys),
            asked,
        }
    }

    /// Steps that are no faults.
    fn ordinary(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in state.clients.iter().enumerate() {
            if client.coordinator.is_none() && !client.dead {
                actions.extend((0..state.served.len()).map(|view| Action::Begin(number, view)));
            }
            let now = state.now();
            if client.running().is_some() && now.serving && now.epoch > client.noticed {
                actions.push(Action::Notice(number));
            }
            if state.is_overdue(number).is_some() {
                actions.push(Action::Overdue(number));
            }
        }
        for (number, place) in state.machines.iter().enumerate() {
            if state.may_observe(number) {
                actions.push(Action::Observe(number));
            }
            let waits = place.as_ref().is_some_and(|machine| {
                let participant = &machine.own.participant;
                let of_dead = |id: u64| state.clients[id as usize].dead;
                let mut holders = participant.holders().into_iter();
                machine.clock.is_zero()
                    && participant.is_serving()
                    && holders.any(|(id, _)| of_dead(id.coordinator))
            });
            if waits {
                actions.push(Action::Wait(number));
            }
        }
        actions.extend((0..state.mail.len()).map(Action::Deliver));
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let left = state.left;
        for (number, place) in state.machines.iter().enumerate() {
            let Some(machine) = place else {
                if left.returns > 0 {
                    actions.push(Action::Return(number));
                }
                continue;
            };
            if left.crashes > 0 && self.is_spared(state, number) {
                actions.push(Action::Crash(number));
            }
            if left.cuts > 0 && machine.leased && self.is_spared(state, number) {
                actions.push(Action::Cut(number));
            }
            if machine.looked {
                let is_request = |at: &usize| match &*state.mail[*at] {
                    Message::Request(to, ..) => usize::from(to.0) == number,
                    _ => false,
                };
                let requests = (0..state.mail.len()).filter(is_request);
                actions.extend(requests.map(Action::Late));
            }
        }
        if left.doubles > 0 {
            let doubles = |at: &usize| {
                matches!(
                    &*state.mail[*at],
                    Message::Request(..) | Message::Ask { .. }
                )
            };
            actions.extend((0..state.mail.len()).filter(doubles).map(Action::Double));
        }
        if left.kills > 0 {
            let clients = state.clients.iter().enumerate();
            let running = clients.filter(|(_, client)| client.running().is_some());
            actions.extend(running.map(|(number, _)| Action::Kill(number)));
        }
    }

    /// Whether another machine has everything: what is only in memory is gone with the last that has it.
    fn is_spared(&self, state: &State, number: usize) -> bool {
        let others = state
            .machines
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != number);
        let mut others = others.filter_map(|(_, place)| place.as_ref());
        others.any(|machine| machine.leased && machine.is_whole_in(state.now()))
    }

    /// Whether nothing happens any more but faults.
    pub(crate) fn is_idle(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.ordinary(state, &mut actions);
        !actions
            .into_iter()
            .any(|action| self.next_state(state, action).is_some())
    }
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.ordinary(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Deliver(at) => return state.deliver(at, false, self),
            Action::Late(at) => return state.deliver(at, true, self),
            Action::Double(at) => return state.double(at, self),
            _ => {}
        }
        let mut next = state.clone();
        match action {
            Action::Begin(client, view) => next.begin(client, view, self),
            Action::Observe(machine) => next.observe(machine),
            Action::Notice(client) => next.notice(client, self),
            Action::Overdue(client) => {
                let (machine, step) = state.is_overdue(client)?;
                next.event(client, Event::Overdue { machine, step }, self);
            }
            Action::Wait(machine) => next.wait(machine),
            Action::Crash(machine) => {
                next.left.crashes -= 1;
                next.end(machine);
            }
            Action::Cut(machine) => {
                next.left.cuts -= 1;
                next.cut(machine);
            }
            Action::Return(machine) => {
                next.left.returns -= 1;
                next.come_back(machine, self);
            }
            Action::Kill(client) => {
                next.left.kills -= 1;
                next.kill(client);
            }
            Action::Deliver(_) | Action::Late(_) | Action::Double(_) => {}
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Scenario>> {
        vec![
            Property::always(
                "what was acknowledged stays",
                invariants::acknowledged_stays,
            ),
            Property::always(
                "machines of one epoch answer",
                invariants::one_epoch_answers,
            ),
            Property::always(
                "what committed is serializable",
                invariants::is_serializable,
            ),
            Property::always("it ends well", |scenario, state| {
                invariants::wrong_at_the_end(scenario, state).is_none()
            }),
        ]
    }
}

impl fmt::Debug for State {
    /// Short: who is there, and what is on its way.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for machine in self.machines.iter().flatten() {
            let participant = &machine.own.participant;
            let (id, epoch) = (machine.own.me, participant.epoch());
            write!(
                f,
                "[{id} {epoch} serves: {} leased: {}] ",
                participant.is_serving(),
                machine.leased
            )?;
        }
        for client in &self.clients {
            write!(f, "{:?} ", client.told)?;
        }
        write!(f, "{} messages", self.mail.len())
    }
}
