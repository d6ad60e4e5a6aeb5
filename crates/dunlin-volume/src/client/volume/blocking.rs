//! One operation at a time, waited for.

use super::super::VolumeError;
use super::{Operation, Volume, LONGEST_SLEEP, OWN_TAGS};

impl Volume {
    /// Waits for one request of its own; others that end meanwhile are there for [`Volume::poll`].
    pub(super) fn run(
        &mut self,
        operation: Operation<'_>,
        offset: u64,
    ) -> Result<Vec<u8>, VolumeError> {
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1) | OWN_TAGS;
        let mut is_begun = self.begin(operation, offset, tag)?;
        loop {
            if let Some(at) = self.done.iter().position(|done| done.tag == tag) {
                return self
                    .done
                    .remove(at)
                    .map_or(Ok(Vec::new()), |done| done.result);
            }
            self.turn();
            if !is_begun {
                is_begun = self.begin(operation, offset, tag)?;
            }
            if !self.done.iter().any(|done| done.tag == tag) {
                let rested = self.rest(&[], LONGEST_SLEEP);
                rested.map_err(|error| VolumeError::system(&error))?;
                self.act();
            }
        }
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// See [`VolumeError`].
    pub fn read_at(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
        self.run(Operation::Read(length as u64), offset)
    }

    /// Writes bytes: when it returns they are at all copies that can be had, and at a majority.
    ///
    /// # Errors
    /// See [`VolumeError`]. Whether the bytes are there then is not known before they were read.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.run(Operation::Write(bytes), offset).map(drop)
    }

    /// Makes bytes zeros that take no room.
    ///
    /// # Errors
    /// As for [`Volume::write_at`].
    pub fn trim(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.run(Operation::Trim(length), offset).map(drop)
    }
}
