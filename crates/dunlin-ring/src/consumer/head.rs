//! Freeing slots: the head and its lazy push (RB² §IV-A).

use std::sync::atomic::{fence, Ordering};

use dunlin_verbs::{Device, Region, Work};

use super::ConsumerCore;
use crate::design::{HeadSync, TailSync};
use crate::effort;
use crate::error::RingError;
use crate::link::{write_inline, RingLink, NAMELESS};

impl<D: Device> ConsumerCore<D> {
    /// Frees the units of a message.
    #[inline(always)]
    pub(super) fn give_back(
        &mut self,
        link: &mut impl RingLink<D>,
        offset: usize,
        length: usize,
        units: u64,
    ) -> Result<(), RingError> {
        link.check_process()?;
        if self.design.polls_messages() {
            let start = offset - self.geometry.prefix;
            let whole = self.geometry.prefix + length + self.geometry.suffix;
            self.array.zero(start, whole);
            D::charge(Work::Copy(whole));
            D::charge(effort::ZEROED);
        }
        if self.receiver.read(units) {
            self.push_head(link)?;
        }
        Ok(())
    }

    /// Tells the producer how far this side has read. If the send queue is full, the next call does it.
    #[inline(never)]
    pub(super) fn push_head(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        // All reads must be complete before the producer may write there again.
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
        // The head and a wake-up.
        if !link.has_entries(2) {
            // Completions of RECEIVEs cannot be lost here: designs with them poll in `notified` before they read.
            if self.design.tail_sync == TailSync::CompletionQueue {
                return Ok(());
            }
            if link.poll().is_err() || !link.has_entries(2) {
                return Ok(());
            }
        }
        if write_inline(link, self.peer_head, &head, (NAMELESS, false)).is_ok() {
            self.receiver.pushed();
            let _ = link.wake_if_asleep(NAMELESS);
        }
        // If the connection has failed, that is reported when there is nothing left to read.
        Ok(())
    }
}
