//! Giving slots back: the head, and the lazy push of it (RB² §IV-A).

use std::sync::atomic::{fence, Ordering};

use dunlin_verbs::{Device, Operation, Payload, Region, SendFlags, SendRequest, Work};

use super::Consumer;
use crate::design::{HeadSync, TailSync};
use crate::effort;
use crate::error::RingError;
use crate::link::NAMELESS;

impl<D: Device> Consumer<D> {
    /// Gives the units of a message back.
    #[inline(always)]
    pub(super) fn give_back(
        &mut self,
        offset: usize,
        length: usize,
        units: u64,
    ) -> Result<(), RingError> {
        self.link.check_process()?;
        if self.design.polls_messages() {
            let start = offset - self.geometry.prefix;
            let whole = self.geometry.prefix + length + self.geometry.suffix;
            self.array.zero(start, whole);
            D::charge(Work::Copy(whole));
            D::charge(effort::ZEROED);
        }
        if self.receiver.read(units) {
            self.push_head()?;
        }
        Ok(())
    }

    /// Tells the producer how far we have read. Where the send queue has no entry now, the next call does it.
    #[inline(never)]
    pub(super) fn push_head(&mut self) -> Result<(), RingError> {
        // What was read was read before the producer may write there again.
        fence(Ordering::Release);
        D::charge(effort::GAVE_BACK);
        let head = self.receiver.head().to_le_bytes();
        if self.design.head_sync == HeadSync::LazyPull {
            let at = self.geometry.words.published_head;
            let word = self.inlet.memory().atomic_u64(at);
            word.store(u64::from_ne_bytes(head), Ordering::Release);
            self.receiver.pushed();
            return Ok(());
        }
        // The head, and a wake-up.
        if !self.link.has_entries(2) {
            // Completions of RECEIVEs are not lost where there are any: those designs poll in `notified` before they
            // read.
            if self.design.tail_sync == TailSync::CompletionQueue {
                return Ok(());
            }
            if self.link.poll().is_err() || !self.link.has_entries(2) {
                return Ok(());
            }
        }
        let write = Operation::Write {
            remote: self.peer_head,
            immediate: None,
        };
        let payload = Payload::Inline(&head);
        let request = SendRequest::new(NAMELESS, write, payload, SendFlags::empty());
        if self.link.post(&mut [request], false).is_ok() {
            self.receiver.pushed();
            let _ = self.link.wake_if_asleep(NAMELESS);
        }
        // A connection that failed is told when there is nothing left to read.
        Ok(())
    }

    /// Tells the producer of everything that was read, for the last time, unless it has ended itself.
    pub(crate) fn leave(&mut self) {
        if !self.over && self.push().is_ok() {
            // The last request: when it has arrived, so has the head. A failure is told to nobody any more.
            let _ = self.probe();
        }
    }

    /// Whether what [`Consumer::leave`] has told is known to have arrived, or cannot arrive any more.
    pub(crate) fn has_left(&mut self) -> bool {
        self.link.check().is_err() || self.link.poll().is_err() || !self.link.is_probing()
    }
}
