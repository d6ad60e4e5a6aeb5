//! The handlers of a server, by id.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use super::{Execution, PrefetchFunction};
use crate::channel::upcoming::Upcoming;
use crate::HandlerId;

/// The handlers of a server.
#[derive(Clone, Default)]
pub(in crate::server) struct HandlerTable {
    by_id: Vec<Option<Execution>>,
    /// The built-in ones, kept apart because their ids are the highest.
    reserved: Vec<(HandlerId, Execution)>,
    prefetch: Option<Arc<PrefetchFunction>>,
    /// Names by which rights and errors refer to ids, of handlers and of what handlers serve under other ids.
    names: Vec<(HandlerId, Arc<str>)>,
    /// Ids that are exempt from the check of rights.
    exempt: Vec<HandlerId>,
}

impl HandlerTable {
    /// Adds a handler. Returns `false` if the id is taken.
    pub(in crate::server) fn insert(&mut self, id: HandlerId, execution: Execution) -> bool {
        let index = usize::from(id);
        if self.by_id.len() <= index {
            self.by_id.resize(index + 1, None);
        }
        let free = self.by_id[index].is_none();
        self.by_id[index] = Some(execution);
        free
    }

    #[inline]
    pub(in crate::server) fn get(&self, id: HandlerId) -> Option<&Execution> {
        match self.by_id.get(usize::from(id)) {
            Some(execution) => execution.as_ref(),
            None => self.get_reserved(id),
        }
    }

    /// Has `prefetch` called with the requests of each batch before the first is handled.
    pub(in crate::server) fn set_prefetch(&mut self, prefetch: Arc<PrefetchFunction>) {
        self.prefetch = Some(prefetch);
    }

    /// Called when requests have arrived. The function answers none of them, so a panic of it is no call's error.
    #[inline]
    pub(in crate::server) fn prefetch(&self, upcoming: Upcoming<'_>) {
        if let Some(prefetch) = &self.prefetch {
            let _ = catch_unwind(AssertUnwindSafe(|| prefetch(upcoming)));
        }
    }

    /// Sets the name of an id.
    pub(in crate::server) fn set_name(&mut self, id: HandlerId, name: &str) {
        self.names.push((id, name.into()));
    }

    pub(in crate::server) fn name(&self, id: HandlerId) -> Option<&str> {
        let found = self.names.iter().find(|(named, _)| *named == id);
        found.map(|(_, name)| &**name)
    }

    /// All names, for an error message.
    pub(in crate::server) fn names_in_words(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(|(_, name)| &**name).collect();
        match names.is_empty() {
            true => "no named methods".to_owned(),
            false => names.join(", "),
        }
    }

    /// Replaces each handler, except the built-in ones, with what `wrap` returns for the handler and its name.
    pub(in crate::server) fn wrap(&mut self, wrap: impl Fn(Execution, &str) -> Execution) {
        for id in 0..self.by_id.len() {
            if let Some(execution) = self.by_id[id].take() {
                let name = self.name(id as HandlerId).unwrap_or_default();
                self.by_id[id] = Some(wrap(execution, name));
            }
        }
    }

    /// Exempts an id from the check of rights.
    pub(in crate::server) fn exempt(&mut self, id: HandlerId) {
        self.exempt.push(id);
    }

    pub(in crate::server) fn checks_itself(&self, id: HandlerId) -> bool {
        self.exempt.contains(&id)
    }

    /// The ids that have a handler or a name, without those of built-in handlers.
    pub(in crate::server) fn ids(&self) -> impl Iterator<Item = HandlerId> + '_ {
        let with_handler = self.by_id.iter().enumerate();
        let with_handler = with_handler.filter(|(_, execution)| execution.is_some());
        let named = self.names.iter().map(|(id, _)| *id);
        with_handler.map(|(id, _)| id as HandlerId).chain(named)
    }

    /// Adds a built-in handler.
    pub(in crate::server) fn reserve(&mut self, id: HandlerId, execution: Execution) {
        self.reserved.push((id, execution));
    }

    /// Moves a handler from the polling thread to the workers. Returns `false` if it is not a handler of the polling
    /// thread.
    pub(in crate::server) fn run_apart(&mut self, id: HandlerId) -> bool {
        let Some(Some(execution)) = self.by_id.get_mut(usize::from(id)) else {
            return false;
        };
        let Execution::Inline(function) = execution else {
            return false;
        };
        *execution = Execution::Worker(Arc::clone(function));
        true
    }

    #[cold]
    pub(super) fn get_reserved(&self, id: HandlerId) -> Option<&Execution> {
        let found = self.reserved.iter().find(|(own, _)| *own == id);
        found.map(|(_, execution)| execution)
    }

    /// Whether any handler runs on workers, as async ones do without an executor.
    pub(in crate::server) fn needs_workers(&self, has_executor: bool) -> bool {
        self.by_id
            .iter()
            .flatten()
            .any(|execution| match execution {
                Execution::Worker(_) => true,
                Execution::Async(_) => !has_executor,
                Execution::Inline(_) | Execution::Deferred(_) => false,
            })
    }
}

impl fmt::Debug for HandlerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self
            .by_id
            .iter()
            .enumerate()
            .filter(|(_, e)| e.is_some())
            .map(|(id, _)| id);
        f.debug_set().entries(ids).finish()
    }
}
