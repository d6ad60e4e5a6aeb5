//! Broadcast along a binomial tree: who has the data passes it on to ever nearer positions.

use super::{Collective, Running};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Sends the bytes of `root` to all ranks (`MPI_Bcast`). `bytes` has the same length everywhere; except at the root
    /// its contents are replaced.
    ///
    /// # Errors
    /// When there is no such rank, a rank has left, was lost, is in another collective, or passes another length.
    pub fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), MpiError> {
        self.begin(Collective::Broadcast, root)?.spread(root, bytes)
    }
}

impl Running<'_> {
    fn spread(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), MpiError> {
        let (size, position) = (self.size(), self.position(root));
        // A position receives from the one without its lowest bit.
        let mut bit = 1;
        while bit < size && position & bit == 0 {
            bit *= 2;
        }
        if position != 0 {
            self.receive(self.at(position - bit, root), bytes)?;
        }
        while bit > 1 {
            bit /= 2;
            if position + bit < size {
                self.send(self.at(position + bit, root), bytes)?;
            }
        }
        Ok(())
    }
}
