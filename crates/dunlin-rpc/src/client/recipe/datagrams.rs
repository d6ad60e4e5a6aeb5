//! Datagrams in place of a port of the connection handle, where the server asks for them (`auto`).
//!
//! A thread or pipeline keeps both lanes ([`crate::client::thread_lane`], [`crate::client::pipeline`]) and uses the one
//! that the server has asked for last: the words of admission say so on rings, and the heads of datagrams on the other.
//! A network that has lost a datagram is not asked to keep another.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use super::{Recipe, AS_ASKED, IN_USE, NO_DATAGRAMS};
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
        if may && self.change_renewal(IN_USE, AS_ASKED) && self.works_on_memory() {
            // Said meanwhile.
            self.change_renewal(AS_ASKED, NO_DATAGRAMS);
        }
    }

    /// Whether the server asks for datagrams, as this lane has heard, and the network has not lost one.
    pub(super) fn may_send_datagrams(&self, lane: &dyn Lane) -> bool {
        lane.wants_datagrams() && !self.packet_lost.load(Ordering::Relaxed)
    }

    fn works_on_memory(&self) -> bool {
        self.works_on_memory.load(Ordering::SeqCst)
    }

    /// Somebody works on the server's memory from now on.
    pub(in crate::client) fn forbid_datagrams(&self) {
        self.works_on_memory.store(true, Ordering::SeqCst);
        self.change_renewal(AS_ASKED, NO_DATAGRAMS);
    }

    fn change_renewal(&self, from: u8, to: u8) -> bool {
        let order = Ordering::SeqCst;
        self.renewal
            .compare_exchange(from, to, order, order)
            .is_ok()
    }

    /// Whether a thread that gives up this lane is to have another of the same connection beside it.
    pub(in crate::client) fn goes_aside(&self) -> bool {
        matches!(
            self.renewal.load(Ordering::Relaxed),
            AS_ASKED | NO_DATAGRAMS
        )
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
