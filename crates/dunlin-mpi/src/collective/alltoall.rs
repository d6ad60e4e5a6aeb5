//! Alltoall by pairwise exchange: in step k each rank sends to the one that is k after it, and receives from the one
//! that is k before it.

use super::{check_elements, Collective};
use crate::element::{read_elements, write_elements, Element};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Sends the i-th block of `send` to rank i, and receives its block for this rank as the i-th of `receive`
    /// (`MPI_Alltoall`). Both have the same length, a multiple of the number of ranks, which is the same everywhere.
    ///
    /// # Errors
    /// When the lengths do not fit, a rank has left, was lost, is in another collective, or passes another length.
    pub fn alltoall<T: Element>(&mut self, send: &[T], receive: &mut [T]) -> Result<(), MpiError> {
        let mut running = self.begin(Collective::Alltoall, 0)?;
        let (rank, size) = (running.rank(), running.size());
        let each = send.len() / size;
        check_elements("the buffer to send", send.len(), each * size)?;
        check_elements("the buffer to receive", receive.len(), send.len())?;
        receive[rank * each..][..each].copy_from_slice(&send[rank * each..][..each]);
        let mut ours = Vec::new();
        let mut theirs = vec![0; each * T::BYTES];
        for step in 1..size {
            let (dest, source) = (running.after(step), running.after(size - step));
            write_elements(&send[dest * each..][..each], &mut ours);
            running.exchange(dest, &ours, source, &mut theirs)?;
            read_elements(&theirs, &mut receive[source * each..][..each]);
        }
        Ok(())
    }
}
