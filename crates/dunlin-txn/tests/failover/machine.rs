//! A machine of the simulated cluster: agent, participant and store, in one life after another; some with a disk.
use crate::disk::Disk;
use dunlin_txn::log::Entry;
use dunlin_txn::membership::{Configuration, Epoch, Record, Registration};
use dunlin_txn::recovery::{page, Agent, Begins, Local, Timing, CHUNK_BYTES, PAGE_BYTES};
use dunlin_txn::workload::Workload;
use dunlin_txn::{replay, wire::Body};
use dunlin_txn::{
    Key, MachineId, MemoryStore, Mistakes, NotInstalled, OtherEpoch, Participant, Placement, Store,
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
    /// Until then it reads its log: it renews its lease, and does nothing else.
    pub(crate) reads_until: u64,
    /// Its clock is faster by so many parts of a thousand, and shows so much at the beginning.
    drift: (i64, u64),
}

pub(crate) struct Own {
    /// One, as a machine has several: for [`replay`].
    pub(crate) participant: Participant<MemoryStore>,
    me: MachineId,
    pub(crate) disk: Option<Disk>,
    /// The position of what the machine, and not its participant, has appended last.
    appended: u64,
}

/// With what a life begins.
pub(crate) struct Start<'a> {
    pub(crate) incarnation: u64,
    pub(crate) begins: Begins,
    pub(crate) load: Option<&'a dyn Workload>,
    pub(crate) disk: Option<Disk>,
}

impl Machine {
    pub(crate) fn new(
        number: u16,
        start: Start<'_>,
        (headers, mistakes): (usize, Mistakes),
        drift: (i64, u64),
    ) -> Machine {
        let Start {
            incarnation,
            begins,
            load,
            disk,
        } = start;
        let placement = Placement::round(MACHINES, MACHINES).unwrap();
        let mut store = MemoryStore::new(&placement, headers, 1000);
        if let Some(load) = load {
            load.load().for_each(|(k, v)| store.load(k, v).unwrap());
        }
        let entries = match (&disk, begins) {
            (Some(disk), Begins::Continues(_)) => disk.entries(),
            _ => Vec::new(),
        };
        let loaded = match entries.first() {
            Some(Entry::Life { loaded, .. }) => *loaded,
            _ => begins == Begins::First,
        };
        let mut participant = [Participant::new(store, 1000).recovering(loaded)];
        participant[0].make(mistakes);
        if begins != Begins::Empty {
            let place = (MachineId(number), &placement);
            replay(&mut participant, place, entries).unwrap();
        }
        let [mut participant] = participant;
        if let Some(disk) = &disk {
            match begins {
                Begins::Continues(_) => disk.go_on(incarnation),
                _ => disk.begin_anew((incarnation, loaded), &participant),
            }
            participant = participant.logging(Box::new(disk.clone()));
        }
        let me = Registration {
            machine: MachineId(number),
            incarnation,
            address: String::new(),
            whole: begins != Begins::Empty,
            succeeds: match begins {
                Begins::Continues(before) => before,
                Begins::First | Begins::Empty => None,
            },
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
                disk,
                appended: 0,
            },
            incarnation,
            alive: true,
            paused_until: 0,
            reads_until: 0,
            drift,
        }
    }

    pub(crate) fn clock(&self, now: u64) -> Duration {
        let (rate, start) = self.drift;
        let shown = start as i64 + now as i64 + now as i64 * rate / 1000;
        Duration::from_micros(shown as u64)
    }

    pub(crate) fn reads(&self, now: u64) -> bool {
        self.reads_until > now
    }

    pub(crate) fn drift(&self) -> (i64, u64) {
        self.drift
    }

    pub(crate) fn has_lease(&self, now: u64) -> bool {
        self.clock(now) < self.agent.lease_until()
    }
}

impl Own {
    fn append(&mut self, entry: Entry) {
        if let Some(disk) = &self.disk {
            self.appended = disk.push(&entry);
        }
    }

    /// The position of all that was done so far for other machines.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// What must be on the disk before a request is answered.
    pub(crate) fn needed(&self, body: &Body) -> u64 {
        match (body, &self.disk) {
            (Body::Replicate { .. } | Body::Commit(_), Some(_)) => self.participant.appended(),
            (_, Some(disk)) => disk.needed(body),
            (_, None) => 0,
        }
    }

    /// A snapshot in the place of the log, where the machine has all that it should have.
    pub(crate) fn snapshot(&self) {
        if let Some(disk) = &self.disk {
            disk.snapshot(&self.participant);
        }
    }
}

impl Local for Own {
    fn seal(
        &mut self,
        epoch: Epoch,
        base: Epoch,
        cursor: u64,
    ) -> Result<(Vec<Record>, Option<u64>), OtherEpoch> {
        self.participant.seal(epoch, base)?;
        self.append(Entry::Seal { epoch, base });
        let decided = self.participant.decided().collect();
        Ok(page(decided, cursor, self.page_bytes()))
    }
    fn page_bytes(&self) -> usize {
        // A few changes, so that much happens between two pages.
        PAGE_BYTES / 5000
    }
    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        of: &Configuration,
    ) -> Result<(), NotInstalled> {
        // Each machine has a copy of each key.
        self.participant.install(epoch, records, |_| true)?;
        self.append(Entry::Install {
            of: of.clone(),
            records: records.to_vec(),
        });
        Ok(())
    }
    fn serve(&mut self, of: &Configuration) -> Result<(), OtherEpoch> {
        if self.standing() != (of.epoch, true) {
            self.participant.serve(of.epoch)?;
            self.append(Entry::Serve {
                epoch: of.epoch,
                database: of.database,
            });
        }
        Ok(())
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
        let adopted = self.participant.adopt(items).is_ok();
        self.append(Entry::Adopt(items.to_vec()));
        adopted
    }
    fn is_durable(&self) -> bool {
        let is_safe = |disk: &Disk| disk.is_safe(self.appended);
        self.disk.as_ref().is_none_or(is_safe)
    }
    fn learned(&mut self) {
        self.participant.store_mut().learn(false);
    }
}
