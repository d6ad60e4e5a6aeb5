//! Computes the next configuration from the current one and the live machines.

use super::{Configuration, Epoch, Member, Observed, Registration, Role};
use crate::types::MachineId;

/// A configuration to be proposed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// The revision that it replaces.
    pub revision: u64,
    /// The proposed configuration.
    pub next: Configuration,
    /// The lives of machines that must have no lease.
    pub absent: Vec<(MachineId, u64)>,
}

/// The first configuration of a database, once all of its machines are present with the initial contents.
pub fn first(
    observed: &Observed,
    database: u64,
    manager: MachineId,
    machines: u16,
    replicas: u16,
) -> Option<Proposal> {
    let member = |number: u16| {
        let is = |one: &&Registration| one.machine == MachineId(number) && one.whole;
        let found = observed.alive.iter().find(is)?;
        Some(Member {
            incarnation: found.incarnation,
            address: found.address.clone(),
            role: Role::Whole,
        })
    };
    let members: Option<Vec<Member>> = (0..machines).map(member).collect();
    Some(Proposal {
        revision: 0,
        next: Configuration {
            database,
            epoch: Epoch::FIRST,
            base: Epoch::FIXED,
            serving: true,
            manager,
            replicas,
            members: members?,
        },
        absent: Vec::new(),
    })
}

/// The configuration that should follow, if any: without machines that have no lease, and with new ones; with `anew`,
/// also if all machines stay. Every shard must keep a whole copy, or nothing changes.
///
/// A whole machine whose next life continues from its disk stays: it was away and has lost nothing. This also holds
/// while no epoch serves, since it may be the only machine that has this data.
pub fn next(observed: &Observed, manager: MachineId, anew: bool) -> Option<Proposal> {
    let (revision, now) = observed.configuration.as_ref()?;
    let mut next = now.clone();
    let mut absent = Vec::new();
    for (number, member) in next.members.iter_mut().enumerate() {
        let machine = MachineId(number as u16);
        if member.role == Role::Out || observed.is_alive(machine, member.incarnation) {
            continue;
        }
        absent.push((machine, member.incarnation));
        match observed.successor(machine, member.incarnation) {
            Some(successor) if member.role == Role::Whole => {
                member.incarnation = successor.incarnation;
                member.address.clone_from(&successor.address);
            }
            _ => member.role = Role::Out,
        }
    }
    let mut changed = !absent.is_empty() || (anew && now.serving);
    // New machines wait until the epoch serves: otherwise a recovery that is restarted again and again would never end.
    for registration in observed.alive.iter().filter(|_| now.serving) {
        let Some(member) = next.members.get_mut(usize::from(registration.machine.0)) else {
            continue;
        };
        let same = member.incarnation == registration.incarnation;
        if member.role == Role::Learner && same && registration.whole {
            member.role = Role::Whole;
            changed = true;
        } else if member.role == Role::Out && !same && registration.succeeds.is_none() {
            // A machine that continues from its disk, and is behind, must first start anew.
            *member = Member {
                incarnation: registration.incarnation,
                address: registration.address.clone(),
                role: Role::Learner,
            };
            changed = true;
        }
    }
    next.epoch = now.epoch.next();
    next.base = match now.serving {
        true => now.epoch,
        false => now.base,
    };
    next.serving = false;
    next.manager = manager;
    let possible = changed && next.placement().is_ok();
    possible.then_some(Proposal {
        revision: *revision,
        next,
        absent,
    })
}
