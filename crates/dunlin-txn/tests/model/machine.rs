//! A machine: the agent and the participant of the crate, and what the model says of its lease.
use crate::part::Part;
use dunlin_txn::membership::{Configuration, Epoch, Record, Registration};
use dunlin_txn::recovery::{page, Agent, Local, Timing};
use dunlin_txn::{
    Key, MachineId, MemoryStore, Mistakes, NotInstalled, OtherEpoch, Participant, Placement, Store,
    TransactionId, Update, Value,
};
use std::hash::{Hash, Hasher};
use std::time::Duration;

pub(crate) const MACHINES: u16 = 3;

/// Longer than no time at all, and shorter than a step of [`Machine::clock`].
const PATIENCE: Duration = Duration::from_secs(5);
/// The step of a machine's clock.
pub(crate) const LATER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) agent: Agent,
    pub(crate) own: Own,
    pub(crate) incarnation: u64,
    /// It has a lease by its own clock.
    pub(crate) leased: bool,
    /// A handler has looked at the lease before it ended, and goes on now.
    pub(crate) looked: bool,
    /// The digest of what the membership has told it last.
    pub(crate) saw: u64,
    /// It stands still, but where the model says that much time goes by.
    pub(crate) clock: Duration,
}

#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) participant: Participant<MemoryStore>,
    pub(crate) me: MachineId,
}

impl Machine {
    pub(crate) fn new(
        me: MachineId,
        incarnation: u64,
        replicas: u16,
        mistakes: Mistakes,
        load: Option<&[Key]>,
    ) -> Machine {
        let placement = Placement::round(MACHINES, replicas).unwrap();
        let mut store = MemoryStore::new(&placement, 1, 8);
        for key in load.unwrap_or_default() {
            let zero = Value::from(&0u64.to_le_bytes()[..]);
            store.load(key.clone(), zero).unwrap();
        }
        let mut participant = Participant::new(store, 8).recovering(load.is_some());
        participant.make(mistakes);
        let registration = Registration {
            machine: me,
            incarnation,
            address: String::new(),
            whole: load.is_some(),
            succeeds: None,
        };
        let timing = Timing {
            lease: LATER,
            margin: Duration::ZERO,
            patience: PATIENCE,
            again: PATIENCE,
        };
        let mut agent = Agent::new(registration, MACHINES, replicas, timing, 9);
        agent.make(mistakes);
        Machine {
            agent,
            own: Own { participant, me },
            incarnation,
            leased: false,
            looked: false,
            saw: 0,
            clock: Duration::ZERO,
        }
    }

    pub(crate) fn copied(&self) -> Machine {
        Machine {
            agent: self.agent.clone(),
            own: Own {
                participant: self.own.participant.copied().unwrap(),
                me: self.own.me,
            },
            ..*self
        }
    }

    /// Whether its handlers may answer coordinators.
    pub(crate) fn has_lease(&self) -> bool {
        self.leased || self.agent.lease_until() == Duration::MAX
    }

    pub(crate) fn role_is_whole(&self) -> bool {
        self.agent
            .configuration()
            .is_some_and(|of| self.is_whole_in(of))
    }

    pub(crate) fn is_whole_in(&self, of: &Configuration) -> bool {
        use dunlin_txn::membership::Role;
        let mine = of.member(self.own.me);
        mine.is_some_and(|one| one.incarnation == self.incarnation && one.role == Role::Whole)
    }

    pub(crate) fn is_member_of(&self, of: &Configuration) -> bool {
        let mut present = of.present();
        present.any(|(machine, one)| machine == self.own.me && one.incarnation == self.incarnation)
    }
}

impl Hash for Machine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.agent, &self.own.participant, self.incarnation).hash(state);
        (self.leased, self.looked, self.saw, self.clock).hash(state);
    }
}

pub(crate) type Place = Option<Part<Machine>>;

fn keeps(of: &Configuration, me: MachineId, key: &Key) -> bool {
    let placement = of.placement().unwrap();
    placement.primary(key) == me || placement.backups(key).contains(&me)
}

impl Local for Own {
    fn seal(
        &mut self,
        epoch: Epoch,
        base: Epoch,
        cursor: u64,
    ) -> Result<(Vec<Record>, Option<u64>), OtherEpoch> {
        self.participant.seal(epoch, base)?;
        let decided = self.participant.decided().collect();
        Ok(page(decided, cursor, self.page_bytes()))
    }
    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        of: &Configuration,
    ) -> Result<(), NotInstalled> {
        let me = self.me;
        self.participant
            .install(epoch, records, |key| keeps(of, me, key))
    }
    fn serve(&mut self, of: &Configuration) -> Result<(), OtherEpoch> {
        self.participant.serve(of.epoch)
    }
    fn standing(&self) -> (Epoch, bool) {
        (self.participant.epoch(), self.participant.is_serving())
    }
    fn holders(&self) -> Vec<(TransactionId, u16)> {
        self.participant.holders()
    }
    fn is_crowded(&self) -> bool {
        self.participant.is_crowded()
    }
    fn chunk(
        &self,
        cursor: u64,
        machine: MachineId,
        of: &Configuration,
    ) -> (Vec<Update>, Option<u64>) {
        let placement = of.placement().unwrap();
        let wanted = |key: &Key| placement.primary(key) == self.me && keeps(of, machine, key);
        // One item at a time.
        self.participant.store().chunk(cursor, 1, &wanted)
    }
    fn adopt(&mut self, items: &[Update]) -> bool {
        self.participant.adopt(items).is_ok()
    }
    fn is_durable(&self) -> bool {
        true
    }
    fn learned(&mut self) {
        self.participant.store_mut().learn(false);
    }
}
