//! Reduce along a binomial tree: each position combines what those above it in its subtree send, and passes it down.

use super::Collective;
use crate::element::{read_elements, write_elements, Element, Number, Op};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Combines the elements of all ranks at `root`, each with those of the same index (`MPI_Reduce`). `elements` has
    /// the same length everywhere; at the root it becomes the result, elsewhere its contents are unspecified
    /// afterwards.
    ///
    /// # Errors
    /// When there is no such rank, a rank has left, was lost, is in another collective, or passes another length.
    pub fn reduce<T: Number>(
        &mut self,
        root: usize,
        elements: &mut [T],
        op: Op,
    ) -> Result<(), MpiError> {
        self.reduce_with(root, elements, |one, other| op.apply(one, other))
    }

    /// As [`World::reduce`], with an operation of the caller, which must be associative and commutative.
    ///
    /// # Errors
    /// As for [`World::reduce`].
    pub fn reduce_with<T: Element>(
        &mut self,
        root: usize,
        elements: &mut [T],
        op: impl Fn(T, T) -> T,
    ) -> Result<(), MpiError> {
        let mut running = self.begin(Collective::Reduce, root)?;
        let (size, position) = (running.size(), running.position(root));
        let mut bytes = vec![0; elements.len() * T::BYTES];
        let mut others = vec![T::ZERO; elements.len()];
        let mut bit = 1;
        while bit < size {
            if position & bit != 0 {
                write_elements(elements, &mut bytes);
                return running.send(running.at(position - bit, root), &bytes);
            }
            if position + bit < size {
                running.receive(running.at(position + bit, root), &mut bytes)?;
                read_elements(&bytes, &mut others);
                combine(elements, &others, &op);
            }
            bit *= 2;
        }
        Ok(())
    }
}

/// Combines elements with others on their right.
pub(super) fn combine<T: Element>(elements: &mut [T], others: &[T], op: &impl Fn(T, T) -> T) {
    let pairs = elements.iter_mut().zip(others);
    pairs.for_each(|(one, other)| *one = op(*one, *other));
}
