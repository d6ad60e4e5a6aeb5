//! What goes wrong.
use super::{Cluster, Happening, CLIENTS};
use crate::machine::{LEASE, MACHINES};
use crate::network::{client_node, Node, MEMBERSHIP};
use dunlin_txn::membership::{Member, Role};
use dunlin_txn::MachineId;

/// No fault begins later; all that were begun are over soon after.
pub(super) const FAULTS_UNTIL: u64 = 30_000;

impl Cluster {
    pub(super) fn stop(&mut self, number: usize) -> u64 {
        if self.now > FAULTS_UNTIL || !self.may_fail(number) {
            return 0;
        }
        let pause = self.random.u64(10..3 * LEASE);
        self.machines[number].paused_until = self.now + pause;
        pause
    }

    pub(super) fn fault(&mut self) {
        if self.now > FAULTS_UNTIL {
            return;
        }
        let next = self.random.u64(500..9000);
        self.later(next, Happening::Fault);
        self.run.faults += 1;
        let number = self.random.u16(0..MACHINES);
        match self.random.u8(0..6) {
            _ if !self.machines[usize::from(number)].alive
                || !self.may_fail(usize::from(number)) => {}
            0 | 1 => {
                self.machines[usize::from(number)].alive = false;
                let back = self.random.u64(1..4 * LEASE);
                self.later(back, Happening::Return(number));
            }
            2 => drop(self.stop(usize::from(number))),
            3 | 4 => {
                // From all, from the membership, or from one other machine.
                let others: Vec<Node> = match self.random.u8(0..3) {
                    0 => (0..4)
                        .map(client_node)
                        .chain([MEMBERSHIP, 0, 1, 2])
                        .collect(),
                    1 => vec![MEMBERSHIP],
                    _ => vec![u64::from((number + 1) % MACHINES)],
                };
                let me = u64::from(number);
                self.cut.extend(
                    others
                        .into_iter()
                        .map(|other| (me.min(other), me.max(other))),
                );
                let heal = self.random.u64(100..3 * LEASE);
                self.later(heal, Happening::Heal);
            }
            _ if self.dead.is_none() => self.dead = Some(self.random.u64(0..CLIENTS)),
            _ => {}
        }
    }

    /// Whether it may fail: another machine that has all that there is does not. What is only in memory is gone with the
    /// last that has it.
    fn may_fail(&self, number: usize) -> bool {
        let Some((_, now)) = &self.register.now else {
            return false;
        };
        let is_sound = |(id, member): (MachineId, &Member)| {
            let at = u64::from(id.0);
            let machine = &self.machines[usize::from(id.0)];
            member.role == Role::Whole
                && usize::from(id.0) != number
                && machine.alive
                && machine.incarnation == member.incarnation
                && machine.paused_until <= self.now
                && self.register.has_lease((id, member.incarnation), self.now)
                && !self
                    .cut
                    .iter()
                    .any(|(one, other)| *one == at || *other == at)
        };
        now.present().any(is_sound)
    }
}
