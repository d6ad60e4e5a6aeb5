//! Makes copies equal: those that an open finds, and one that comes back.
//!
//! Everything here can be repeated or left unfinished: for each block the highest version counts, on every copy. So the
//! caller is asked between two steps, each of a few calls, whether to continue.

use super::link::{repaired, Copied, Link, AT_ONCE};
use super::VolumeError;
use crate::types::{Shape, Version};
use crate::wire::{BlockState, Chunks};

/// Maximum number of digests requested at once.
const DIGESTS_AT_ONCE: u64 = 1 << 14;

/// Called before each step; its error ends the operation.
pub(super) type GoesOn<'a> = &'a mut dyn FnMut() -> Result<(), VolumeError>;

/// The available servers of a volume, and the epoch of the requests to them.
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

    /// The available servers of a set.
    fn of(&self, set: u64) -> impl Iterator<Item = (usize, &'a Link)> + '_ {
        let servers = (0..self.links.len()).filter(move |server| set & 1 << server != 0);
        servers.filter_map(|server| Some((server, self.link(server)?)))
    }

    /// Calls `differs` for each chunk in which those members of `among` that have it differ.
    fn compare(
        &self,
        among: u64,
        goes_on: GoesOn<'_>,
        mut differs: impl FnMut(u64, GoesOn<'_>) -> Result<(), VolumeError>,
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
                goes_on()?;
                digests[server] = link.digests(&asked)?;
            }
            for nth in 0..u64::from(count) {
                let set = self.shape.set_of(first + nth) & among;
                let mut have = self
                    .of(set)
                    .map(|(server, _)| digests[server][nth as usize]);
                let one = have.next();
                if have.any(|other| Some(other) != one) {
                    goes_on()?;
                    differs(first + nth, goes_on)?;
                }
            }
        }
        Ok(())
    }

    /// Makes all members of a set of servers equal in every chunk, while nobody else writes. `settled` gives the epoch
    /// in which each server was last made equal. The highest version counts among those for which this epoch is the
    /// latest: additional data of another server is from an earlier owner, was not acknowledged, and was not read by
    /// the owners since.
    pub(super) fn settle(
        &self,
        among: u64,
        settled: &[u64],
        goes_on: GoesOn<'_>,
    ) -> Result<(), VolumeError> {
        self.compare(among, goes_on, |chunk, goes_on| {
            let members = self.shape.set_of(chunk) & among;
            let epochs = || {
                self.of(members)
                    .map(|(server, _)| (server, settled[server]))
            };
            let last = epochs().map(|(_, epoch)| epoch).max();
            let counting = epochs().filter(|(_, epoch)| Some(*epoch) == last);
            let counting = counting.fold(0, |set, (server, _)| set | 1 << server);
            self.level(chunk, counting, members, goes_on)
        })
    }

    /// Brings one server up to date with those of `in_sync`, while the owner of the epoch writes to all of them.
    ///
    /// Copying blocks as they are does no harm: everything written meanwhile is newer.
    pub(super) fn bring(
        &self,
        server: usize,
        in_sync: u64,
        goes_on: GoesOn<'_>,
    ) -> Result<(), VolumeError> {
        for (source, _) in self.of(in_sync) {
            self.compare(1 << server | 1 << source, goes_on, |chunk, goes_on| {
                // Each chunk is compared with the first server that has it.
                let set = self.shape.set_of(chunk);
                let is_first = (set & in_sync).trailing_zeros() as usize == source;
                match is_first && set & 1 << server != 0 {
                    true => {
                        let members = set & in_sync | 1 << server;
                        self.level(chunk, set & in_sync, members, goes_on)
                    }
                    false => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Makes members equal in a chunk to those of `counting`, which are among them.
    ///
    /// Every block of which a member has an older version than one that counts is copied as it is. If a member has a
    /// newer version, written before the epoch began, the version of those that count prevails, because an owner may
    /// have read it; the block gets a version above the stale one, and below everything that the owner of this epoch
    /// writes.
    fn level(
        &self,
        chunk: u64,
        counting: u64,
        members: u64,
        goes_on: GoesOn<'_>,
    ) -> Result<(), VolumeError> {
        let (shape, epoch) = (self.shape, self.epoch);
        let mut states = Vec::new();
        for (server, link) in self.of(members) {
            states.push((server, link, link.states(shape, epoch, chunk, false)?));
        }
        // Those that count are written first: if only another member had a repair's version, because a server failed at
        // that point, it would not be recognized as stale when this is repeated in the same epoch.
        states.sort_by_key(|(server, ..)| counting & 1 << server == 0);
        let first = chunk * u64::from(shape.chunk_blocks);
        let blocks = states.first().map_or(0, |(_, _, states)| states.len());
        let (mut behind, mut stale) = (Vec::new(), Vec::new());
        for nth in 0..blocks {
            let versions = states
                .iter()
                .map(|(server, _, states)| (1 << server, states[nth].version));
            let that_count = versions
                .clone()
                .filter(|(member, _)| counting & member != 0);
            let newest = that_count
                .map(|(_, version)| version)
                .max()
                .unwrap_or_default();
            let have = versions.clone().filter(|(_, version)| *version == newest);
            let wanted = (
                first + nth as u64,
                have.fold(0, |set, (member, _)| set | member),
            );
            let is_stale = |version: Version| version > newest && version.epoch() < epoch;
            if versions.clone().any(|(_, version)| is_stale(version)) {
                stale.push(wanted);
            } else if versions.clone().any(|(_, version)| version < newest) {
                behind.push(wanted);
            }
        }
        let behind = behind.chunks(AT_ONCE).map(|some| (some, false));
        let stale = stale.chunks(AT_ONCE).map(|some| (some, true));
        for (some, is_stale) in behind.chain(stale) {
            goes_on()?;
            let mut copied = self.read(some.to_vec())?;
            if is_stale {
                copied = copied.into_iter().map(|one| repaired(one, epoch)).collect();
            }
            for (_, link, states) in &states {
                let has = |copied: &Copied| states[(copied.block - first) as usize].version;
                let older: Vec<&Copied> = copied
                    .iter()
                    .filter(|one| has(one) < one.state.version)
                    .collect();
                link.write(shape.id, epoch, &older)?;
            }
        }
        Ok(())
    }

    /// Reads blocks, each from the first server that can return it, of a set that agrees on it.
    pub(super) fn read(&self, mut wanted: Vec<(u64, u64)>) -> Result<Vec<Copied>, VolumeError> {
        let mut copied = Vec::with_capacity(wanted.len());
        for (server, link) in self.of(u64::MAX) {
            let (here, left): (Vec<_>, Vec<_>) = wanted
                .into_iter()
                .partition(|(_, have)| have & 1 << server != 0);
            wanted = left;
            let blocks: Vec<u64> = here.iter().map(|(block, _)| *block).collect();
            let read = link.read(self.shape.id, self.epoch, &blocks)?;
            for (one, found) in here.into_iter().zip(read) {
                match found {
                    Some(found) => copied.push(found),
                    None => {
                        tracing::warn!(server, block = one.0, "a copy could not deliver a block");
                        wanted.push(one);
                    }
                }
            }
        }
        match wanted.first() {
            Some((block, _)) => Err(VolumeError::Damaged(*block)),
            None => Ok(copied),
        }
    }
}

/// The result of comparing all copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Number of blocks that were compared, each on all of its copies.
    pub blocks: u64,
    /// Number of blocks that have ever been written.
    pub written: u64,
    /// Number of blocks whose copies differ, or of which a copy is not what was written to it.
    pub faulty: u64,
    /// The first [`MOST_FAULTS`] of these.
    pub faults: Vec<u64>,
}

/// Maximum number of faults that [`Findings::faults`] lists.
pub const MOST_FAULTS: usize = 1000;

/// Has all blocks of all copies read on their servers, and compares them.
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
            findings.faulty += u64::from(differs);
            if differs && findings.faults.len() < MOST_FAULTS {
                findings.faults.push(first + nth as u64);
            }
        }
    }
    Ok(findings)
}
