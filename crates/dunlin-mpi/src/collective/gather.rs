//! Gather along a binomial tree, and allgather around a ring.

use super::{check_elements, Collective};
use crate::element::{read_elements, write_elements, Element};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Collects the elements of all ranks at `root`, in the order of the ranks (`MPI_Gather`). `elements` has the same
    /// length everywhere; at the root `all` has that length times the number of ranks, elsewhere it is not used and may
    /// be empty.
    ///
    /// # Errors
    /// When a buffer has the wrong length, there is no such rank, a rank has left, was lost, is in another collective,
    /// or passes another length.
    pub fn gather<T: Element>(
        &mut self,
        root: usize,
        elements: &[T],
        all: &mut [T],
    ) -> Result<(), MpiError> {
        let each = elements.len();
        let mut running = self.begin(Collective::Gather, root)?;
        let (size, position) = (running.size(), running.position(root));
        if position == 0 {
            check_elements("the buffer for all elements", all.len(), each * size)?;
        }
        let block = each * T::BYTES;
        // The blocks of the positions of this subtree, in their order.
        let mut blocks = Vec::new();
        write_elements(elements, &mut blocks);
        let mut bit = 1;
        while bit < size {
            if position & bit != 0 {
                return running.send(running.at(position - bit, root), &blocks);
            }
            if position + bit < size {
                let count = bit.min(size - position - bit);
                let from = blocks.len();
                blocks.resize(from + count * block, 0);
                running.receive(running.at(position + bit, root), &mut blocks[from..])?;
            }
            bit *= 2;
        }
        for (position, elements) in (0..size).zip(blocks.chunks_exact(block.max(1))) {
            let rank = running.at(position, root);
            read_elements(elements, &mut all[rank * each..][..each]);
        }
        Ok(())
    }

    /// Collects the elements of all ranks everywhere, in the order of the ranks (`MPI_Allgather`). `elements` has the
    /// same length everywhere, and `all` that length times the number of ranks.
    ///
    /// # Errors
    /// As for [`World::gather`].
    pub fn allgather<T: Element>(&mut self, elements: &[T], all: &mut [T]) -> Result<(), MpiError> {
        let each = elements.len();
        let mut running = self.begin(Collective::Allgather, 0)?;
        let (rank, size) = (running.rank(), running.size());
        check_elements("the buffer for all elements", all.len(), each * size)?;
        all[rank * each..][..each].copy_from_slice(elements);
        let mut ours = Vec::new();
        write_elements(elements, &mut ours);
        let mut theirs = vec![0; ours.len()];
        let (next, previous) = (running.after(1), running.after(size - 1));
        for step in 1..size {
            running.exchange(next, &ours, previous, &mut theirs)?;
            let origin = running.after(size - step);
            read_elements(&theirs, &mut all[origin * each..][..each]);
            std::mem::swap(&mut ours, &mut theirs);
        }
        Ok(())
    }
}
