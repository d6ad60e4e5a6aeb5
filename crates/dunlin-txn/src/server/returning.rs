//! How a life of a machine restores its state: it reads its log, and registers this with the membership meanwhile.
//!
//! Other machines that come back, too, then wait for it instead of going on without it; and if those that are present
//! have gone on, it notices, and stops reading the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::disk::Opened;
use super::member::{TableParticipant, BEATS};
use super::StoreServerError;
use crate::log::LogError;
use crate::membership::{Membership, Registration};
use crate::placement::Placement;
use crate::recovery::Begins;

/// The initial state of a life of a machine.
pub(super) struct Life {
    pub(super) begins: Begins,
    /// What it registers once the log is read.
    pub(super) registration: Registration,
    pub(super) membership: Box<dyn Membership>,
    pub(super) participants: Vec<TableParticipant>,
}

impl Life {
    /// Reads the log, if the life continues from one. A life that the others have meanwhile gone on without starts
    /// without data, in new tables.
    pub(super) fn read(
        mut self,
        log: Option<&mut Opened>,
        tables: &dyn Fn() -> Result<Vec<TableParticipant>, StoreServerError>,
        (placement, lease): (&Placement, Duration),
    ) -> Result<Life, StoreServerError> {
        let is_first = self.begins == Begins::First;
        self.recovers(log.as_deref().map_or(is_first, Opened::is_loaded));
        let Some(log) = log.filter(|_| matches!(self.begins, Begins::Continues(_))) else {
            return Ok(self);
        };
        let place = (self.registration.machine, placement);
        if self.registration.succeeds.is_none() {
            // The database has not begun: nobody can go on without this machine.
            log.replay(&mut self.participants, place, &|| true)?;
            return Ok(self);
        }
        let returning = Returning::begin(self.membership, self.registration.clone(), lease)?;
        let read = log.replay(&mut self.participants, place, &|| !returning.is_over());
        let (membership, is_over) = returning.end();
        self.membership = membership;
        if !read? || is_over {
            log.forget();
            self.begins = Begins::Empty;
            (self.registration.whole, self.registration.succeeds) = (false, None);
            self.participants = tables()?;
            self.recovers(false);
        }
        Ok(self)
    }

    /// Puts its participants into recovery; with the initial contents of the database, if those were loaded.
    fn recovers(&mut self, loaded: bool) {
        let all = std::mem::take(&mut self.participants).into_iter();
        self.participants = all.map(|one| one.recovering(loaded)).collect();
    }
}

/// A thread that renews the lease of a machine while it reads its log.
struct Returning {
    /// The others have gone on without the machine.
    is_over: Arc<AtomicBool>,
    end: SyncSender<()>,
    thread: JoinHandle<Box<dyn Membership>>,
}

impl Returning {
    fn begin(
        mut membership: Box<dyn Membership>,
        mut me: Registration,
        lease: Duration,
    ) -> Result<Returning, StoreServerError> {
        me.whole = false;
        let (end, ends) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let renew = move || loop {
            match membership.beat(&me, lease) {
                Ok(observed) => {
                    let of = observed.configuration.as_ref().map(|(_, of)| of);
                    if !of.is_some_and(|of| me.may_succeed(of)) {
                        over.store(true, Ordering::Release);
                    }
                }
                Err(error) => {
                    tracing::warn!(machine = %me.machine, %error, "cannot get a lease");
                    over.fetch_or(error.is_final, Ordering::AcqRel);
                }
            }
            match ends.recv_timeout(lease / BEATS) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return membership,
            }
        };
        let thread = std::thread::Builder::new().name("dunlin-returning".into());
        Ok(Returning {
            is_over,
            end,
            thread: thread.spawn(renew).map_err(LogError::Thread)?,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns the membership, and whether the others have gone on.
    fn end(self) -> (Box<dyn Membership>, bool) {
        drop(self.end);
        match self.thread.join() {
            Ok(membership) => (membership, self.is_over.load(Ordering::Acquire)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
