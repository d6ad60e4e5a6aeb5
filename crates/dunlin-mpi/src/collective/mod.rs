//! Collective operations: every rank calls the same ones in the same order.
//!
//! | operation | algorithm | messages of a rank |
//! |---|---|---|
//! | barrier | dissemination | ⌈log₂ n⌉ |
//! | broadcast, reduce | binomial tree | at most ⌈log₂ n⌉ |
//! | allreduce | recursive doubling | ⌊log₂ n⌋, and 2 where n is no power of two |
//! | gather, scatter | binomial tree, with the blocks of a subtree in one message | at most ⌈log₂ n⌉ |
//! | allgather | ring | n - 1 |
//! | alltoall | pairwise exchange | n - 1 |
//!
//! Their messages have a context of their own, so they match no receive of the user. A rank receives them from a known
//! source in a known order; their tags contain the kind of collective and its number, so ranks that are in different
//! ones find out.

mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod gather;
mod reduce;
mod scatter;

use crate::error::MpiError;
use crate::selection::{Source, Tag};
use crate::wire::Context;
use crate::world::World;

/// The kinds of collectives, as the high bits of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collective {
    Barrier = 1,
    Broadcast = 2,
    Reduce = 3,
    Allreduce = 4,
    Gather = 5,
    Scatter = 6,
    Allgather = 7,
    Alltoall = 8,
}

/// One collective in progress.
#[derive(Debug)]
struct Running<'w> {
    world: &'w mut World,
    tag: u32,
}

impl World {
    /// Begins a collective, with a root if it has one: ranks that name different roots are in different collectives.
    fn begin(&mut self, kind: Collective, root: usize) -> Result<Running<'_>, MpiError> {
        self.check_rank(root)?;
        self.collectives = self.collectives.wrapping_add(1);
        // Four bits of kind, eight of the root, the rest for the number.
        let tag = (kind as u32) << 28 | (root as u32 & 0xff) << 20 | self.collectives & 0xf_ffff;
        Ok(Running { world: self, tag })
    }
}

impl Running<'_> {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn size(&self) -> usize {
        self.world.size()
    }

    /// The rank that is `by` after this one, around the end.
    fn after(&self, by: usize) -> usize {
        (self.rank() + by) % self.size()
    }

    /// The position of this rank in a tree whose root has position 0.
    fn position(&self, root: usize) -> usize {
        (self.rank() + self.size() - root) % self.size()
    }

    /// The rank at a position of that tree.
    fn at(&self, position: usize, root: usize) -> usize {
        (position + root) % self.size()
    }

    fn send(&mut self, dest: usize, bytes: &[u8]) -> Result<(), MpiError> {
        let send = Some((dest, self.tag, bytes));
        self.world
            .exchange(Context::Collective, send, None, None)
            .map(drop)
    }

    /// Receives a message of exactly the buffer's length.
    fn receive(&mut self, source: usize, buffer: &mut [u8]) -> Result<(), MpiError> {
        self.swap(None, source, buffer)
    }

    /// Sends a message to `dest` while it receives one of exactly the buffer's length from `source`.
    fn exchange(
        &mut self,
        dest: usize,
        bytes: &[u8],
        source: usize,
        buffer: &mut [u8],
    ) -> Result<(), MpiError> {
        self.swap(Some((dest, self.tag, bytes)), source, buffer)
    }

    fn swap(
        &mut self,
        send: Option<(usize, u32, &[u8])>,
        source: usize,
        buffer: &mut [u8],
    ) -> Result<(), MpiError> {
        let expected = buffer.len();
        let receive = (Source::Rank(source), Tag::Any, buffer);
        let received = self
            .world
            .exchange_one(Context::Collective, send, receive, None);
        let mismatch = MpiError::CollectiveMismatch { rank: source };
        match received {
            Ok(status) if status.tag == self.tag && status.bytes == expected => Ok(()),
            Ok(_) | Err(MpiError::Truncated { .. }) => Err(mismatch),
            Err(error) => Err(error),
        }
    }
}

/// Checks the length of a buffer in elements.
fn check_elements(what: &'static str, found: usize, expected: usize) -> Result<(), MpiError> {
    match found == expected {
        true => Ok(()),
        false => Err(MpiError::Length {
            what,
            found,
            expected,
        }),
    }
}
