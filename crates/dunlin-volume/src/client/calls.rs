//! The clients by which one thread makes its calls, so that another thread can end these calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::Client;

#[derive(Debug, Default)]
struct State {
    ended: bool,
    next: u64,
    clients: BTreeMap<u64, Client>,
}

/// The clients in use; see the module's documentation. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<State>>);

/// The entry of a client, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    calls: Calls,
    number: u64,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client. Its calls fail at once if all have been ended.
    pub(super) fn add(&self, client: &Client) -> Entry {
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        match state.ended {
            true => client.close(),
            false => drop(state.clients.insert(number, client.clone())),
        }
        drop(state);
        let calls = self.clone();
        Entry { calls, number }
    }

    /// Ends all outstanding calls, and all later ones.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let clients = std::mem::take(&mut state.clients);
        drop(state);
        clients.values().for_each(Client::close);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let removed = self.calls.state().clients.remove(&self.number);
        // Its last clone may close connections: without the lock.
        drop(removed);
    }
}
