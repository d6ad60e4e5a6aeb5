//! Scatter along a binomial tree: each position passes on the blocks of the subtrees above it.

use super::{check_elements, Collective};
use crate::element::{read_elements, write_elements, Element};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Distributes the elements of `root`: each rank gets as many as `elements` has, in the order of the ranks
    /// (`MPI_Scatter`). `elements` has the same length everywhere; at the root `all` has that length times the number
    /// of ranks, elsewhere it is not used and may be empty.
    ///
    /// # Errors
    /// As for [`World::gather`].
    pub fn scatter<T: Element>(
        &mut self,
        root: usize,
        all: &[T],
        elements: &mut [T],
    ) -> Result<(), MpiError> {
        let each = elements.len();
        let mut running = self.begin(Collective::Scatter, root)?;
        let (size, position) = (running.size(), running.position(root));
        let block = each * T::BYTES;
        let mut bit = 1;
        while bit < size && position & bit == 0 {
            bit *= 2;
        }
        // The blocks of the positions of this subtree, in their order.
        let mut blocks = vec![0; bit.min(size - position) * block];
        if position == 0 {
            check_elements("the buffer with all elements", all.len(), each * size)?;
            let mut bytes = Vec::new();
            for at in 0..size {
                let rank = running.at(at, root);
                write_elements(&all[rank * each..][..each], &mut bytes);
                blocks[at * block..][..block].copy_from_slice(&bytes);
            }
        } else {
            running.receive(running.at(position - bit, root), &mut blocks)?;
        }
        while bit > 1 {
            bit /= 2;
            if position + bit < size {
                let count = bit.min(size - position - bit);
                let part = &blocks[bit * block..][..count * block];
                running.send(running.at(position + bit, root), part)?;
            }
        }
        read_elements(&blocks[..block], elements);
        Ok(())
    }
}
