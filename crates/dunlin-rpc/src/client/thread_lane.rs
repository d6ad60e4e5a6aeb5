//! One lane per thread and client. Simulated threads of one real thread share its thread-local state: the entries state
//! which of them they belong to.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use dunlin_verbs::process::Owned;

use super::attempts::Attempts;
use super::other_lane::OtherLane;
use super::recipe::{Recipe, Successor};
use super::wait::end_of;
use super::Core;
use crate::call::lane::Lane;
use crate::error::CallError;
use crate::lanes::Owner;

/// A thread's lane. It is owned by the thread; the client locks it only to close it, so the lock is uncontended on the
/// path of a call.
pub(super) struct ThreadLane {
    place: Mutex<Option<Held>>,
}

/// A lane, and the recipe that made it.
struct Held {
    lane: Owned<Box<dyn Lane>>,
    recipe: Arc<Recipe>,
    other: OtherLane,
    attempts: Attempts,
}

impl Held {
    fn new(lane: Box<dyn Lane>, recipe: Arc<Recipe>) -> Self {
        Self {
            lane: Owned::new(lane),
            recipe,
            other: OtherLane::default(),
            attempts: Attempts::default(),
        }
    }

    /// The lane for which this one is to be given up, although it could be used.
    #[inline]
    fn successor(&mut self, core: &Core) -> Option<Successor> {
        let is_idle = |lane: &dyn Lane| !lane.is_shared() && lane.outstanding() == 0;
        let successor = self.recipe.successor(self.lane.as_ref(), is_idle);
        let successor = self.other.but_refused(successor);
        self.attempts.but_failed(successor, || Some(core.recipe()))
    }

    /// Changes to a lane of the other kind, if one is available.
    fn change_kind(&mut self, until: Instant) {
        let (owner, lane) = ((Owner::Thread, 1), self.lane.as_ref());
        let other = self.other.take(&self.recipe, lane, owner, Some(until));
        if let Some(other) = other {
            self.other.keep(std::mem::replace(&mut self.lane, other));
        }
    }
}

impl ThreadLane {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        thread::lock(&self.place)
    }

    pub(super) fn close(&self) {
        self.lock().take();
    }
}

/// A thread's reference to its lane. Counted without atomics, because every call takes one; the lane closes with the
/// thread.
struct Own(Arc<Owned<ThreadLane>>);

impl Drop for Own {
    fn drop(&mut self) {
        if self.0.is_here() {
            self.0.close();
        }
    }
}

struct Entry {
    core: u64,
    /// The number of the simulated thread that it belongs to, if any, and what keeps that number from being reused. The
    /// end of such a thread is not reported: its lanes end with the client.
    thread: usize,
    _waker: Option<Waker>,
    client: Weak<Core>,
    lane: Rc<Own>,
}

thread_local! {
    static LANES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// This thread's lane of the client, which may be empty.
#[inline]
fn of(core: &Arc<Core>) -> Rc<Own> {
    let thread = thread::simulated_number();
    let is_it = |entry: &&Entry| entry.core == core.id && entry.thread == thread;
    let find = |lanes: &RefCell<Vec<Entry>>| {
        let lanes = lanes.borrow();
        lanes.iter().find(is_it).map(|e| Rc::clone(&e.lane))
    };
    // The list of a thread that is ending may be gone: then the lane serves only this call.
    let known = LANES.try_with(find).ok().flatten();
    known.unwrap_or_else(|| enter(core, thread))
}

#[cold]
fn enter(core: &Arc<Core>, thread: usize) -> Rc<Own> {
    let lane = Arc::new(Owned::new(ThreadLane {
        place: Mutex::new(None),
    }));
    let mut known = thread::lock(&core.lanes);
    known.retain(|lane| lane.strong_count() > 0);
    known.push(Arc::downgrade(&lane));
    drop(known);
    let lane = Rc::new(Own(lane));
    let entry = Entry {
        core: core.id,
        thread,
        _waker: (thread != 0).then(thread::waker),
        client: Arc::downgrade(core),
        lane: Rc::clone(&lane),
    };
    // Entries of clients that no longer exist.
    forget(|entry| entry.client.strong_count() == 0);
    // Otherwise it ends with its caller.
    let _ = LANES.try_with(|lanes| lanes.borrow_mut().push(entry));
    lane
}

/// Closes the lanes of these entries. That may take time of a simulated thread, in which other threads use the list.
fn forget(which: impl Fn(&Entry) -> bool) {
    let take = |lanes: &RefCell<Vec<Entry>>| -> Vec<Entry> {
        let mut lanes = lanes.borrow_mut();
        lanes.extract_if(.., |entry| which(entry)).collect()
    };
    let gone = LANES.try_with(take);
    drop(gone);
}

/// Makes `lane` the lane of this thread.
pub(super) fn adopt(core: &Arc<Core>, lane: Box<dyn Lane>) {
    let recipe = core.recipe();
    *of(core).0.lock() = Some(Held::new(lane, recipe));
}

/// Number of lanes that threads have now.
pub(super) fn count(core: &Core) -> usize {
    let lanes = thread::lock(&core.lanes);
    lanes.iter().filter(|lane| lane.strong_count() > 0).count()
}

/// Calls `action` with this thread's lane, which is made first if there is none or it is lost, within `limit`. If the
/// lane had to be made, `action` also gets the time from which `limit` counts; otherwise it starts now.
#[inline]
pub(super) fn with<T>(
    core: &Arc<Core>,
    limit: Duration,
    action: impl FnOnce(&mut dyn Lane, Option<Instant>) -> Result<T, CallError>,
) -> Result<T, CallError> {
    // Before any lock: after a fork, its holder may be a thread of the parent, which cannot release it here.
    core.check()?;
    let own = of(core);
    let mut place = own.0.lock();
    if let Some(held) = &mut *place {
        if held.lane.is_usable() && held.successor(core).is_none() {
            return action(held.lane.as_mut(), None);
        }
    }
    let began = thread::now();
    let mut place = renew(core, &own.0, place, (began, limit))?;
    match &mut *place {
        Some(held) => action(held.lane.as_mut(), Some(began)),
        None => Err(CallError::Closed),
    }
}

/// Replaces the lane. The lock is not held meanwhile, so closing the client does not wait for a handshake.
#[cold]
fn renew<'a>(
    core: &Core,
    own: &'a ThreadLane,
    mut place: MutexGuard<'_, Option<Held>>,
    (began, limit): (Instant, Duration),
) -> Result<MutexGuard<'a, Option<Held>>, CallError> {
    let former = place.take();
    drop(place);
    if core.is_closed() {
        return Err(CallError::Closed);
    }
    // A usable one is kept until there is another.
    let kept = former.and_then(|mut held| {
        let successor = held.successor(core)?;
        held.lane.is_usable().then_some((held, successor))
    });
    let allowed = match &kept {
        // The call uses the former lane if there is no other, and needs some of its time for that.
        Some((held, Successor::Another)) => held.attempts.allowed(limit),
        _ => limit,
    };
    let until = end_of(began, allowed);
    let recipe = core.recipe();
    let (opened, kept) = match kept {
        Some((mut held, Successor::OtherKind)) => {
            held.change_kind(until);
            (Ok(held), None)
        }
        kept => {
            let opened = match recipe.spares.take_ahead() {
                Some(lane) => Ok(lane),
                None => recipe.open(Owner::Thread, 1, Some(until)).map(|o| o.0),
            };
            let made = opened.map(|lane| Held::new(lane, Arc::clone(&recipe)));
            (made, kept)
        }
    };
    if core.is_closed() {
        return Err(CallError::Closed);
    }
    let held = match (opened, kept) {
        (Ok(held), _) => held,
        (Err(error), Some((mut kept, _))) => {
            tracing::debug!(%error, "cannot open another lane: the thread keeps its current lane");
            kept.attempts.failed(&recipe, (began, allowed));
            kept
        }
        (Err(_), None) if thread::now() >= until => {
            return Err(CallError::DeadlineExceeded { after: limit });
        }
        (Err(error), None) => return Err(error.into()),
    };
    let mut place = own.lock();
    if core.is_closed() {
        // The thread that closed the client found no lane here.
        drop(place);
        return Err(CallError::Closed);
    }
    *place = Some(held);
    Ok(place)
}
