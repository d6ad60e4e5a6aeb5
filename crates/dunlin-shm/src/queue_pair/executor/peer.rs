//! The connection to the peer: its port, and answers from the control thread.

use std::time::{Duration, Instant};

use dunlin_verbs::{CompletionStatus, Transport};

use super::{unreliable_or, Executor, PeerRegion, Reason, Step};
use crate::control::Command;
use crate::core::lock;
use crate::port::Outbound;
use crate::queue_pair::shared::Shared;
use crate::queue_pair::work::{Target, Work};

/// A refused attach is retried after this time.
const ATTACH_AGAIN: Duration = Duration::from_millis(5);

/// An answer of the control thread.
#[derive(Debug)]
pub(crate) enum Mail {
    /// The peer's port, or a refusal.
    Port(Option<Outbound>),
    /// The region of a key, or the status with which its request fails.
    Region(u32, Result<PeerRegion, CompletionStatus>),
    /// The port of a datagram's destination, or the refusal.
    Datagram(Target, Result<Outbound, CompletionStatus>),
    /// A device to which datagrams may have been sent is gone, or, with a number, one of its queue pairs.
    Gone([u8; 16], Option<u32>),
}

impl Executor {
    /// Handles a peer's queue pair that does not receive. If it was reset before we sent anything, it may be connecting
    /// to us again: our port then belongs to its earlier incarnation.
    #[cold]
    pub(super) fn not_receiving(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let before = |outbound: &Outbound| outbound.is_fresh() && outbound.peer_is_reset();
        if !self.outbound.as_ref().is_some_and(before) {
            return unreliable_or(pair, work, CompletionStatus::RetryExceeded);
        }
        self.outbound = None;
        self.regions.clear();
        self.attach_again = Some(Instant::now());
        match self.attach(pair) {
            Some(step) if pair.transport == Transport::ReliableConnection => step,
            _ => Step::Done(work.length),
        }
    }

    /// Obtains the peer's port; returns `None` once it is available.
    #[cold]
    pub(super) fn attach(&mut self, pair: &Shared) -> Option<Step> {
        self.read_mail(pair);
        if self.outbound.is_some() {
            return None;
        }
        if self.attach_again.is_some_and(|at| Instant::now() >= at) {
            self.attach_again = None;
            if let Some(remote) = self.remote {
                self.notices.ask(pair, |pair, incarnation| Command::Attach {
                    pair,
                    incarnation,
                    remote,
                });
            }
        }
        Some(Step::Wait(Reason::Peer))
    }

    /// Handles the answers of the control thread.
    #[cold]
    pub(crate) fn read_mail(&mut self, pair: &Shared) {
        for (incarnation, mail) in pair.take_mail() {
            if incarnation != pair.incarnation() {
                continue;
            }
            match mail {
                Mail::Port(Some(outbound)) => {
                    self.outbound.get_or_insert(outbound);
                }
                Mail::Port(None) => self.attach_again = Some(Instant::now() + ATTACH_AGAIN),
                Mail::Region(key, region) => {
                    if self.asked == Some(key) {
                        self.asked = None;
                    }
                    let region = match region {
                        Ok(region) => region,
                        Err(status) => {
                            self.refused = Some((key, status));
                            continue;
                        }
                    };
                    self.unmap_revoked();
                    self.regions.insert(region);
                }
                Mail::Datagram(target, outbound) => {
                    self.datagrams.answered(target, outbound, &mut self.notices);
                }
                Mail::Gone(uid, number) => self.datagrams.forget(uid, number),
            }
        }
    }

    /// Unmaps the peer's regions whose keys were revoked.
    fn unmap_revoked(&mut self) {
        let Some(outbound) = &self.outbound else {
            return;
        };
        self.regions
            .retain(|region| outbound.table.holds(region.key));
    }

    /// Applies the parameters of `to_ready_to_receive`.
    pub(crate) fn connect(&mut self, pair: &Shared) {
        let link = lock(&pair.link);
        self.remote = link.remote;
        self.attributes = link.attributes;
    }
}
