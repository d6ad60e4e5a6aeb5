//! What goes wrong. Each seed has some kinds of faults and not others, so that each kind has seeds to itself.
use super::{Cluster, Happening, BEAT, CLIENTS};
use crate::machine::{LEASE, MACHINES};
use crate::network::{client_node, Cut, Node, MEMBERSHIP};
use dunlin_txn::membership::{Member, Role};
use dunlin_txn::MachineId;

/// No fault begins later; all that were begun are over soon after.
pub(super) const FAULTS_UNTIL: u64 = 30_000;
/// How often a link that comes and goes does so.
const FLAPS: u32 = 12;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A machine is gone with its memory, and comes back without.
    Crash,
    /// A machine is stopped, also within a handler, and goes on.
    Stop,
    /// A machine does not reach the membership, or one of the others, or anybody.
    Cut,
    /// A machine and some of the clients reach each other and nobody else.
    Partition,
    /// Such a partition comes and goes, so that leases end and are given again.
    Flapping,
    /// Another epoch comes to the membership long after what its proposer has seen of it.
    LateProposals,
    /// A client dies.
    Client,
    /// All machines are gone at once, or some of them, and come back with what was on their disks. Other machines that
    /// crash come back with theirs then, too.
    Blackout,
}

impl Fault {
    const ALL: [Fault; 8] = [
        Fault::Crash,
        Fault::Stop,
        Fault::Cut,
        Fault::Partition,
        Fault::Flapping,
        Fault::LateProposals,
        Fault::Client,
        Fault::Blackout,
    ];

    /// Some of them, by chance.
    pub(crate) fn some(random: &mut fastrand::Rng) -> Vec<Fault> {
        let mut some: Vec<Fault> = Fault::ALL.into_iter().filter(|_| random.bool()).collect();
        if some.is_empty() {
            some.push(Fault::Crash);
        }
        some
    }
}

/// For how long proposals are on their way.
pub(super) fn proposal_delay(faults: &[Fault], random: &mut fastrand::Rng) -> u64 {
    match faults.contains(&Fault::LateProposals) {
        true => random.u64(LEASE / 8..LEASE / 2),
        false => 0,
    }
}

impl Cluster {
    /// For how long a machine is stopped that may be stopped here.
    pub(super) fn stop(&mut self, number: usize) -> u64 {
        if self.time.now > FAULTS_UNTIL || !self.may_fail(number) {
            return 0;
        }
        let pause = self.time.random.u64(10..3 * LEASE);
        self.machines[number].paused_until = self.time.now + pause;
        pause
    }

    pub(super) fn fault(&mut self) {
        if self.time.now > FAULTS_UNTIL {
            return;
        }
        let next = self.time.random.u64(500..9000);
        self.time.later(next, Happening::Fault);
        let kind = self.faults[self.time.random.usize(0..self.faults.len())];
        let number = self.time.random.u16(0..MACHINES);
        let at = usize::from(number);
        if kind == Fault::Client {
            self.run.faults += usize::from(self.dead.is_none());
            let client = self.time.random.u64(0..CLIENTS);
            self.dead.get_or_insert(client);
            return;
        }
        if kind == Fault::Blackout {
            return self.blackout();
        }
        if !self.machines[at].alive || !self.may_fail(at) {
            return;
        }
        self.run.faults += 1;
        match kind {
            Fault::Crash => {
                let back = self.time.random.u64(1..4 * LEASE);
                self.crash(at, back);
            }
            Fault::Stop => drop(self.stop(at)),
            Fault::Cut => {
                let others = self.others(number);
                let from = match self.time.random.u8(0..3) {
                    0 => (0..CLIENTS).map(client_node).chain(others).collect(),
                    1 => vec![MEMBERSHIP],
                    _ => vec![u64::from((number + 1) % MACHINES)],
                };
                self.cut(number, (Vec::new(), from), 1);
            }
            Fault::Partition => {
                let sides = self.sides(number);
                self.cut(number, sides, 1);
            }
            // Not two at once: no epoch would serve.
            Fault::Flapping if !self.flapping => {
                self.flapping = true;
                let sides = self.sides(number);
                self.cut(number, sides, FLAPS);
            }
            // It happens on the way.
            Fault::Flapping | Fault::LateProposals | Fault::Client | Fault::Blackout => {}
        }
    }

    /// A machine is gone with its memory, and comes back after a while.
    fn crash(&mut self, at: usize, back: u64) {
        let machine = &mut self.machines[at];
        machine.alive = false;
        if let Some(disk) = &machine.local.disk {
            disk.crash(&mut self.time.random);
        }
        self.time.later(back, Happening::Return(at as u16));
    }

    /// All machines that are there are gone, or each by chance, and come back about together, or not.
    fn blackout(&mut self) {
        self.run.faults += 1;
        let all = self.time.random.bool();
        // Together, or so that some are waited for, or in vain.
        let longest = [LEASE / 4, 4 * LEASE, 16 * LEASE][self.time.random.usize(0..3)];
        for at in 0..usize::from(MACHINES) {
            if self.machines[at].alive && (all || self.time.random.bool()) {
                let back = self.time.random.u64(1..longest);
                self.crash(at, back);
            }
        }
    }

    /// All that a machine reaches, but for clients.
    fn others(&self, number: u16) -> Vec<Node> {
        let machines = (0..MACHINES).filter(|other| *other != number);
        machines.map(u64::from).chain([MEMBERSHIP]).collect()
    }

    /// Who is with a machine, and who is not.
    fn sides(&mut self, number: u16) -> (Vec<Node>, Vec<Node>) {
        let (with, without): (Vec<u64>, Vec<u64>) =
            (0..CLIENTS).partition(|_| self.time.random.bool());
        let mut from = self.others(number);
        from.extend(without.into_iter().map(client_node));
        (with.into_iter().map(client_node).collect(), from)
    }

    fn cut(&mut self, number: u16, (with, from): (Vec<Node>, Vec<Node>), times: u32) {
        let machine = u64::from(number);
        let cut = Cut {
            machine,
            with,
            from,
        };
        self.flap(cut, times);
    }

    pub(super) fn flap(&mut self, cut: Cut, times: u32) {
        if times == 0 || self.time.now > FAULTS_UNTIL || !self.may_fail(cut.machine as usize) {
            self.flapping = false;
            return;
        }
        // One that comes and goes is gone for about a lease, and back for a beat or two.
        let (down, up) = match times {
            1 => (self.time.random.u64(100..3 * LEASE), 0),
            _ => (
                self.time.random.u64(LEASE * 3 / 4..LEASE * 5 / 4),
                self.time.random.u64(1..BEAT * 3 / 2),
            ),
        };
        self.links.cut(&cut);
        self.time.later(down, Happening::Heal(cut.clone()));
        self.time.later(down + up, Happening::Flap(cut, times - 1));
    }

    /// Whether it is stopped within a handler, and for how long.
    pub(super) fn within_handler(&mut self, number: usize) -> u64 {
        match self.faults.contains(&Fault::Stop) && self.time.random.u16(..) < 100 {
            true => self.stop(number),
            false => 0,
        }
    }

    /// Whether it may fail: another machine that has all that there is does not. What is only in memory is gone with
    /// the last that has it.
    fn may_fail(&self, number: usize) -> bool {
        let Some((_, now)) = &self.register.now else {
            return false;
        };
        let is_sound = |(id, member): (MachineId, &Member)| {
            let machine = &self.machines[usize::from(id.0)];
            member.role == Role::Whole
                && usize::from(id.0) != number
                && machine.alive
                && machine.incarnation == member.incarnation
                && machine.paused_until <= self.time.now
                && self
                    .register
                    .has_lease((id, member.incarnation), self.time.now)
                && !self.links.is_hurt(u64::from(id.0))
        };
        now.present().any(is_sound)
    }
}
