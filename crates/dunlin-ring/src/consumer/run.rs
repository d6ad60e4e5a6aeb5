//! Runs of adjacent messages, one per slot, for which the common checks are done only once.

use dunlin_verbs::Device;

use super::look::AHEAD_BYTES;
use super::ConsumerCore;
use crate::effort;
use crate::error::RingError;
use crate::framing::{self, Header};
use crate::link::RingLink;
use crate::memory::Message;
use crate::policy::Receiver;

/// Progress within a run. It takes effect when dropped, hence also when the reader panics.
struct Progress<'a> {
    receiver: &'a mut Receiver,
    count: u64,
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.receiver.read(self.count);
    }
}

impl<D: Device> ConsumerCore<D> {
    /// Passes the next messages to `read`, up to `most`, as long as each occupies a single slot and nothing else is to
    /// be done. Returns their number: zero if nothing is known to have arrived, or the next message needs the general
    /// path.
    #[inline(always)]
    pub(super) fn read_run(
        &mut self,
        link: &mut impl RingLink<D>,
        most: usize,
        read: &mut impl FnMut(Message<'_>),
    ) -> Result<usize, RingError> {
        if !self.runs {
            return Ok(0);
        }
        let run = self
            .receiver
            .until_push()
            .min(most as u64)
            .min(self.units_to_end());
        let count = match self.geometry.fixed_bytes() {
            Some(length) => self.read_slots(run, read, |_| Some(length)),
            None => {
                let most = self.geometry.longest_single();
                let header = |word| match framing::decode(word) {
                    Header::Length(length) if length <= most => Some(length),
                    _ => None,
                };
                self.read_slots(run, read, header)
            }
        };
        if count > 0 {
            D::charge(effort::READ);
        }
        if self.receiver.push_is_due() {
            self.push_head(link)?;
        }
        Ok(count as usize)
    }

    /// Reads `run` slots, up to the first whose header `length_of` does not accept.
    #[inline(always)]
    fn read_slots(
        &mut self,
        run: u64,
        read: &mut impl FnMut(Message<'_>),
        length_of: impl Fn(u64) -> Option<usize>,
    ) -> u64 {
        let (unit, prefix) = (self.geometry.unit_bytes, self.geometry.prefix);
        let mut offset = self.geometry.offset(self.receiver.head());
        let there = self.receiver.available().min(self.units_to_end()) as usize;
        // Further lines of what has arrived are prefetched while these are read.
        let mut ahead = offset + AHEAD_BYTES;
        let end = offset + there * unit;
        let mut progress = Progress {
            receiver: &mut self.receiver,
            count: 0,
        };
        while progress.count < run {
            let word = if prefix == 0 {
                0
            } else {
                self.array.word(offset)
            };
            let Some(length) = length_of(word) else { break };
            if ahead < end {
                self.array.prefetch(ahead);
            }
            D::charge(effort::READ_QUIETLY);
            read(self.array.message(offset + prefix, length));
            progress.count += 1;
            offset += unit;
            ahead += unit;
        }
        progress.count
    }
}
