//! Allreduce by recursive doubling: in each round, pairs of ranks exchange what they have combined so far.
//!
//! Where the number of ranks is not a power of two, the first ones pair up before: of each such pair, one passes its
//! elements to the other and waits for the result (Thakur, Rabenseifner and Gropp, 2005).

use super::reduce::combine;
use super::{Collective, Running};
use crate::element::{read_elements, write_elements, Element, Number, Op};
use crate::error::MpiError;
use crate::world::World;

impl World {
    /// Combines the elements of all ranks, each with those of the same index, and gives all of them the result
    /// (`MPI_Allreduce`). `elements` has the same length everywhere. All ranks get the same bits, also of floats.
    ///
    /// # Errors
    /// When a rank has left, was lost, is in another collective, or passes another length.
    pub fn allreduce<T: Number>(&mut self, elements: &mut [T], op: Op) -> Result<(), MpiError> {
        self.allreduce_with(elements, |one, other| op.apply(one, other))
    }

    /// As [`World::allreduce`], with an operation of the caller, which must be associative. Elements are combined in
    /// the order of the ranks.
    ///
    /// # Errors
    /// As for [`World::allreduce`].
    pub fn allreduce_with<T: Element>(
        &mut self,
        elements: &mut [T],
        op: impl Fn(T, T) -> T,
    ) -> Result<(), MpiError> {
        let running = self.begin(Collective::Allreduce, 0)?;
        let length = elements.len();
        let mut doubling = Doubling {
            running,
            elements,
            others: vec![T::ZERO; length],
            ours: Vec::new(),
            theirs: vec![0; length * T::BYTES],
            op,
        };
        doubling.run()
    }
}

struct Doubling<'a, T, F> {
    running: Running<'a>,
    elements: &'a mut [T],
    others: Vec<T>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
    op: F,
}

impl<T: Element, F: Fn(T, T) -> T> Doubling<'_, T, F> {
    fn run(&mut self) -> Result<(), MpiError> {
        let (rank, size) = (self.running.rank(), self.running.size());
        let power = 1 << size.ilog2();
        // The first ranks that do not take part themselves, and their partners.
        let paired = 2 * (size - power);
        if rank < paired && rank % 2 == 0 {
            self.send(rank + 1)?;
            self.running.receive(rank + 1, &mut self.theirs)?;
            read_elements(&self.theirs, self.elements);
            return Ok(());
        }
        if rank < paired {
            self.running.receive(rank - 1, &mut self.theirs)?;
            self.combine(true);
        }
        let number = if rank < paired {
            rank / 2
        } else {
            rank - paired / 2
        };
        let mut bit = 1;
        while bit < power {
            let partner = number ^ bit;
            let other = if partner < paired / 2 {
                2 * partner + 1
            } else {
                partner + paired / 2
            };
            write_elements(self.elements, &mut self.ours);
            self.running
                .exchange(other, &self.ours, other, &mut self.theirs)?;
            self.combine(other < rank);
            bit *= 2;
        }
        if rank < paired {
            self.send(rank - 1)?;
        }
        Ok(())
    }

    fn send(&mut self, dest: usize) -> Result<(), MpiError> {
        write_elements(self.elements, &mut self.ours);
        self.running.send(dest, &self.ours)
    }

    /// Combines what was received, on the left if its ranks are lower.
    fn combine(&mut self, is_left: bool) {
        read_elements(&self.theirs, &mut self.others);
        if is_left {
            combine(self.elements, &self.others, &|one, other| {
                (self.op)(other, one)
            });
        } else {
            combine(self.elements, &self.others, &self.op);
        }
    }
}
