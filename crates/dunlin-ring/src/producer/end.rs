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

    /// Says where the ring ends, behind everything else.
    pub(super) fn tell_end(&mut self) -> Result<(), RingError> {
        self.flush()?;
        if self.sender.is_behind() || !self.link.has_entries(2) {
            return Ok(());
        }
        let word = (self.sender.tail() + 1).to_le_bytes();
        let write = Operation::Write {
            remote: self.places.end,
            immediate: None,
        };
        let name = self.sender.tail();
        let request = SendRequest::new(name, write, Payload::Inline(&word), SendFlags::empty());
        self.link.post(&mut [request], true)?;
        self.close = Close::Told;
        self.link.wake_if_asleep(self.sender.tail())
    }
}
