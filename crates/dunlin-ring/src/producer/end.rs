//! Closing a ring: a separate word that is sent behind everything else.

use dunlin_verbs::{Device, Operation, Payload, SendFlags, SendRequest};

use super::Producer;
use crate::error::RingError;

/// The progress of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    Open,
    Wanted,
    Told,
}

impl<D: Device> Producer<D> {
    /// Closes the ring: the consumer reads what was sent and then finds the end. Poll until [`Producer::is_closed`]
    /// before dropping the producer, or the last messages may be lost.
    ///
    /// # Errors
    /// When the ring has failed.
    pub fn close(&mut self) -> Result<(), RingError> {
        self.link.check_process()?;
        if self.close == Close::Open {
            self.local.end_run();
            self.close = Close::Wanted;
            self.tell_end()?;
        }
        Ok(())
    }

    /// Whether the end, and so everything before it, is known to have arrived.
    pub fn is_closed(&self) -> bool {
        self.close == Close::Told && self.link.in_flight() == 0
    }

    /// Whether everything that was sent is known to have arrived, or to have been read, although the peer is gone.
    /// `None`: nothing is known to have failed so far; the device reports each request of a queue pair that has failed.
    pub(crate) fn has_all_arrived(&mut self) -> Option<bool> {
        // A failure is already known; this takes the other completions.
        let _ = self.take_completions();
        let tail = self.sender.tail();
        if self.sender.is_behind() {
            return Some(false);
        }
        if self.sender.is_complete() || self.is_drained().unwrap_or(false) {
            return Some(true);
        }
        self.link.failed().map(|name| name > tail)
    }

    /// Whether the end was passed to the device.
    pub(crate) fn has_told_end(&self) -> bool {
        self.close == Close::Told
    }

    /// Tells the consumer where the ring ends, behind everything else.
    pub(super) fn tell_end(&mut self) -> Result<(), RingError> {
        self.flush()?;
        if self.sender.is_behind() || !self.link.has_entries(2) {
            return Ok(());
        }
        // That word is also the name of the request, which no message has.
        let name = self.sender.tail() + 1;
        let word = name.to_le_bytes();
        let write = Operation::Write {
            remote: self.places.end,
            immediate: None,
        };
        let request = SendRequest::new(name, write, Payload::Inline(&word), SendFlags::empty());
        self.link.post(&mut [request], true)?;
        self.close = Close::Told;
        self.link.wake_if_asleep(self.sender.tail())
    }
}
