//! The membership of machines within one process: machines on simulated hosts, and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::{Configuration, Membership, MembershipError, Observed, Registration};
use crate::types::MachineId;

/// A membership in the memory of this process, shared by its clones. It never fails.
#[derive(Clone, Debug, Default)]
pub struct MemoryMembership {
    register: Arc<Mutex<Register>>,
    /// One-way delay of requests, and of answers.
    away: Duration,
}

#[derive(Debug, Default)]
struct Register {
    configuration: Option<(u64, Configuration)>,
    /// The leases and their ends.
    leases: BTreeMap<(MachineId, u64), (Registration, Instant)>,
    /// Lives that have been left out by the others.
    gone: BTreeSet<(MachineId, u64)>,
}

impl MemoryMembership {
    /// Sets a one-way delay: an answer arrives after twice that time.
    #[must_use]
    pub fn away(mut self, one_way: Duration) -> Self {
        self.away = one_way;
        self
    }

    /// Returns the current configuration, for observers outside the simulation. It does not include leases, which exist
    /// only in virtual time.
    pub fn configuration(&self) -> Option<Configuration> {
        let register = thread::lock(&self.register);
        register.configuration.as_ref().map(|(_, of)| of.clone())
    }

    /// Applies a request, with the delay of request and answer.
    fn ask<T>(&self, question: impl FnOnce(&mut Register, Instant) -> T) -> T {
        if !self.away.is_zero() {
            thread::sleep(self.away);
        }
        let mut register = thread::lock(&self.register);
        let now = thread::now();
        register.leases.retain(|_, (_, until)| *until > now);
        let answer = question(&mut register, now);
        drop(register);
        if !self.away.is_zero() {
            thread::sleep(self.away);
        }
        answer
    }
}

impl Register {
    fn observed(&self) -> Observed {
        Observed {
            configuration: self.configuration.clone(),
            alive: self.leases.values().map(|(one, _)| one.clone()).collect(),
        }
    }
}

impl Membership for MemoryMembership {
    fn beat(
        &mut self,
        registration: &Registration,
        lease: Duration,
    ) -> Result<Observed, MembershipError> {
        let life = (registration.machine, registration.incarnation);
        self.ask(|register, now| {
            if register.gone.contains(&life) {
                return Err(MembershipError {
                    why: format!(
                        "the other machines have continued without {}",
                        registration.machine
                    ),
                    is_final: true,
                });
            }
            let leased = (registration.clone(), now + lease);
            register.leases.insert(life, leased);
            Ok(register.observed())
        })
    }

    fn look(&mut self) -> Result<Observed, MembershipError> {
        Ok(self.ask(|register, _| register.observed()))
    }

    fn replace(
        &mut self,
        revision: u64,
        next: &Configuration,
        absent: &[(MachineId, u64)],
    ) -> Result<bool, MembershipError> {
        Ok(self.ask(|register, _| {
            let at = register.configuration.as_ref().map_or(0, |(at, _)| *at);
            let alive = |life: &(MachineId, u64)| register.leases.contains_key(life);
            if at != revision || absent.iter().any(alive) {
                return false;
            }
            register.gone.extend(absent);
            register.configuration = Some((revision + 1, next.clone()));
            true
        }))
    }
}
