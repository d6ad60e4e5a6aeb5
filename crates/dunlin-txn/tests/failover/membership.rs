//! The membership as one place in virtual time.
use dunlin_txn::membership::plan::Proposal;
use dunlin_txn::membership::{Configuration, Observed, Registration};
use dunlin_txn::MachineId;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Register {
    pub(crate) now: Option<(u64, Configuration)>,
    leases: BTreeMap<(MachineId, u64), (Registration, u64)>,
}

impl Register {
    pub(crate) fn beat(&mut self, me: Registration, now: u64, lease: u64) -> Observed {
        // Some memberships end the lease of a life that another goes on with, and some do not.
        if let Some(before) = me.succeeds.filter(|_| me.whole && me.incarnation % 2 == 0) {
            self.leases.remove(&(me.machine, before));
        }
        self.leases
            .insert((me.machine, me.incarnation), (me, now + lease));
        self.leases.retain(|_, (_, until)| *until > now);
        Observed {
            configuration: self.now.clone(),
            alive: self.leases.values().map(|(one, _)| one.clone()).collect(),
        }
    }

    pub(crate) fn has_lease(&self, life: (MachineId, u64), now: u64) -> bool {
        self.leases
            .get(&life)
            .is_some_and(|(_, until)| *until > now)
    }

    pub(crate) fn replace(&mut self, proposal: Proposal, now: u64) -> bool {
        let revision = self.now.as_ref().map_or(0, |(revision, _)| *revision);
        let alive = |life: &(MachineId, u64)| self.has_lease(*life, now);
        if revision != proposal.revision || proposal.absent.iter().any(alive) {
            return false;
        }
        self.now = Some((revision + 1, proposal.next));
        true
    }
}
