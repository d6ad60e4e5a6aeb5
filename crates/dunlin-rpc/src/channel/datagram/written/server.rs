//! The server's side: one client's zone, which it polls.

use dunlin_verbs::{Access, Device, Region, VerbsError, Work};

use super::{parameter, Pair, WHAT};
use crate::channel::message::Header;
use crate::channel::parameters::{named, named_place, Parameters, PeerParameters};
use crate::channel::pool::block::{Blocks, Look, Seals};
use crate::channel::pool::scan::Scan;
use crate::channel::pool::{block_bytes, zone_bytes, BLOCKS};
use crate::effort;

/// A client's zone.
#[derive(Debug)]
pub(crate) struct Zone<D: Device> {
    /// It ends with the zone, which ends the client's access.
    pair: Pair<D>,
    pub(super) region: D::Region,
    pub(super) blocks: Blocks,
    pub(super) seals: Seals,
    seen: [u64; BLOCKS],
    scan: Scan,
    /// Where clients store by CPU, polling is a load, and a missed request wakes nobody.
    rests: bool,
    secret: u64,
    eager: usize,
}

impl<D: Device> Zone<D> {
    /// Creates a zone for requests of up to `eager` bytes, connected to the client with these parameters.
    ///
    /// # Errors
    /// When the device has no WRITE over UC, a limit is reached, or the parameters are invalid.
    pub(crate) fn new(
        device: &D,
        eager: usize,
        parameters: &Parameters,
    ) -> Result<Self, VerbsError> {
        let mut pair = Pair::new(device, Access::REMOTE_WRITE, 0)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device.allocate_region(&pair.domain, zone_bytes(eager), access)?;
        pair.join(PeerParameters::new(WHAT, parameters))?;
        let secret = crate::random::random(device)?;
        let bytes = block_bytes(eager);
        Ok(Self {
            pair,
            region,
            blocks: Blocks { start: 0, bytes },
            seals: Seals::sum(secret),
            seen: [0; BLOCKS],
            scan: Scan::default(),
            rests: !device.attributes().writes_are_messages,
            secret,
            eager,
        })
    }

    /// Adds the parameters that the client needs.
    pub(crate) fn tell(&self, parameters: &mut Parameters) {
        parameters.extend(named_place(parameter::ZONE, self.region.remote()));
        parameters.extend(named([
            (parameter::SECRET, self.secret),
            (parameter::EAGER, self.eager as u64),
        ]));
        self.pair.tell(parameters);
    }

    /// Polls for requests: returns the next new one and its block, with its payload at the beginning of `target`.
    #[inline]
    pub(crate) fn take(&mut self, target: &mut [u8]) -> Option<(usize, Header)> {
        let memory = self.region.memory();
        while let Some(block) = self.scan.next() {
            let seen = &mut self.seen[block];
            // A partial message may become complete; one that does not is a lost request.
            let look = self.blocks.take(memory, block, seen, &self.seals, target);
            if let Look::Whole(header, _) = look {
                self.scan.found(1 << block);
                D::charge(effort::WHOLE);
                D::charge(effort::SERVED);
                D::charge(Work::Arrived);
                D::charge(Work::Copy(header.length as usize));
                return Some((block, header));
            }
        }
        D::charge(Work::Poll);
        None
    }

    /// Begins a poll.
    #[inline]
    pub(crate) fn begin(&mut self) {
        match self.rests {
            true => self.scan.begin_or_rest(),
            false => {
                self.scan.begin();
            }
        }
    }

    /// Makes the next poll cover every block.
    pub(crate) fn look_at_all(&mut self) {
        self.scan.look_at_all();
    }

    /// Whether there is something that was not taken, message or not.
    pub(crate) fn has_news(&self) -> bool {
        let memory = self.region.memory();
        (0..BLOCKS).any(|block| self.blocks.is_new(memory, block, self.seen[block]))
    }

    /// Whether there is a message that was not taken.
    pub(crate) fn has_arrival(&self) -> bool {
        self.blocks
            .have_arrival(self.region.memory(), &self.seen, &self.seals, |_| false)
    }
}
