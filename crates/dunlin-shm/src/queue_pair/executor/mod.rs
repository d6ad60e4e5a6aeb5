//! The executor: executes send requests in order, as far as they can proceed.

mod left_over;
mod messages;
mod one_sided;
mod peer;
mod region;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_verbs::{CompletionStatus, ConnectAttributes, EndpointAddress, Operation, Transport};

use crate::port::{Nonsense, Outbound};

use super::datagram::Datagrams;
use super::notices::Notices;
use super::shared::Shared;
use super::work::{LeftOver, Work};

pub(super) use one_sided::place_piece;
pub(crate) use peer::Mail;
pub(crate) use region::PeerRegion;
use region::PeerRegions;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Done, with this many bytes.
    Done(usize),
    /// As [`Step::Done`], but a datagram is kept that has to be sent when the control thread answers.
    Kept(usize),
    /// Something has to happen first.
    Wait(Reason),
    /// It failed.
    Fail(CompletionStatus),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An answer from the peer's control thread.
    Peer,
    /// A RECEIVE at the peer.
    Receiver,
    /// Space in the peer's port.
    Room,
}

/// Executes the sends of one queue pair.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) outbound: Option<Outbound>,
    regions: PeerRegions,
    asked: Option<u32>,
    refused: Option<(u32, CompletionStatus)>,
    attach_again: Option<Instant>,
    queue: VecDeque<LeftOver>,
    /// Number of bytes of the first request that have been transferred.
    crossed: usize,
    waiting: Option<(Reason, Instant)>,
    pub(crate) remote: Option<EndpointAddress>,
    pub(crate) attributes: ConnectAttributes,
    pub(crate) datagrams: Datagrams,
    /// Notifications for others that result from the work so far.
    pub(crate) notices: Notices,
}

impl Executor {
    pub(crate) fn new() -> Self {
        Self {
            outbound: None,
            regions: PeerRegions::default(),
            asked: None,
            refused: None,
            attach_again: None,
            // Most requests are finished when they are posted; space is allocated when one is not.
            queue: VecDeque::new(),
            crossed: 0,
            waiting: None,
            remote: None,
            attributes: ConnectAttributes::default(),
            datagrams: Datagrams::default(),
            notices: Notices::default(),
        }
    }

    /// Clears all state, but keeps allocated space.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        let queue = std::mem::take(&mut self.queue);
        *self = Self {
            queue,
            ..Self::new()
        };
    }

    /// Executes a request, or the next part of it.
    #[inline(always)]
    pub(crate) fn execute(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let Some(_in_use) = work.source.begin_use(pair.domain) else {
            return Step::Fail(CompletionStatus::LocalProtection);
        };
        if pair.transport == Transport::UnreliableDatagram {
            return self.execute_datagram(pair, work);
        }
        if self.outbound.is_none() {
            if let Some(step) = self.attach(pair) {
                return step;
            }
        }
        let Some(outbound) = self.outbound.as_mut() else {
            return Step::Wait(Reason::Peer);
        };
        if !outbound.peer_receives() {
            return self.not_receiving(pair, work);
        }
        match work.operation {
            Operation::Write {
                remote,
                immediate: None,
            } => self.write(pair, work, *remote),
            _ => self.execute_other(pair, work),
        }
    }

    #[inline(never)]
    fn execute_other(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let result = match *work.operation {
            Operation::Send { immediate } => self.send(pair, work, immediate),
            Operation::Write { remote, immediate } => {
                self.write_with_immediate(pair, work, remote, immediate.unwrap_or(0))
            }
            Operation::Read { remote } => self.read(pair, work, remote),
            Operation::CompareAndSwap {
                remote,
                compare,
                swap,
            } => self.atomic(pair, work, remote, |word| {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }),
            Operation::FetchAndAdd { remote, add } => self.atomic(pair, work, remote, |word| {
                word.fetch_add(add, Ordering::SeqCst)
            }),
        };
        match result {
            Ok(step) => step,
            Err(Nonsense) => Step::Fail(CompletionStatus::General),
        }
    }
}

/// On UC a failure at the peer is not reported.
#[cold]
fn unreliable_or(pair: &Shared, work: &Work<'_>, status: CompletionStatus) -> Step {
    if pair.transport == Transport::ReliableConnection {
        Step::Fail(status)
    } else {
        Step::Done(work.length)
    }
}
