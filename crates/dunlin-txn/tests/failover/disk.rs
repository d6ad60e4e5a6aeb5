//! A machine's disk in virtual time: entries, of which the first ones are safe. It outlives the machine.
use dunlin_txn::log::{Append, Entry, Unsynced};
use dunlin_txn::wire::Body;
use dunlin_txn::{MemoryStore, Participant};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// With their positions.
    entries: Vec<(u64, Entry)>,
    appended: u64,
    safe: u64,
    unsynced: Unsynced,
}

impl Disk {
    pub(crate) fn push(&self, entry: &Entry) -> u64 {
        let mut state = self.0.lock().unwrap();
        // What is on a disk is bytes.
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        state.appended += 1;
        let position = state.appended;
        let decoded = Entry::decode_all(&bytes).unwrap().into_iter();
        state.entries.extend(decoded.map(|entry| (position, entry)));
        position
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let state = self.0.lock().unwrap();
        state.entries.iter().map(|(_, one)| one.clone()).collect()
    }

    /// What must be safe before the answer to a request is given that has read.
    pub(crate) fn needed(&self, body: &Body) -> u64 {
        let state = self.0.lock().unwrap();
        state
            .unsynced
            .needed(body, |position| state.safe >= position)
    }

    pub(crate) fn is_safe(&self, position: u64) -> bool {
        self.0.lock().unwrap().safe >= position
    }

    pub(crate) fn sync(&self, position: u64) {
        let mut state = self.0.lock().unwrap();
        state.safe = state.safe.max(position);
    }

    /// The machine dies: what is safe stays, and some of what is not.
    pub(crate) fn crash(&self, random: &mut fastrand::Rng) {
        let mut state = self.0.lock().unwrap();
        let left = random.u64(state.safe..=state.appended);
        state.entries.retain(|(position, _)| *position <= left);
        state.safe = state.appended;
    }

    /// Nothing but a life with all that its participant has.
    pub(crate) fn begin_anew(&self, life: (u64, bool), of: &Participant<MemoryStore>) {
        let (incarnation, loaded) = life;
        let life = Entry::Life {
            incarnation,
            loaded,
            database: 0,
        };
        self.put(vec![life], of);
    }

    /// Another life, which is safe when it begins.
    pub(crate) fn go_on(&self, incarnation: u64) {
        let position = self.push(&Entry::Life {
            incarnation,
            loaded: true,
            database: 0,
        });
        self.sync(position);
    }

    /// A snapshot in the place of all that was appended.
    pub(crate) fn snapshot(&self, of: &Participant<MemoryStore>) {
        let (mut known, mut lives) = (0, Vec::new());
        for entry in self.entries() {
            match &entry {
                Entry::Life { database, .. } => {
                    known = known.max(*database);
                    lives.push(entry);
                }
                Entry::Serve { database, .. } => known = *database,
                _ => {}
            }
        }
        for life in &mut lives {
            if let Entry::Life { database, .. } = life {
                *database = known;
            }
        }
        self.put(lives, of);
    }

    fn put(&self, mut entries: Vec<Entry>, of: &Participant<MemoryStore>) {
        entries.extend(of.captured(0));
        entries.push(Entry::Items(of.items(0, usize::MAX).0));
        let mut state = self.0.lock().unwrap();
        state.appended += 1;
        state.safe = state.appended;
        let position = state.safe;
        state.entries = entries.into_iter().map(|one| (position, one)).collect();
    }
}

impl Append for Disk {
    fn append(&mut self, entry: &Entry) -> u64 {
        let position = self.push(entry);
        let mut state = self.0.lock().unwrap();
        let safe = state.safe;
        state
            .unsynced
            .note(entry, position, |position| safe >= position);
        position
    }
}
