//! The agent of a machine: decides what the machine must do to stay a member and to begin epochs.

use std::time::Duration;

use super::copying::Copying;
use super::epoch::Beginning;
use super::pages::Pages;
use super::suspicion::Suspicion;
use super::Local;
use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::plan::{self, Proposal};
use crate::membership::{Configuration, Epoch, Member, Observed, Registration, Role};
use crate::mistakes::{Mistake, Mistakes};
use crate::types::MachineId;

/// Number of lease times for which a machine that comes back from its disk waits for others that may do so, too.
const RETURN_LEASES: u32 = 2;

/// Time limits.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Timing {
    /// A machine that has not renewed its lease for this long may be replaced.
    pub lease: Duration,
    /// A machine stops serving this much earlier by its own clock: the maximum difference of clocks within a lease.
    pub margin: Duration,
    /// A coordinator that holds locks and takes no step for this long is assumed to be dead.
    pub patience: Duration,
    /// An unanswered request to another machine is repeated after this time.
    pub again: Duration,
}

/// What the machine has to do. An order may fail: it is then given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Propose a configuration to the membership.
    Replace(Proposal),
    /// Send a request to a machine, in this life of it, and pass the answer to [`Agent::answered`].
    Ask {
        /// The machine.
        machine: MachineId,
        /// Its incarnation.
        incarnation: u64,
        /// Its address.
        address: String,
        /// The request.
        request: PeerRequest,
    },
}

/// The condition of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is a member, or waits to become one.
    Well,
    /// It has been left out by the others: this life of it is over.
    Fenced,
}

/// Keeps one life of a machine a member. Times are relative to any start that all calls share.
#[derive(Debug, Hash, Clone)]
pub struct Agent {
    me: Registration,
    /// The random number of the database, should this machine begin one.
    database: u64,
    machines: u16,
    replicas: u16,
    timing: Timing,
    pub(super) observed: Observed,
    lease_until: Duration,
    known_once: bool,
    /// The last epoch that others have begun with it.
    pub(super) sealed: Epoch,
    /// An epoch is to begin from state that this life has missed: it had been left out in between.
    pub(super) missed: bool,
    loaded: bool,
    /// An epoch has served with this life as a member.
    has_served: bool,
    beginning: Option<Beginning>,
    /// What is to be installed, until the epoch serves.
    pub(super) pages: Option<Pages>,
    copying: Option<Copying>,
    suspicion: Suspicion,
    /// Since when a change has been needed that nobody has made yet, and in which epoch.
    wanted_since: Option<(Epoch, Duration)>,
    mistakes: Mistakes,
}

impl Agent {
    /// Creates the agent of this life of a machine, one of `machines`; whole if it has loaded the database's initial
    /// contents, or goes on from its own log.
    pub fn new(
        me: Registration,
        machines: u16,
        replicas: u16,
        timing: Timing,
        database: u64,
    ) -> Agent {
        Agent {
            loaded: me.whole,
            me,
            database,
            machines,
            replicas,
            timing,
            observed: Observed::default(),
            lease_until: Duration::ZERO,
            known_once: false,
            sealed: Epoch::FIXED,
            missed: false,
            has_served: false,
            beginning: None,
            pages: None,
            copying: None,
            suspicion: Suspicion::default(),
            wanted_since: None,
            mistakes: Mistakes::NONE,
        }
    }

    /// Enables deliberate mistakes.
    #[cfg(feature = "mistakes")]
    pub fn make(&mut self, mistakes: Mistakes) {
        self.mistakes = mistakes;
    }

    /// What the machine registers.
    pub fn registration(&self) -> &Registration {
        &self.me
    }

    /// The latest configuration that it has seen.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.observed.configuration.as_ref().map(|(_, now)| now)
    }

    /// Until when it may serve.
    pub fn lease_until(&self) -> Duration {
        match self.mistakes.has(Mistake::LeaseIgnored) {
            true => Duration::MAX,
            false => self.lease_until,
        }
    }

    /// Handles the state returned by the membership for a lease requested at `asked`.
    pub fn observed(&mut self, asked: Duration, observed: Observed) -> Condition {
        let older = |(revision, _): &(u64, Configuration)| {
            let known = self.observed.configuration.as_ref();
            known.is_some_and(|(known, _)| revision < known)
        };
        if observed.configuration.as_ref().is_some_and(older) {
            return Condition::Well;
        }
        self.observed = observed;
        if self.missed {
            return Condition::Fenced;
        }
        let Some(now) = self.configuration() else {
            return Condition::Well;
        };
        let mine = now.member(self.me.machine);
        let mine = mine.filter(|mine| mine.incarnation == self.me.incarnation);
        let role = mine.map(|mine| mine.role);
        let may_succeed = self.me.may_succeed(now);
        self.known_once |= role.is_some();
        if role.is_some_and(|role| role != Role::Out) {
            // The membership granted the lease before it returned a configuration with this member, so whoever leaves
            // it out has to wait.
            let until = asked + self.timing.lease.saturating_sub(self.timing.margin);
            self.lease_until = self.lease_until.max(until);
            return Condition::Well;
        }
        if may_succeed {
            // It is a member as soon as the configuration says so; the life before it may still have a lease.
            return Condition::Well;
        }
        // If the others have begun without it, the loaded contents are out of date.
        let was_member = self.known_once || self.loaded || self.sealed > Epoch::FIXED;
        let is_later = self
            .configuration()
            .is_some_and(|of| of.epoch >= self.sealed);
        match was_member && is_later {
            true => Condition::Fenced,
            false => Condition::Well,
        }
    }

    /// Returns what has to be done now.
    pub fn poll(&mut self, now: Duration, local: &mut dyn Local) -> Vec<Order> {
        let mut orders = Vec::new();
        let Some((_, configuration)) = self.observed.configuration.clone() else {
            let (me, machines, replicas) = (self.me.machine, self.machines, self.replicas);
            let first = plan::first(&self.observed, self.database, me, machines, replicas);
            orders.extend(first.map(Order::Replace));
            return orders;
        };
        let mine = configuration.member(self.me.machine);
        let Some(mine) = mine.filter(|mine| mine.incarnation == self.me.incarnation) else {
            if self.me.may_succeed(&configuration) {
                self.change(&configuration, now, local, &mut orders);
            }
            return orders;
        };
        if configuration.serving && mine.role != Role::Out {
            self.serve(&configuration, mine.role, local);
        }
        self.begin(&configuration, now, local, &mut orders);
        self.copy(&configuration, now, local, &mut orders);
        self.change(&configuration, now, local, &mut orders);
        orders
    }

    fn serve(&mut self, of: &Configuration, role: Role, local: &mut dyn Local) {
        self.pages = None;
        if local.standing() != (of.epoch, true) {
            let _ = local.serve(of);
            self.has_served = true;
            self.suspicion.forget();
        }
        let mine = role == Role::Learner && !self.me.whole;
        if role == Role::Whole {
            local.learned();
        } else if mine && self.copying.as_ref().is_none_or(|c| c.epoch() != of.epoch) {
            self.copying = Some(Copying::new(of, self.me.machine));
        }
    }

    /// Continues the beginning of an epoch, if this machine manages it.
    fn begin(
        &mut self,
        of: &Configuration,
        now: Duration,
        local: &mut dyn Local,
        orders: &mut Vec<Order>,
    ) {
        if of.serving || of.manager != self.me.machine {
            self.beginning = None;
            return;
        }
        if self.beginning.as_ref().is_none_or(|b| b.epoch != of.epoch) {
            self.beginning = Some(Beginning::new(of, self.mistakes));
        }
        // A request to the machine itself is answered at once, and may be followed by the next one.
        while let Some(beginning) = &mut self.beginning {
            let asks = beginning.asks((now, self.timing.again), local.page_bytes());
            if asks.is_empty() {
                break;
            }
            for (machine, request) in asks {
                self.ask(of, machine, request, local, orders);
            }
        }
        let installed = self.beginning.as_ref().is_some_and(Beginning::is_installed);
        // The others answered only when everything was on their disks; for the machine itself this is checked here.
        if installed && local.is_durable() {
            let revision = self.observed.configuration.as_ref().map_or(0, |(r, _)| *r);
            let mut next = of.clone();
            next.serving = true;
            orders.push(Order::Replace(Proposal {
                revision,
                next,
                absent: Vec::new(),
            }));
        }
    }

    fn copy(
        &mut self,
        of: &Configuration,
        now: Duration,
        local: &mut dyn Local,
        orders: &mut Vec<Order>,
    ) {
        let Some(copying) = &mut self.copying else {
            return;
        };
        if copying.is_over() && !local.is_durable() {
            return;
        }
        if copying.is_over() || self.mistakes.has(Mistake::CopyLeftOut) {
            self.copying = None;
            self.me.whole = true;
        } else if of.serving && of.epoch == copying.epoch() {
            for (machine, request) in copying.asks(now, self.timing.again) {
                self.ask(of, machine, request, local, orders);
            }
        }
    }

    /// Proposes the next configuration. The first of the machines does so at once, each other one after a further
    /// delay.
    fn change(
        &mut self,
        of: &Configuration,
        now: Duration,
        local: &mut dyn Local,
        orders: &mut Vec<Order>,
    ) {
        let serves = local.standing() == (of.epoch, true);
        let stuck = serves
            && self
                .suspicion
                .look(local.holders(), now, self.timing.patience);
        let anew = stuck || (serves && local.is_crowded());
        let mut proposal = plan::next(&self.observed, self.me.machine, anew);
        if self.mistakes.has(Mistake::AbsenceNotAwaited) {
            proposal = proposal.map(|proposal| Proposal {
                absent: Vec::new(),
                ..proposal
            });
        }
        let Some(proposal) = proposal else {
            self.wanted_since = None;
            return;
        };
        let observed = &self.observed;
        let whole = of.present().filter(|(machine, member)| {
            let is_there = observed.is_alive(*machine, member.incarnation)
                || observed.successor(*machine, member.incarnation).is_some();
            member.role == Role::Whole && is_there
        });
        let Some(rank) = whole.map(|(m, _)| m).position(|m| m == self.me.machine) else {
            return;
        };
        // A machine that comes back from its disk is seldom the only one: until an epoch serves, it waits before it
        // goes on without others, which would have to copy then, and as long as these report that they are reading
        // their logs.
        let leaves_out = |(machine, _): &(MachineId, &Member)| {
            let member = proposal.next.member(*machine);
            member.is_none_or(|member| member.role == Role::Out)
        };
        let left_out: Vec<_> = of.present().filter(leaves_out).collect();
        let waits = !left_out.is_empty() && self.me.succeeds.is_some() && !self.has_served;
        let returns = |(machine, member): &(MachineId, &Member)| {
            observed.is_returning(*machine, member.incarnation)
        };
        let is_awaited = waits && left_out.iter().any(returns);
        let since = match self.wanted_since {
            Some((epoch, since)) if epoch == of.epoch && !is_awaited => since,
            _ => now,
        };
        let patience = match waits {
            true => self.timing.lease * RETURN_LEASES,
            false => Duration::ZERO,
        };
        self.wanted_since = Some((of.epoch, since));
        if now >= since + patience + self.timing.again * rank as u32 {
            orders.push(Order::Replace(proposal));
        }
    }

    fn ask(
        &mut self,
        of: &Configuration,
        machine: MachineId,
        request: PeerRequest,
        local: &mut dyn Local,
        orders: &mut Vec<Order>,
    ) {
        let Some(member) = of.member(machine) else {
            return;
        };
        if machine == self.me.machine {
            let answer = self.answer(local, &request);
            self.answered(machine, &request, answer, local);
        } else {
            orders.push(Order::Ask {
                machine,
                incarnation: member.incarnation,
                address: member.address.clone(),
                request,
            });
        }
    }

    /// Handles the answer to a request.
    pub fn answered(
        &mut self,
        from: MachineId,
        request: &PeerRequest,
        answer: PeerAnswer,
        local: &mut dyn Local,
    ) {
        if let PeerRequest::Copy { epoch, cursor, .. } = request {
            let items = self
                .copying
                .as_mut()
                .and_then(|copying| copying.answered(from, (*epoch, *cursor), answer));
            if items.is_some_and(|items| !local.adopt(&items)) {
                // Without space it cannot become whole; it starts again with the next epoch.
                self.copying = None;
            }
            return;
        }
        let beginning = self.beginning.as_mut();
        if let Some(beginning) = beginning.filter(|b| b.epoch == request.epoch()) {
            beginning.answered(from, request, answer);
        }
    }
}
