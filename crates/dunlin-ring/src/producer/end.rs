//! Closing a ring: a separate word that is sent behind everything else.

use dunlin_verbs::Device;

use super::ProducerCore;
use crate::error::RingError;
use crate::link::{write_inline, Link, RingLink};

/// The progress of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    Open,
    Wanted,
    Told,
}

impl<D: Device> ProducerCore<D> {
    /// As [`Producer::close`](super::Producer::close).
    pub(crate) fn close(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        link.check_process()?;
        if self.close == Close::Open {
            self.local.end_run();
            self.close = Close::Wanted;
            self.tell_end(link)?;
        }
        Ok(())
    }

    /// Whether the end, and so everything before it, is known to have arrived.
    pub(crate) fn is_closed(&self, link: &impl RingLink<D>) -> bool {
        self.close == Close::Told && link.in_flight() == 0
    }

    /// Whether everything that was sent is known to have arrived, or to have been read, although the peer is gone.
    /// `None`: nothing is known to have failed so far; the device reports each request of a queue pair that has failed.
    pub(crate) fn has_all_arrived(&mut self, link: &mut Link<D>) -> Option<bool> {
        // A failure is already known; this takes the other completions.
        let _ = self.take_completions(link);
        let tail = self.sender.tail();
        if self.sender.is_behind() {
            return Some(false);
        }
        if self.sender.is_complete() || self.is_drained(link).unwrap_or(false) {
            return Some(true);
        }
        link.failed().map(|name| name > tail)
    }

    /// Whether the end was passed to the device.
    pub(crate) fn has_told_end(&self) -> bool {
        self.close == Close::Told
    }

    /// Tells the consumer where the ring ends, behind everything else.
    pub(super) fn tell_end(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        self.flush(link)?;
        if self.sender.is_behind() || !link.has_entries(2) {
            return Ok(());
        }
        // That word is also the name of the request, which no message has.
        let name = self.sender.tail() + 1;
        let word = name.to_le_bytes();
        write_inline(link, self.places.end, &word, (name, true))?;
        self.close = Close::Told;
        link.wake_if_asleep(self.sender.tail())
    }
}
