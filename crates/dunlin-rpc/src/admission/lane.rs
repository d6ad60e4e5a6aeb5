//! One lane's admission at the server: how its poller handles credits and the scheduler's decisions.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::Device;

use super::credits::{InvalidReport, Ledger, Renewal};
use super::lane_share::LaneShare;
use super::redistribution::Admission;
use super::{Standing, REPORTS_SHIFT, STANDING_SHIFT};
use crate::channel::ring::RingChannel;
use crate::channel::ChannelError;

/// Admission of a lane whose client uses credits.
#[derive(Debug)]
pub(crate) struct Admitted {
    ledger: Ledger,
    share: Arc<LaneShare>,
    admission: Arc<Admission>,
    /// What the client was last told.
    told: Standing,
    /// While a request for credits is due: number of polls of the ring, and whether requests came together.
    looks: u32,
    hurried: bool,
    /// Whether the last decision could not be sent yet.
    untold: bool,
    /// Number of requests that had arrived at the last count.
    counted: u32,
}

/// Number of polls of the ring per poll of the completion queue, while a request for credits may be there.
const LOOKS_PER_LOOK: u32 = 32;

impl From<InvalidReport> for ChannelError {
    fn from(lie: InvalidReport) -> Self {
        ChannelError::violation(lie.0)
    }
}

impl Admitted {
    /// Admits a new lane of a sender, on a poller.
    pub(crate) fn new(admission: &Arc<Admission>, sender: u64, number: u64, poller: usize) -> Self {
        let share = admission.join(sender, number, poller);
        Self {
            ledger: Ledger::new(admission.credits()),
            share,
            admission: Arc::clone(admission),
            // What a client assumes that was told nothing.
            told: Standing::ACTIVE,
            looks: 0,
            hurried: false,
            untold: false,
            counted: 0,
        }
    }

    /// A request was taken.
    ///
    /// # Errors
    /// If it had no credit: a violation.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<(), ChannelError> {
        Ok(self.ledger.take()?)
    }

    /// Called after a poll of the ring: grants credits, and tells the client if the scheduler has changed the lane's
    /// standing.
    #[inline]
    pub(crate) fn attend<D: Device>(
        &mut self,
        channel: &mut RingChannel<D>,
        taken: usize,
    ) -> Result<(), ChannelError> {
        if taken > 0 {
            let messages = channel.batches_received() as u32;
            self.share.arrivals.came(self.ledger.taken(), messages);
        }
        if !self.is_due() {
            return Ok(());
        }
        // An honest client asks with the message that brings it to half. Checking for that costs more than a request,
        // so if requests come one by one it is checked rarely until a later request has come: then the question is
        // certainly there. If many come together, their sender is about to need credits. A client that was declined
        // waits for news.
        self.looks = self.looks.wrapping_add(1);
        self.hurried |= taken > 1;
        let due = (self.hurried || self.ledger.is_overdue() || self.looks % LOOKS_PER_LOOK == 0)
            && (self.told.contains(Standing::ACTIVE) || !self.ledger.is_pending());
        if due || self.has_news() {
            self.decide(channel)?;
        }
        Ok(())
    }

    /// Whether credits may have been asked for by now, or the client is to be told something.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.ledger.is_due() || self.has_news()
    }

    /// Takes requests for credits, and grants them.
    ///
    /// # Errors
    /// If the client violates the protocol.
    pub(crate) fn decide<D: Device>(
        &mut self,
        channel: &mut RingChannel<D>,
    ) -> Result<(), ChannelError> {
        if !self.ledger.is_pending() {
            channel.progress()?;
            if let Some(renewal) = channel.take_asked().map(Renewal::decode) {
                self.ledger.asked(renewal)?;
                if !self.share.is_active() {
                    // Declined, but counted: a sender that asks is not dormant.
                    self.share
                        .utilisation
                        .fetch_add(u64::from(renewal.degree), Ordering::Relaxed);
                    self.admission.rouse();
                }
            }
        }
        let mut answer = false;
        if let Some(degree) = channel.take_reported() {
            self.ledger.reported(degree)?;
            self.share
                .utilisation
                .fetch_add(u64::from(degree), Ordering::Relaxed);
            self.admission.rouse();
            answer = true;
        }
        if !channel.is_met() {
            return Ok(());
        }
        let standing = self.share.standing();
        // A lane that is not active gets no more credits; its request is kept until it is active again.
        let granted = match standing.contains(Standing::ACTIVE) {
            true => self.ledger.grant(),
            false => None,
        };
        if let Some(renewal) = granted {
            self.hurried = false;
            self.share.renewed(renewal);
            self.admission.rouse();
        }
        if answer || granted.is_some() || self.untold || standing != self.told {
            self.told = standing;
            let standing = u64::from(standing.bits()) << STANDING_SHIFT;
            let reports = u64::from(self.ledger.reports()) << REPORTS_SHIFT;
            self.untold = !channel.grant(u64::from(self.ledger.total()) | standing | reports)?;
        }
        self.share
            .credits
            .store(u64::from(self.ledger.left()), Ordering::Relaxed);
        Ok(())
    }

    /// Whether no request has come since the last call of this, and none is wanted: the lane is not active, or threads
    /// are asked to use datagrams.
    pub(crate) fn is_quiet_now(&mut self) -> bool {
        let taken = self.ledger.taken();
        let standing = self.share.standing();
        let is_wanted =
            standing.contains(Standing::ACTIVE) && !standing.contains(Standing::DATAGRAMS);
        std::mem::replace(&mut self.counted, taken) == taken && !is_wanted
    }

    /// Maximum number of requests of a message that are answered together.
    #[inline]
    pub(crate) fn answered_together(&self) -> usize {
        self.admission.answered_together()
    }

    /// Whether the client is to be told something.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.untold || self.told != self.share.standing()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.leave(&self.share);
    }
}
