//! Changing the preset of a client in use (Flor §7.7): new lanes are made in addition to the existing ones, calls use
//! them from then on, and the former ones end when their outstanding calls have been answered.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::recipe::Recipe;
use super::{thread_lane, Client};
use crate::error::ConnectError;
use crate::Preset;

impl Client {
    /// Changes the preset of a client in use, for all its clones, and also the device if the preset needs another
    /// (`flor`). No call fails because of it: each ends on the connection that it was sent on. Threads, futures and
    /// pipelines change over with their next call; connections for as many of them as there are now are made in
    /// advance. Existing [`super::Peers`] keep their lanes; regions are attached again by the next operation.
    ///
    /// When this returns, a connection has been made and new calls use the new preset.
    ///
    /// # Errors
    /// When no connection can be made with it: then nothing has changed.
    pub fn change_preset(&self, preset: Preset) -> Result<(), ConnectError> {
        self.change(|former| (preset, former.channel.traffic_class))
    }

    /// Changes the traffic class of a client in use
    /// ([`ChannelConfig::traffic_class`](crate::ChannelConfig::traffic_class)), as
    /// [`change_preset`](Self::change_preset) does for the preset: for example from a lossless priority to a lossy one
    /// and back.
    ///
    /// # Errors
    /// As [`change_preset`](Self::change_preset).
    pub fn change_traffic_class(&self, traffic_class: u8) -> Result<(), ConnectError> {
        self.change(|former| (former.preset(), traffic_class))
    }

    fn change(&self, wanted: impl FnOnce(&Recipe) -> (Preset, u8)) -> Result<(), ConnectError> {
        self.core.check()?;
        let _alone = dunlin_verbs::thread::lock(&self.core.changing);
        if self.is_closed() {
            return Err(ConnectError::Setting("the client is closed".into()));
        }
        let former = self.core.recipe();
        let (preset, traffic_class) = wanted(&former);
        if (former.preset(), former.channel.traffic_class) == (preset, traffic_class) {
            return Ok(());
        }
        let next = former.changed(preset, traffic_class)?;
        let futures = usize::from(
            dunlin_verbs::thread::lock(&self.core.asynchronous)
                .current
                .is_some(),
        );
        let wanted = thread_lane::count(&self.core) + former.pipelines() + futures;
        let info = next.open_ahead(wanted)?;
        let current = self.core.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = (Arc::new(next), info);
        if self.core.regions.load(Ordering::SeqCst) > 0 {
            self.core.recipe().forbid_datagrams();
        }
        former.replace();
        // Calls that are outstanding or queued there end there; the next one makes another lane.
        dunlin_verbs::thread::lock(&self.core.asynchronous).replace();
        if self.core.closed.load(Ordering::Acquire) {
            // The client may have been closed before this recipe was in place.
            self.core.recipe().spares.clear();
        }
        Ok(())
    }
}
