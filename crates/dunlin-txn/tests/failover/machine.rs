//! A machine of the simulated cluster: agent, participant and store, in one life after another.
use dunlin_txn::membership::{Configuration, Epoch, Record, Registration};
use dunlin_txn::recovery::{Agent, Local, Timing, CHUNK_BYTES};
use dunlin_txn::workload::Workload;
use dunlin_txn::{
    Key, MachineId, MemoryStore, Mistakes, OtherEpoch, Participant, Placement, Store,
    TransactionId, Update,
};
use std::time::Duration;

pub(crate) const MACHINES: u16 = 3;
pub(crate) const LEASE: u64 = 4000;
const MARGIN: u64 = 400;

pub(crate) struct Machine {
    pub(crate) agent: Agent,
    pub(crate) local: Own,
    pub(crate) incarnation: u64,
    pub(crate) alive: bool,
    pub(crate) paused_until: u64,
    /// Its clock is faster by so many parts of a thousand, and shows so much at the beginning.
    drift: (i64, u64),
}

pub(crate) struct Own {
    pub(crate) participant: Participant<MemoryStore>,
    me: MachineId,
}

impl Machine {
    pub(crate) fn new(
        number: u16,
        incarnation: u64,
        (headers, mistakes): (usize, Mistakes),
        load: Option<&dyn Workload>,
        drift: (i64, u64),
    ) -> Machine {
        let placement = Placement::round(MACHINES, MACHINES).unwrap();
        let mut store = MemoryStore::new(&placement, headers, 1000);
        if let Some(load) = load {
            load.load().for_each(|(k, v)| store.load(k, v).unwrap());
        }
        let mut participant = Participant::new(store, 1000).recovering(load.is_some());
        participant.make(mistakes);
        let me = Registration {
            machine: MachineId(number),
            incarnation,
            address: String::new(),
            whole: load.is_some(),
            succeeds: None,
        };
        let timing = Timing {
            lease: Duration::from_micros(LEASE),
            margin: Duration::from_micros(MARGIN),
            patience: Duration::from_micros(6000),
            again: Duration::from_micros(400),
        };
        let mut agent = Agent::new(me, MACHINES, MACHINES, timing, 9);
        agent.make(mistakes);
        Machine {
            agent,
            local: Own {
                participant,
                me: MachineId(number),
            },
            incarnation,
            alive: true,
            paused_until: 0,
            drift,
        }
    }

    pub(crate) fn clock(&self, now: u64) -> Duration {
        let (rate, start) = self.drift;
        let shown = start as i64 + now as i64 + now as i64 * rate / 1000;
        Duration::from_micros(shown as u64)
    }

    pub(crate) fn drift(&self) -> (i64, u64) {
        self.drift
    }

    pub(crate) fn has_lease(&self, now: u64) -> bool {
        self.clock(now) < self.agent.lease_until()
    }
}

impl Local for Own {
    fn seal(&mut self, epoch: Epoch, base: Epoch) -> Result<Vec<Record>, OtherEpoch> {
        self.participant.seal(epoch, base)
    }
    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        _of: &Configuration,
    ) -> Result<(), OtherEpoch> {
        // Each machine has a copy of each key.
        self.participant.install(epoch, records, |_| true)
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
        _machine: MachineId,
        of: &Configuration,
    ) -> (Vec<Update>, Option<u64>) {
        let placement = of.placement().unwrap();
        let (me, store) = (self.me, self.participant.store());
        let wanted = |key: &Key| placement.primary(key) == me;
        // Small chunks, so that much happens between two.
        store.chunk(cursor, CHUNK_BYTES / 2000, &wanted)
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
