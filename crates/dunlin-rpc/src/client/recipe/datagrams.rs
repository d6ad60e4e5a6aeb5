//! Datagrams in place of a port of the connection handle, where the server asks for them (`auto`).
//!
//! A thread or pipeline keeps both lanes ([`crate::client::other_lane`]) and uses the one that the server has asked for
//! last: the words of admission say so on rings, and the heads of datagrams on the other. A network that has lost a
//! datagram is not asked to keep another.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use super::renewal::Reasons;
use super::Recipe;
use crate::call::lane::Lane;
use crate::error::ConnectError;
use crate::fabric::Owner;
use crate::preset::Preset;

impl Recipe {
    /// Whether threads may be asked for datagrams: with `auto`, over a NIC whose network keeps what is sent, where
    /// nobody works on the server's memory.
    pub(super) fn consider_datagrams(&self, device: &DeviceAttributes) {
        let has_datagrams = device
            .transports
            .verbs(Transport::UnreliableDatagram)
            .contains(Verbs::SEND);
        let may = self.preset == Preset::Auto
            && has_datagrams
            && device.lossless
            && !device.queue_pairs_by_software()
            && !self.one_sided;
        if may {
            self.renewal.add(Reasons::AS_ASKED);
        }
    }

    /// Whether who has this lane is to send datagrams: the server asks for them, as the lane has heard, nobody works on
    /// its memory, and the network has not lost one.
    pub(super) fn sends_datagrams(&self, renewal: Reasons, lane: &dyn Lane) -> bool {
        lane.wants_datagrams()
            && !renewal.contains(Reasons::RINGS_ONLY)
            && !self.packet_lost.load(Ordering::Relaxed)
    }

    /// Somebody works on the server's memory from now on.
    pub(in crate::client) fn forbid_datagrams(&self) {
        self.renewal.add(Reasons::RINGS_ONLY);
    }

    /// A lane of the other kind for who has this one, as [`Recipe::open`] makes one.
    pub(in crate::client) fn open_other(
        &self,
        lane: &dyn Lane,
        (owner, window): (Owner, usize),
        until: Option<Instant>,
    ) -> Result<Box<dyn Lane>, ConnectError> {
        if !lane.is_shared() {
            return self.open(owner, window, until).map(|(lane, _)| lane);
        }
        self.refuse_own_server()?;
        let reached = self.reach(until)?;
        let opened = self.open_alone(reached, Preset::Fasst, owner, &mut None);
        opened.map(|(lane, _)| lane)
    }
}
