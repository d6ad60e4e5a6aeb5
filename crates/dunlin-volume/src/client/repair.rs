//! What makes copies equal: those that an open finds, and one that comes back.
//!
//! Everything here can be done twice and be left half done: of a block the highest version counts, at every copy.

use super::link::{repaired, Copied, Link};
use super::VolumeError;
use crate::types::{Shape, Version};
use crate::wire::{BlockState, Chunks};

/// Digests that are asked for at once.
const DIGESTS_AT_ONCE: u64 = 1 << 14;

/// The servers of a volume, those that can be had, and the epoch in which they are asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    pub(super) shape: &'a Shape,
    pub(super) epoch: u64,
    pub(super) links: &'a [Option<Link>],
}

impl<'a> Members<'a> {
    fn link(&self, server: usize) -> Option<&'a Link> {
        self.links.get(server)?.as_ref()
    }

    /// The servers of a set that can be had.
    fn of(&self, set: u64) -> impl Iterator<Item = (usize, &'a Link)> + '_ {
        let servers = (0..self.links.len()).filter(move |server| set & 1 << server != 0);
        servers.filter_map(|server| Some((server, self.link(server)?)))
    }

    /// Calls `differs` for each chunk of which members of `among` that have it do not have the same.
    fn compare(
        &self,
        among: u64,
        mut differs: impl FnMut(u64) -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        let chunks = self.shape.chunks();
        for first in (0..chunks).step_by(DIGESTS_AT_ONCE as usize) {
            let count = (chunks - first).min(DIGESTS_AT_ONCE) as u32;
            let asked = Chunks {
                volume: self.shape.id,
                epoch: self.epoch,
                first,
                count,
            };
            let mut digests = vec![Vec::new(); self.links.len()];
            for (server, link) in self.of(among) {
                digests[server] = link.digests(&asked)?;
            }
            for nth in 0..u64::from(count) {
                let set = self.shape.set_of(first + nth) & among;
                let mut have = self
                    .of(set)
                    .map(|(server, _)| digests[server][nth as usize]);
                let one = have.next();
                if have.any(|other| Some(other) != one) {
                    differs(first + nth)?;
                }
            }
        }
        Ok(())
    }

    /// Makes all members of a set of servers have the same of every chunk: of each block the highest version that any
    /// of them has. While nobody else writes.
    pub(super) fn settle(&self, among: u64) -> Result<(), VolumeError> {
        self.compare(among, |chunk| self.settle_chunk(chunk, among))
    }

    fn settle_chunk(&self, chunk: u64, among: u64) -> Result<(), VolumeError> {
        let members: Vec<_> = self.of(self.shape.set_of(chunk) & among).collect();
        let mut states = Vec::new();
        for (_, link) in &members {
            states.push(link.states(self.shape, self.epoch, chunk, false)?);
        }
        let first = chunk * u64::from(self.shape.chunk_blocks);
        let blocks = states.first().map_or(0, Vec::len);
        let version = |member: usize, nth: usize| states[member][nth].version;
        let newest = |nth: usize| (0..members.len()).max_by_key(|member| version(*member, nth));
        for (source, (_, from)) in members.iter().enumerate() {
            let is_behind = |member: usize, nth: usize| version(member, nth) < version(source, nth);
            let wanted = (0..blocks).filter(|nth| newest(*nth) == Some(source));
            let wanted =
                wanted.filter(|nth| (0..members.len()).any(|other| is_behind(other, *nth)));
            let wanted: Vec<u64> = wanted.map(|nth| first + nth as u64).collect();
            let copied = from.read(self.shape.id, self.epoch, &wanted)?;
            if copied.is_empty() {
                continue;
            }
            for (_, to) in members
                .iter()
                .filter(|(server, _)| *server != members[source].0)
            {
                to.write(self.shape.id, self.epoch, &copied)?;
            }
        }
        Ok(())
    }

    /// Brings one server up to date with those of `in_sync`, while the owner of the epoch writes to all of them.
    ///
    /// Every block of which it has less is copied as it is: whatever is written meanwhile is newer. Of a block of which
    /// it has more than they have, written before the epoch began, the others' content counts, because the owner may
    /// have read it; it gets a version that is above the stale one, and below all that the owner writes.
    pub(super) fn bring(&self, server: usize, in_sync: u64) -> Result<(), VolumeError> {
        let Some(target) = self.link(server) else {
            return Ok(());
        };
        for source in 0..self.links.len() {
            let Some(from) = self.link(source).filter(|_| in_sync & 1 << source != 0) else {
                continue;
            };
            self.compare(1 << server | 1 << source, |chunk| {
                // Each chunk is copied from the first that has it.
                let set = self.shape.set_of(chunk);
                let is_first = (set & in_sync).trailing_zeros() as usize == source;
                match is_first && set & 1 << server != 0 {
                    true => self.bring_chunk(chunk, (target, from), set & in_sync),
                    false => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    fn bring_chunk(
        &self,
        chunk: u64,
        (target, source): (&Link, &Link),
        others: u64,
    ) -> Result<(), VolumeError> {
        let (shape, epoch) = (self.shape, self.epoch);
        let has = target.states(shape, epoch, chunk, false)?;
        let wants = source.states(shape, epoch, chunk, false)?;
        let first = chunk * u64::from(shape.chunk_blocks);
        let pairs = || (first..).zip(has.iter().zip(&wants));
        let behind: Vec<u64> = pairs()
            .filter(|(_, (has, wants))| has.version < wants.version)
            .map(|(block, _)| block)
            .collect();
        target.write(shape.id, epoch, &source.read(shape.id, epoch, &behind)?)?;
        let is_stale = |has: &BlockState, wants: &BlockState| {
            has.version > wants.version && has.version.epoch() < epoch
        };
        let stale: Vec<u64> = pairs()
            .filter(|(_, (has, wants))| is_stale(has, wants))
            .map(|(block, _)| block)
            .collect();
        let mended = source.read(shape.id, epoch, &stale)?;
        let mended: Vec<Copied> = mended.into_iter().map(|one| repaired(one, epoch)).collect();
        if !mended.is_empty() {
            for (_, other) in self.of(others) {
                other.write(shape.id, epoch, &mended)?;
            }
            target.write(shape.id, epoch, &mended)?;
        }
        Ok(())
    }
}

/// What a look at all copies has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Blocks that were looked at, each at all of its copies.
    pub blocks: u64,
    /// Blocks that were ever written.
    pub written: u64,
    /// Blocks of which copies differ, or one is not what was written to it. The first thousand.
    pub faults: Vec<u64>,
}

/// Most faults that are named.
const MOST_FAULTS: usize = 1000;

/// Reads all blocks of all copies where they are, and compares them.
pub(super) fn compare_all(members: &Members<'_>) -> Result<Findings, VolumeError> {
    let mut findings = Findings::default();
    let shape = members.shape;
    for chunk in 0..shape.chunks() {
        let mut states = Vec::new();
        for (_, link) in members.of(shape.set_of(chunk)) {
            states.push(link.states(shape, 0, chunk, true)?);
        }
        let Some((one, others)) = states.split_first() else {
            continue;
        };
        let first = chunk * u64::from(shape.chunk_blocks);
        for (nth, state) in one.iter().enumerate() {
            findings.blocks += 1;
            let is_written = |state: &BlockState| state.version != Version::default();
            let mut all = states.iter().map(|states| &states[nth]);
            findings.written += u64::from(all.any(is_written));
            let differs = others.iter().any(|other| other[nth] != *state);
            if differs && findings.faults.len() < MOST_FAULTS {
                findings.faults.push(first + nth as u64);
            }
        }
    }
    Ok(findings)
}
