//! Parsing of the next message: its header is read once, checked, and then used.

use dunlin_verbs::Device;

use super::{Arrival, ConsumerCore, Received};
use crate::effort;
use crate::error::{RingError, Violation};
use crate::framing::HEADER_BYTES;
use crate::framing::{self, Header};
use crate::link::RingLink;

impl<D: Device> ConsumerCore<D> {
    /// Returns the next message, checked.
    #[inline(always)]
    pub(super) fn next(
        &mut self,
        link: &mut impl RingLink<D>,
    ) -> Result<Received<Arrival>, RingError> {
        link.check_process()?;
        loop {
            if self.receiver.available() == 0 && !self.look(link)? {
                return self.nothing(link);
            }
            match self.parse() {
                Ok(Some(arrival)) => {
                    D::charge(effort::READ);
                    return Ok(Received::Message(arrival));
                }
                Ok(None) => self.skip(link)?,
                Err(violation) => return Err(self.violation(link, violation)),
            }
        }
    }

    /// Reads the header of the next message; `None` if the rest of the array is to be skipped.
    #[inline(always)]
    pub(super) fn parse(&self) -> Result<Option<Arrival>, Violation> {
        let head = self.receiver.head();
        let offset = self.geometry.offset(head);
        let length = if self.geometry.has_header() {
            match framing::decode(self.array.word(offset)) {
                Header::Nothing => return Err(Violation::Header),
                Header::Skip => return self.check_skip(self.geometry.units),
                Header::Length(length) => length,
            }
        } else {
            self.geometry.fixed_bytes().unwrap_or_default()
        };
        if !self.geometry.carries(length) {
            return Err(self.wrong_length(length));
        }
        let units = self.geometry.units_of(length);
        if self.geometry.skip(head, units) > 0 {
            if self.geometry.has_header() {
                return Err(self.wrong_length(length));
            }
            return self.check_skip(units);
        }
        if units > self.receiver.available() {
            return Err(self.wrong_length(length));
        }
        if !self.geometry.spans {
            self.check_link(offset, head + units)?;
        }
        self.prefetch_behind(offset);
        Ok(Some(Arrival {
            offset: offset + self.geometry.prefix,
            length,
            units,
        }))
    }

    #[cold]
    pub(super) fn wrong_length(&self, length: usize) -> Violation {
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        Violation::Length {
            length: length as u64,
            limit: self.geometry.longest.min(there) as u64,
        }
    }

    /// A skip extends to the end of the array, all of which must have been written.
    #[cold]
    pub(super) fn check_skip(&self, units: u64) -> Result<Option<Arrival>, Violation> {
        let skip = self.units_to_end();
        if skip > self.receiver.available() || units <= 1 || !self.geometry.spans {
            return Err(Violation::Header);
        }
        Ok(None)
    }

    pub(super) fn units_to_end(&self) -> u64 {
        self.geometry.units - self.geometry.index(self.receiver.head())
    }

    /// The list never changes, so a link has only one valid target.
    #[inline]
    pub(super) fn check_link(&self, offset: usize, next: u64) -> Result<(), Violation> {
        let slots = self.geometry.units;
        let link = framing::decode(self.array.word(offset + HEADER_BYTES));
        match link {
            Header::Length(slot) if slot as u64 == self.geometry.index(next) => Ok(()),
            Header::Length(slot) => Err(Violation::Link {
                slot: slot as u64,
                slots,
            }),
            Header::Nothing | Header::Skip => Err(Violation::Link { slot: slots, slots }),
        }
    }

    #[cold]
    pub(super) fn skip(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        let units = self.units_to_end();
        let offset = self.geometry.offset(self.receiver.head());
        if self.design.polls_messages() {
            self.array.zero(offset, HEADER_BYTES);
        }
        if self.receiver.read(units) {
            self.push_head(link)?;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn violation(&self, link: &mut impl RingLink<D>, violation: Violation) -> RingError {
        link.fail(violation.into())
    }
}
