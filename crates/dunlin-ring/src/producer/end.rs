//! The end of a ring: a word of its own behind everything else.

use dunlin_verbs::{Device, Operation, Payload, SendFlags, SendRequest};

use super::Producer;
use crate::error::RingError;

/// How far the close has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    Open,
    Wanted,
    Told,
}

impl<D: Device> Producer<D> {
    /// Ends the ring: the consumer reads what was sent and then finds the end. Poll until [`Producer::is_closed`]
    /// before the producer is dropped, or its last messages may be lost with it.
    ///
    /// # Errors
    /// When the ring has ended otherwise.
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

    /// Whether everything that was sent is known to have arrived, or to have been read, though the peer is gone.
    /// `None`: nothing is known to have failed, or not yet; the device tells of each request of a queue pair that has
    /// failed.
    pub(crate) fn has_all_arrived(&mut self) -> Option<bool> {
        // A failure is known already; what is asked for is what else there is.
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

    /// Whether the end was handed to the device.
    pub(crate) fn has_told_end(&self) -> bool {
        self.close == Close::Told
    }

    /// Says where the ring ends, behind everything else.
    pub(super) fn tell_end(&mut self) -> Result<(), RingError> {
        self.flush()?;
        if self.sender.is_behind() || !self.link.has_entries(2) {
            return Ok(());
        }
        // Its name is that word, too, which no message has.
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
