//! What must be so in every state, and what in those where nothing more happens.
use crate::client::{Client, Told};
use crate::machine::Machine;
use crate::part::Part;
use crate::state::State;
use crate::Scenario;
use dunlin_txn::checker::History;
use dunlin_txn::wire::{Body, Fate, Request, Response};
use dunlin_txn::{Committed, Store, TransactionId, Value};
use std::collections::BTreeSet;

fn machines(state: &State) -> impl Iterator<Item = &Part<Machine>> {
    state.machines.iter().flatten()
}

fn committed(state: &State) -> impl Iterator<Item = (usize, &Client, &Committed)> {
    let clients = state.clients.iter().enumerate();
    clients.filter_map(|(number, client)| match &client.told {
        Some(Told::Committed(committed)) => Some((number, &**client, committed)),
        _ => None,
    })
}

/// Whether a whole machine has what was reported as committed: all copies of its own epoch, and of all later ones.
pub(crate) fn acknowledged_stays(_: &Scenario, state: &State) -> bool {
    committed(state).all(|(_, client, committed)| {
        let Some(epoch) = client.coordinator.as_ref().map(|one| one.epoch()) else {
            return true;
        };
        let serving = machines(state).filter(|machine| {
            let participant = &machine.own.participant;
            let of = state
                .served
                .iter()
                .find(|of| of.epoch == participant.epoch());
            let is_whole = of.is_some_and(|of| machine.is_whole_in(of));
            let answers = participant.is_serving() && machine.has_lease();
            answers && participant.epoch() >= epoch && is_whole
        });
        serving.into_iter().all(|machine| {
            let of = state
                .served
                .iter()
                .find(|of| of.epoch == machine.own.participant.epoch());
            let placement = of.expect("it serves").placement().expect("it serves");
            committed.writes.iter().all(|update| {
                let me = machine.own.me;
                let key = &update.key;
                if placement.primary(key) != me && !placement.backups(key).contains(&me) {
                    return true;
                }
                let found = machine.own.participant.store().read(key);
                found.version > update.version
                    || (found.version == update.version && found.value == update.value)
            })
        })
    })
}

/// Whether all machines that answer coordinators are of one epoch, and so agree about who is a key's primary.
pub(crate) fn one_epoch_answers(_: &Scenario, state: &State) -> bool {
    let answering = machines(state)
        .filter(|machine| machine.has_lease() && machine.own.participant.is_serving());
    let epochs: BTreeSet<_> = answering.map(|m| m.own.participant.epoch()).collect();
    epochs.len() <= 1
}

/// Whether what was reported as committed is serializable, and in an order in which nobody who began after a report
/// comes before it.
pub(crate) fn is_serializable(scenario: &Scenario, state: &State) -> bool {
    let mut history = History::default();
    for key in scenario.keys.iter() {
        let zero = Value::from(&0u64.to_le_bytes()[..]);
        history.initial.insert(key.clone(), zero);
    }
    for (number, client, one) in committed(state) {
        if let Some(coordinator) = &client.coordinator {
            history.committed.insert(coordinator.id(), one.clone());
        }
        let earlier = committed(state).filter(|(other, ..)| client.after & (1 << other) != 0);
        for (other, _, before) in earlier {
            if other != number && precedes(one, before) {
                return false;
            }
        }
    }
    if history.committed.len() < 2 {
        return true;
    }
    // What a transaction that was not reported has done may be read too.
    for client in &state.clients {
        if let Some(coordinator) = client.coordinator.as_ref().filter(|one| one.is_decided()) {
            if !history.committed.contains_key(&coordinator.id()) {
                history
                    .unknown
                    .insert(coordinator.id(), coordinator.footprint());
            }
        }
    }
    history.check().is_empty()
}

/// Whether the first has read or changed something that the second changed later.
fn precedes(first: &Committed, second: &Committed) -> bool {
    second.writes.iter().any(|update| {
        let read = first.reads.iter().filter(|(key, ..)| *key == update.key);
        let wrote = first.writes.iter().filter(|one| one.key == update.key);
        read.map(|(_, version, _)| *version)
            .any(|version| version < update.version)
            || wrote
                .map(|one| one.version)
                .any(|version| version < update.version)
    })
}

/// What is wrong with a state in which nothing more happens; nothing in others.
pub(crate) fn wrong_at_the_end(scenario: &Scenario, state: &State) -> Option<&'static str> {
    if !scenario.is_idle(state) {
        return None;
    }
    if !state.now().serving {
        return Some("the last epoch does not serve");
    }
    if !state.clients.iter().all(|client| client.is_over()) {
        return Some("a transaction does not end");
    }
    let members = || machines(state).filter(|machine| machine.is_member_of(state.now()));
    for machine in members() {
        let participant = &machine.own.participant;
        if participant.epoch() != state.now().epoch || !participant.is_serving() {
            return Some("a member does not serve");
        }
        if participant.store().owners().next().is_some() {
            return Some("a lock is left");
        }
        if !machine.role_is_whole() {
            return Some("a learner does not become whole");
        }
    }
    let placement = state.now().placement().expect("it serves");
    let mut values = Vec::new();
    for key in scenario.keys.iter() {
        let keeps = |machine: &&Part<Machine>| {
            let me = machine.own.me;
            placement.primary(key) == me || placement.backups(key).contains(&me)
        };
        let mut found = members().filter(keeps).map(|machine| {
            let found = machine.own.participant.store().read(key);
            (found.value, found.version)
        });
        let first = found.next();
        if found.any(|other| Some(&other) != first.as_ref()) {
            return Some("copies differ");
        }
        let value = first.and_then(|(value, _)| value);
        values
            .push(value.map(|value| u64::from_le_bytes(value[..].try_into().unwrap_or_default())));
    }
    let fates: Vec<Result<Option<Fate>, &str>> = (0..state.clients.len())
        .map(|number| fate(state, number))
        .collect();
    if let Some(Err(why)) = fates.iter().find(|fate| fate.is_err()) {
        return Some(why);
    }
    let fates: Vec<Option<Fate>> = fates.into_iter().map(Result::unwrap_or_default).collect();
    let is_right = orders(state.clients.len()).into_iter().any(|order| {
        let (here, not) = order;
        let agrees = |number: &usize, fate| fates[*number].is_none_or(|known| known == fate);
        let mut serial = vec![0; scenario.keys.len()];
        here.iter()
            .for_each(|number| scenario.works[*number].apply(&mut serial));
        here.iter().all(|number| agrees(number, Fate::Committed))
            && not.iter().all(|number| agrees(number, Fate::Aborted))
            && values
                .iter()
                .zip(&serial)
                .all(|(found, serial)| *found == Some(*serial))
    });
    (!is_right).then_some("no serial order of what committed gives what is there")
}

/// Every order of every part of the transactions, and those that are left out.
fn orders(count: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut orders = vec![(Vec::new(), (0..count).collect::<Vec<_>>())];
    let mut at = 0;
    while at < orders.len() {
        let (here, not) = orders[at].clone();
        for next in &not {
            let more = here.iter().copied().chain([*next]).collect();
            let fewer = not.iter().copied().filter(|other| other != next).collect();
            orders.push((more, fewer));
        }
        at += 1;
    }
    orders
}

/// What has become of a client's transaction, as its application and the machines say, if anybody does.
fn fate(state: &State, number: usize) -> Result<Option<Fate>, &'static str> {
    let client = &state.clients[number];
    let mut known = match client.told {
        Some(Told::Committed(_)) => Some(Fate::Committed),
        Some(Told::Aborted) => Some(Fate::Aborted),
        Some(Told::Unknown) | None => None,
    };
    let Some(coordinator) = &client.coordinator else {
        return Ok(known);
    };
    let transaction = TransactionId { ..coordinator.id() };
    let request = Request {
        transaction,
        step: u16::MAX,
        body: Body::Outcome,
    };
    // Who changes nothing leaves no trace.
    let writes = !coordinator.footprint().writes.is_empty();
    for machine in machines(state).filter(|_| writes) {
        let mut machine = machine.copied();
        let answer = machine
            .own
            .participant
            .handle(&request, coordinator.epoch());
        let Response::Outcome(fate @ (Fate::Committed | Fate::Aborted)) = answer.response else {
            continue;
        };
        if known.is_some_and(|known| known != fate) {
            return Err("a transaction is both committed and undone");
        }
        known = Some(fate);
    }
    Ok(known)
}
