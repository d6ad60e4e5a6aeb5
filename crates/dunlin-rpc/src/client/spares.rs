//! Lanes that are not used by anyone yet.

use std::sync::Mutex;

use dunlin_verbs::thread;

use crate::call::lane::Lane;

/// The spare lanes; see the module.
#[derive(Default)]
pub(super) struct Spares(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The lane that was made to check the connection.
    first: Option<Box<dyn Lane>>,
    /// Lanes made before they are needed.
    ahead: Vec<Box<dyn Lane>>,
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spares").finish_non_exhaustive()
    }
}

impl Spares {
    /// Keeps the lane that was made to check the connection.
    pub(super) fn keep_first(&self, lane: Box<dyn Lane>) {
        thread::lock(&self.0).first = Some(lane);
    }

    /// Keeps a lane made before it is needed.
    pub(super) fn keep_ahead(&self, lane: Box<dyn Lane>) {
        thread::lock(&self.0).ahead.push(lane);
    }

    /// Takes one for a pipeline or futures, if it still takes calls: its server may have gone in the meantime.
    pub(super) fn take(&self) -> Option<Box<dyn Lane>> {
        let first = thread::lock(&self.0).first.take();
        usable(first).or_else(|| self.take_ahead())
    }

    /// Takes one for any user, if it still takes calls.
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
