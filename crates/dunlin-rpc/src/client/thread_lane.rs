//! One lane for each thread and client.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dunlin_verbs::process::Owned;

use super::lane::Lane;
use super::{Core, Place};
use crate::error::CallError;
use crate::fabric::Owner;

/// A thread's lane. Its owner is the thread; the client only ever locks it to close it, so the lock has no rivals on the way of a call.
pub(super) struct ThreadLane {
    place: Mutex<Place>,
}

impl ThreadLane {
    pub(super) fn close(&self) {
        self.place
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

/// A thread's hold on its lane. Counted without atomics, because every call takes one; the lane closes with the thread.
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
    client: Weak<Core>,
    lane: Rc<Own>,
}

thread_local! {
    static LANES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// This thread's lane of the client, which may be empty.
#[inline]
fn of(core: &Arc<Core>) -> Rc<Own> {
    LANES.with_borrow_mut(
        |lanes| match lanes.iter().find(|entry| entry.core == core.id) {
            Some(entry) => Rc::clone(&entry.lane),
            None => enter(core, lanes),
        },
    )
}

#[cold]
fn enter(core: &Arc<Core>, lanes: &mut Vec<Entry>) -> Rc<Own> {
    lanes.retain(|entry| entry.client.strong_count() > 0);
    let lane = Arc::new(Owned::new(ThreadLane {
        place: Mutex::new(None),
    }));
    let mut known = core.lanes.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|lane| lane.strong_count() > 0);
    known.push(Arc::downgrade(&lane));
    let lane = Rc::new(Own(lane));
    let entry = Entry {
        core: core.id,
        client: Arc::downgrade(core),
        lane: Rc::clone(&lane),
    };
    lanes.push(entry);
    lane
}

/// Makes `lane` this thread's.
pub(super) fn adopt(core: &Arc<Core>, lane: Box<dyn Lane>) {
    *of(core)
        .0
        .place
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(lane);
}

/// Does something with this thread's lane, which is made first if there is none or it is lost.
#[inline]
pub(super) fn with<T>(
    core: &Arc<Core>,
    action: impl FnOnce(&mut dyn Lane) -> Result<T, CallError>,
) -> Result<T, CallError> {
    // Before any lock: whoever held it in the parent is not here to give it back.
    core.check()?;
    let lane = of(core);
    let mut place = lane.0.place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lane) = &mut *place {
        if lane.is_usable() && !is_to_share(core, lane.as_ref()) {
            return action(lane.as_mut());
        }
    }
    action(renew(core, &mut place)?.as_mut())
}

/// Whether a lane that was one thread's alone is given up, because there are more threads now.
#[inline]
fn is_to_share(core: &Core, lane: &dyn Lane) -> bool {
    core.recipe.to_share.load(Ordering::Relaxed) && !lane.is_shared() && lane.outstanding() == 0
}

#[cold]
fn renew<'a>(core: &Core, place: &'a mut Place) -> Result<&'a mut Box<dyn Lane>, CallError> {
    if core.closed.load(Ordering::Acquire) {
        *place = None;
        return Err(CallError::Closed);
    }
    // One that is only to be shared is kept until there is another.
    let kept = place.take().filter(|lane| is_to_share(core, lane.as_ref()));
    let kept = kept.and_then(|mut lane| lane.is_usable().then_some(lane));
    let lane = match (core.recipe.open(Owner::Thread), kept) {
        (Ok((lane, _)), _) => lane,
        (Err(error), Some(kept)) => {
            tracing::debug!(%error, "a thread keeps a lane of its own");
            kept
        }
        (Err(error), None) => return Err(CallError::Connect(Arc::new(error))),
    };
    Ok(place.insert(lane))
}
