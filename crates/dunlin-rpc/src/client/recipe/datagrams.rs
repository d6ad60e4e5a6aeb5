//! Datagrams instead of a port of the connection handle, where the server requests them (`auto`).
//!
//! A thread or pipeline keeps both lanes ([`crate::client::other_lane`]) and uses the one that the server requested
//! last: on rings the words of admission state it, on datagrams their heads. A network that has lost a datagram is not
//! used for datagrams again.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use super::renewal::Reasons;
use super::Recipe;
use crate::call::lane::Lane;
use crate::error::ConnectError;
use crate::lanes::Owner;
use crate::preset::Preset;

impl Recipe {
    /// Enables datagrams for threads if appropriate: with `auto`, over a NIC with a lossless network, if the client
    /// does not access the server's memory.
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

    /// Whether the user of this lane should send datagrams: the server requests them, as far as the lane knows, the
    /// client does not access the server's memory, and the network has not lost a datagram.
    pub(super) fn sends_datagrams(&self, renewal: Reasons, lane: &dyn Lane) -> bool {
        lane.wants_datagrams()
            && !renewal.contains(Reasons::RINGS_ONLY)
            && !self.packet_lost.load(Ordering::Relaxed)
    }

    /// From now on the client accesses the server's memory.
    pub(in crate::client) fn forbid_datagrams(&self) {
        self.renewal.add(Reasons::RINGS_ONLY);
    }

    /// Makes a lane of the other kind for the user of this one, as [`Recipe::open`] does.
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
