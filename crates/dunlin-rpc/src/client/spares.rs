//! Lanes that nobody has yet.

use std::sync::Mutex;

use dunlin_verbs::thread;

use crate::call::lane::Lane;

/// See the module.
#[derive(Default)]
pub(super) struct Spares(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The lane that proved the way.
    first: Option<Box<dyn Lane>>,
    /// Those that were made before they were needed.
    ahead: Vec<Box<dyn Lane>>,
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spares").finish_non_exhaustive()
    }
}

impl Spares {
    /// Keeps the lane that proved the way.
    pub(super) fn keep_first(&self, lane: Box<dyn Lane>) {
        thread::lock(&self.0).first = Some(lane);
    }

    /// Keeps one that was made before it is needed.
    pub(super) fn keep_ahead(&self, lane: Box<dyn Lane>) {
        thread::lock(&self.0).ahead.push(lane);
    }

    /// One for a pipeline or futures, if it still takes calls: its server may have gone since it proved the way.
    pub(super) fn take(&self) -> Option<Box<dyn Lane>> {
        let first = thread::lock(&self.0).first.take();
        usable(first).or_else(|| self.take_ahead())
    }

    /// One for anybody, if it still takes calls.
    pub(super) fn take_ahead(&self) -> Option<Box<dyn Lane>> {
        loop {
            let lane = thread::lock(&self.0).ahead.pop()?;
            if let Some(lane) = usable(Some(lane)) {
                return Some(lane);
            }
        }
    }

    /// Closes them.
    pub(super) fn clear(&self) {
        let kept = std::mem::take(&mut *thread::lock(&self.0));
        drop(kept);
    }
}

/// The lane, if it still takes calls.
pub(super) fn usable(lane: Option<Box<dyn Lane>>) -> Option<Box<dyn Lane>> {
    lane.and_then(|mut lane| lane.is_usable().then_some(lane))
}
