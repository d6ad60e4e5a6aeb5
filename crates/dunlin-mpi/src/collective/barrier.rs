//! Barrier by dissemination (Hensgen, Finkel and Manber): in round k each rank tells the one that is 2^k after it.

use super::Collective;
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Waits until all ranks have called it (`MPI_Barrier`).
    ///
    /// # Errors
    /// When a rank has left, was lost, or is in another collective.
    pub fn barrier(&mut self) -> Result<(), MpiError> {
        let mut running = self.begin(Collective::Barrier, 0)?;
        let mut distance = 1;
        while distance < running.size() {
            let (dest, source) = (
                running.after(distance),
                running.after(running.size() - distance),
            );
            running.exchange(dest, &[], source, &mut [])?;
            distance *= 2;
        }
        Ok(())
    }
}
