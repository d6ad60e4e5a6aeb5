//! Blocking calls, one operation at a time.

use super::super::VolumeError;
use super::{Operation, Volume, LONGEST_SLEEP, OWN_TAGS};

impl Volume {
    /// Waits for a request of its own; others that end meanwhile are left for [`Volume::poll`].
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

    /// Writes bytes: when it returns they are on all available copies, and on a majority.
    ///
    /// # Errors
    /// See [`VolumeError`]. It is then unknown whether the bytes were written, until they are read.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.run(Operation::Write(bytes), offset).map(drop)
    }

    /// Turns bytes into zeros, which take no space.
    ///
    /// # Errors
    /// As for [`Volume::write_at`].
    pub fn trim(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.run(Operation::Trim(length), offset).map(drop)
    }
}
